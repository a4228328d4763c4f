"""Videos and streams at an address, by libav."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError, HTTPUnauthorizedError, InvalidDataError
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from hermes.errors import SourceError
from hermes.sources.addresses import Address
from hermes.sources.base import Report, Source
from hermes.sources.daemon import in_daemon
from hermes.sources.live import Connecting, LiveSource, Shot
from hermes.sources.reading import Reading
from hermes.sources.video_file import Orientation, VideoFile

_FOR_FILES = ("http", "https", "hls")
"""What files come by too: one that says how long it is can be played like a file on the disk."""


@dataclass(frozen=True)
class Link:
    """Where a container is fetched from."""

    address: Address
    connecting: Connecting

    @property
    def name(self) -> str:
        return self.address.shown

    @property
    def is_remote(self) -> bool:
        return True

    def open(self) -> InputContainer:
        options: dict[str, str] = {}
        if self.address.scheme.startswith("rtsp"):
            options["rtsp_transport"] = self.connecting.rtsp_transport
        limits = (self.connecting.timeout_s, self.connecting.timeout_s)
        begin_s = time.monotonic()
        try:
            return av.open(self.address.url, "r", options=options, timeout=limits, metadata_errors="replace")
        except FFmpegError as error:
            is_late = time.monotonic() - begin_s >= self.connecting.timeout_s  # RTSP calls that invalid data
            raise (self.silence() if is_late else self.failure(error)) from None  # libav's text has the password in it

    def failure(self, error: FFmpegError) -> SourceError:
        """What libav's error means, without its text, which repeats the address."""
        match error:
            case HTTPUnauthorizedError():
                return SourceError(
                    f"{self.name}: wrong user or password", "HERMES_RTSP_PASSWORD or --password-file give one"
                )
            case InvalidDataError():
                return SourceError(f"{self.name}: what comes from there is no video that can be read", "check the address")
            case av.error.ExitError():
                return self.silence()
        reason = self.address.scrub(error.strerror or "unknown reason")
        return SourceError(f"{self.name} cannot be reached: {reason}", "check the address, and whether it is on")

    def silence(self) -> SourceError:
        wait = f"nothing came within {self.connecting.timeout_s:g} s"
        return SourceError(f"{self.name}: {wait}", "look whether it is on, or wait longer with --timeout")


def open_address(address: Address, connecting: Connecting) -> Source:
    """The film or stream at an address: a film if it comes by HTTP and says how long it is. Ctrl-C ends the waiting.

    Raises:
        SourceError: it cannot be reached, or has no picture that can be decoded.
        UsageError: it is no address of a video.
    """
    address.check()
    link = Link(address, connecting)
    film = in_daemon(partial(_film, link)).result() if address.scheme in _FOR_FILES else None
    return film or NetworkStream(link)


def _film(link: Link) -> VideoFile | None:
    with closing(Reading(link, Report())) as reading:
        has_length = reading.lengths(0)[0] is not None
    return VideoFile(link) if has_length else None


class NetworkStream(LiveSource):
    """A stream that goes on by itself; raises `SourceError` when it cannot be reached or gives no picture."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._known: tuple[float | None, str] = (None, "")
        super().__init__(link.name, link.connecting.reconnect)

    def _connect(self, report: Report) -> Generator[Shot, None, None]:
        own = Report()
        with closing(Reading(self._link, own, "SLICE")) as reading:
            self._known = reading.fps_hint(), reading.stream.codec_context.codec.canonical_name
            waiting_s = time.monotonic()
            try:
                for stamp, duration, frame in reading.frames():
                    base = reading.time_base
                    yield Shot(stamp * base, duration * base, partial(_render, reading, frame))
                    waiting_s = time.monotonic()
            finally:
                report.damaged_packets += own.damaged_packets
            if time.monotonic() - waiting_s >= self._link.connecting.timeout_s:  # HLS calls that an end
                raise self._link.silence()
            if reading.lost is not None:
                raise self._link.failure(reading.lost)

    def _describe(self) -> tuple[float | None, str]:
        return self._known


def _render(reading: Reading, frame: VideoFrame, max_side: int | None) -> NDArray[np.uint8]:
    return Orientation.of(frame).apply(reading.to_rgb(frame, max_side))
