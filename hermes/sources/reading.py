"""One pass over a container: packets with continuous times, decoded into pictures past whatever is damaged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import islice
from typing import cast

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError, InvalidDataError
from av.format import Flags
from av.packet import Packet
from av.stream import Stream
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from hermes.errors import UsageError
from hermes.sources.base import Report, rate_hint
from hermes.sources.opening import Place, find_film
from hermes.timecode import parse

_LEAP_S, _LEAP_STEPS = 10, 10  # a hole longer than both is a new segment, in a format that may leap
_JITTER_S = Fraction(1, 10)  # a smaller step back is a clumsy muxer, not a new segment
_MOST_BAD_PACKETS = 100  # in a row, before a reading gives up
_LEAST_PIXEL_ASPECT = Fraction(1, 10)  # beyond it, and beyond its inverse, the header is wrong

_EXACT_SEEK = {"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"}  # times do not depend on the packets before
_WITHOUT_PTS = {"avi"}  # stores decoding times only; the presentation times libav guesses are wrong with B-frames


class Reading:
    """One pass over a container: repaired packets, and the frames decoded from them.

    Args:
        place: where it is.
        report: takes what is met on the way.
        threads: how the decoder uses threads (`thread_type` of libav).

    Attributes:
        skipped: number of packets to read without decoding them.
        counted_to: damage to packets shown at or before this stamp is not counted.
        damage_at_newest: damaged packets counted when the newest frame came out.
        lost: why the connection broke off, where there was one.
    """

    def __init__(self, place: Place, report: Report, threads: str = "AUTO") -> None:
        self.name = place.name
        self.lost: FFmpegError | None = None
        self.container = place.open()
        self.stream = find_film(self.container, self.name)
        self.stream.thread_type = threads
        self.skipped = 0
        self.counted_to: int | None = None
        self.damage_at_newest = 0
        self._report = report
        self._is_remote = place.is_remote
        report.damaged_packets = report.jumps = 0
        report.untimed = _has_flag(self.container, Flags.no_timestamps)
        assert self.stream.time_base is not None  # libav gives every stream one
        self.time_base = self.stream.time_base
        self.seeks_exactly = self.container.format.name in _EXACT_SEEK
        self._by_dts = self.container.format.name in _WITHOUT_PTS
        self._clock = _Clock(self.time_base, may_leap=_has_flag(self.container, Flags.ts_discont))
        self._bad_in_a_row = 0
        self._newest_sent = self._newest_shown = self._start = min(0, self.stream.start_time or 0)
        rate = self.stream.guessed_rate or self.stream.average_rate
        self._usual_step = max(1, round(1 / (rate * self.time_base))) if rate else 1  # where nothing better is known
        self._pixel_aspect = self.stream.sample_aspect_ratio
        self._reformatter = VideoReformatter()

    def close(self) -> None:
        self.container.close()

    def seek(self, stamp: int) -> None:
        """Go to the key packet before `stamp`; where that fails the position is anywhere, for the caller to check."""
        with suppress(FFmpegError):
            self.container.seek(stamp, stream=self.stream)

    @property
    def is_complete(self) -> bool:
        """Whether the last picture that went into the decoder came out of it."""
        return self._by_dts or self._newest_shown >= self._newest_sent

    def packets(self) -> Iterator[Packet[VideoStream]]:
        """Packets of the film with continuous times, past those that cannot be read, up to the end or a lost connection."""
        while self._bad_in_a_row < _MOST_BAD_PACKETS:
            try:
                for packet in self.container.demux(self.stream):
                    self._clock.repair(packet)
                    self._report.jumps = self._clock.jumps
                    yield packet
                return
            except FFmpegError as error:
                if self._is_remote and not isinstance(error, InvalidDataError):
                    self.lost, self._report.gave_up = error, True
                    return
            self._note_damage(None)

    def frames(self) -> Iterator[tuple[int, int, VideoFrame]]:
        """Shown frames as (stamp, duration, frame), both numbers in units of the time base; stamps rise.

        Frames without a time before the first that has one, and those before the start of the film, are pre-roll.
        """
        previous: int | None = None
        step = self._usual_step
        for frame in self._decoded():
            stamp = frame.dts if self._by_dts else frame.pts
            if stamp is None and previous is not None:
                stamp = previous + step
            elif stamp is None and self._report.untimed:
                stamp = 0
            if stamp is None or stamp < self._start:
                continue
            if previous is not None:
                stamp = max(stamp, previous + 1)  # the decoder's order is the order of showing
                step = stamp - previous
            previous = self._newest_shown = stamp
            self.damage_at_newest = self._report.damaged_packets
            yield stamp, (0 if self._by_dts else frame.duration) or step, frame

    def _decoded(self) -> Iterator[VideoFrame]:
        for packet in islice(self.packets(), self.skipped, None):
            if packet.pts is not None:
                self._newest_sent = max(self._newest_sent, packet.pts)
            try:
                frames = packet.decode()
            except FFmpegError:
                self._note_damage(packet.pts)
                if self._bad_in_a_row == _MOST_BAD_PACKETS:
                    return
                continue
            self._bad_in_a_row = 0
            yield from frames

    def _note_damage(self, stamp: int | None) -> None:
        self._bad_in_a_row += 1
        self._report.gave_up = self._bad_in_a_row == _MOST_BAD_PACKETS
        if self.counted_to is None or stamp is None or stamp > self.counted_to:
            self._report.damaged_packets += 1

    def to_rgb(self, frame: VideoFrame, max_side: int | None) -> NDArray[np.uint8]:
        """The stored picture with square pixels, (height, width, 3), its longer side at most `max_side`."""
        width, height = self.size(frame, max_side)
        rgb = self._reformatter.reformat(frame, width, height, "rgb24", interpolation=Interpolation.BICUBIC).to_ndarray()
        return cast("NDArray[np.uint8]", rgb)

    def size(self, frame: VideoFrame, max_side: int | None = None) -> tuple[int, int]:
        """(width, height) of the stored picture with square pixels; it keeps its height and is at least 1 x 1."""
        aspect = self._pixel_aspect
        if aspect is None or not _LEAST_PIXEL_ASPECT <= aspect <= 1 / _LEAST_PIXEL_ASPECT:
            aspect = Fraction(1)
        width, height = frame.width * aspect, Fraction(frame.height)
        scale = Fraction(1) if max_side is None else min(Fraction(1), max_side / max(width, height))
        return max(1, round(width * scale)), max(1, round(height * scale))

    def lengths(self, origin: int) -> tuple[Fraction | None, Fraction | None]:
        """Length for display, and length that the film may be held to; each None when unknown.

        The length of a whole container covers its longest stream: it says nothing about the film beside other streams.
        """
        # A stream may start before the first frame that can be shown; decoding times are ahead of showing anyway.
        lead = 0 if self._by_dts else max(0, origin - (self.stream.start_time or 0))
        own = ((self.stream.duration or 0) - lead) * self.time_base
        offset = max(0, origin) * self.time_base  # the lengths below count from zero, wherever the film starts
        tagged = (_duration_tag(self.stream) or 0) - offset
        whole = Fraction(self.container.duration or 0, av.time_base) - offset
        if own > 0 or tagged > 0:
            length = own if own > 0 else tagged
            return length, length
        return (whole, whole if len(self.container.streams) == 1 else None) if whole > 0 else (None, None)

    def fps_hint(self) -> float | None:
        """The lower of libav's two estimates: each errs upwards on some containers (AVI, GIF)."""
        rates = [rate for rate in (self.stream.average_rate, self.stream.guessed_rate) if rate]
        return rate_hint(float(min(rates))) if rates else None


class _Clock:
    """Makes the times of packets continuous, in the order they are stored (see `VideoFile` for the rule)."""

    def __init__(self, time_base: Fraction, may_leap: bool) -> None:
        self.jumps = 0
        self._may_leap = may_leap
        self._jitter = math.floor(_JITTER_S / time_base)
        self._leap = math.floor(_LEAP_S / time_base)
        self._offset = 0
        self._previous: int | None = None
        self._step: int | None = None
        self._expected = 0

    def repair(self, packet: Packet[VideoStream]) -> None:
        """Shift the times of a packet into the segment it belongs to."""
        if packet.dts is not None:
            stamp = packet.dts + self._offset
            if self._is_jump(stamp):
                self.jumps += 1
                self._offset += self._expected - stamp
                stamp = self._expected
            elif self._previous is not None:
                self._step = max(0, stamp - self._previous)
            self._previous, self._expected = stamp, stamp + (packet.duration or self._step or 0)
            packet.dts = stamp
        if packet.pts is not None:
            packet.pts += self._offset

    def _is_jump(self, stamp: int) -> bool:
        if self._previous is None:
            return False
        hole = stamp - self._expected
        is_leap = self._may_leap and self._step is not None and hole > max(self._leap, _LEAP_STEPS * self._step)
        return is_leap or stamp < self._previous - self._jitter


def _duration_tag(stream: Stream) -> Fraction | None:
    """Length of one Matroska stream, as muxers write it beside that of the whole file: `00:00:12.000000000`."""
    try:
        return Fraction(str(parse(stream.metadata["DURATION"].strip("\0")).value))
    except (KeyError, UsageError):
        return None


def _has_flag(container: InputContainer, flag: Flags) -> bool:
    return bool(container.format.flags & cast("int", flag.value))
