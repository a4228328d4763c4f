"""Video files, here or at an address. A picture leaves here as a viewer would see it: turned, unmirrored, square pixels.

Frame rates and frame counts of the header are hints for display only. The size may change inside one film where the film
does so.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from hermes.errors import SourceError, UsageError
from hermes.sources.base import EarlyEnd, Picture, Report, Source, SourceInfo
from hermes.sources.opening import FETCH_AGAIN, LocalFile, Place
from hermes.sources.reading import Reading

_EARLY_S = Fraction(1, 2)  # a film may miss its stated length by this much


@dataclass(frozen=True, slots=True)
class Orientation:
    """How a stored picture is shown: mirrored left to right if `mirrored`, then turned by `clockwise` degrees."""

    clockwise: int = 0
    mirrored: bool = False

    @classmethod
    def from_matrix(cls, matrix: NDArray[np.int32]) -> Orientation:
        """The nearest of the eight orientations to a display matrix (3, 3) of libav (libavutil/display.h).

        With rows (a, b, u), (c, d, v), a stored point (x, y) is shown at (a x + c y, b x + d y), y pointing down. A
        mirror leaves the downward axis alone, so where that axis goes, (c, d), tells the turn.
        """
        (a, b, _), (c, d, _), _ = matrix.tolist()
        return cls(round(math.degrees(math.atan2(-c, d)) / 90) % 4 * 90, a * d - b * c < 0)

    @classmethod
    def of(cls, frame: VideoFrame) -> Orientation:
        """What a decoded frame says of itself."""
        matrix = frame.side_data.get("DISPLAYMATRIX")
        return cls() if matrix is None else cls.from_matrix(np.frombuffer(cast("bytes", matrix), np.int32).reshape(3, 3))

    def apply(self, rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Turn a picture (height, width, 3)."""
        return np.ascontiguousarray(np.rot90(rgb[:, ::-1] if self.mirrored else rgb, -self.clockwise // 90))


class VideoFile(Source):
    """A film, or a still image (one frame at time zero).

    Every pass opens the file anew and closes it when the iterator ends or is closed, so passes do not disturb each
    other. Seeks are exact: MP4/MOV and Matroska/WebM go to the key frame before by their index; in other formats,
    whose times depend on the packets before (MPEG), or whose index may lack (AVI, FLV), the packets before that key
    frame are read without being decoded.

    Where decoding times run backwards a new segment begins. Where they leap forwards the container decides. MP4,
    Matroska, AVI and the like have one timeline, so a still period in a screen recording keeps its true length. MPEG
    streams may leap (libav marks such formats as discontinuous): there a hole is a new segment when it is longer than
    10 s and than ten of the steps before it, and is not covered by the duration of the packet before it; so a slow
    film in an MPEG stream keeps its length too, only a single long still period does not.

    Packets are decoded one by one and damaged ones are skipped, up to 100 in a row. What libav makes up for a damaged
    picture may differ from pass to pass; times do not, unless the timestamps themselves are damaged.

    Args:
        place: path of a regular file, or what opens the film elsewhere.
        rotate: degrees clockwise (0, 90, 180, 270) instead of what the file says; None follows the file.

    Raises:
        SourceError: the file cannot be opened, is no video, or holds no picture that can be decoded.
        UsageError: `rotate` is no quarter turn.
    """

    def __init__(self, place: str | Path | Place, *, rotate: int | None = None) -> None:
        super().__init__()
        if rotate not in (None, 0, 90, 180, 270):
            raise UsageError(f"pictures cannot be turned by {rotate} degrees", "give 0, 90, 180 or 270")
        self._place = LocalFile(Path(place)) if isinstance(place, str | Path) else place
        self._forced = None if rotate is None else Orientation(rotate)
        with closing(Reading(self._place, Report())) as reading:
            first = next(reading.frames(), None)
            if first is None:
                raise SourceError(f"{reading.name}: no picture could be decoded", FETCH_AGAIN)
            self._origin, _, frame = first
            self._time_base = reading.time_base
            length, self._promised = reading.lengths(self._origin)
            self.info = self._describe(reading, frame, length)

    def _describe(self, reading: Reading, frame: VideoFrame, length: Fraction | None) -> SourceInfo:
        orientation = self._orientation(frame)
        width, height = reading.size(frame)
        if orientation.clockwise in (90, 270):
            width, height = height, width
        return SourceInfo(
            name=reading.name,
            width=width,
            height=height,
            duration_s=None if length is None else float(length),
            fps=reading.fps_hint(),
            codec=reading.stream.codec_context.codec.canonical_name,
            rotation=orientation.clockwise,
            mirrored=orientation.mirrored,
        )

    def pictures(self, begin: Fraction, report: Report) -> Generator[Picture, None, None]:
        newest, reading = yield from self._play(begin, report, "AUTO")
        if not reading.is_complete:
            # Damage met while libav's frame threads are drained takes the good frames behind it along: read the tail
            # again, one packet at a time.
            tail = Report()
            for picture in self._play(newest.time, tail, "SLICE", counted_to=newest.time):
                if picture.time > newest.time:
                    newest = picture
                    yield picture
            report.damaged_packets = reading.damage_at_newest + tail.damaged_packets
        report.ended_early = self._early_end(newest, report)

    def _play(
        self, begin: Fraction, report: Report, threads: str, counted_to: Fraction | None = None
    ) -> Generator[Picture, None, tuple[Picture, Reading]]:
        """Pictures from the newest at or before `begin`; returns the last one and the reading it came from.

        A seek may land too late (an index that knows decoding times only, a key frame that is damaged): then it is
        tried again from further and further back, at last from the start.
        """
        back = Fraction(0)
        while True:
            with closing(self._reading_from(begin - back, report, threads)) as reading:
                reading.counted_to = None if counted_to is None else self._stamp(counted_to)
                pictures = (self._picture(reading, *found) for found in reading.frames())
                picture = next(pictures, None)
                if picture is not None and (picture.time <= begin or back >= begin):
                    yield picture
                    for picture in pictures:
                        yield picture
                    return picture, reading
            if back >= begin:
                raise SourceError(f"{self.info.name}: the file changed while it was read", FETCH_AGAIN)
            back = 2 * back + 1

    def _reading_from(self, begin: Fraction, report: Report, threads: str) -> Reading:
        """A reading that starts at a key frame near `begin`, at the first packet when that is not after zero."""
        reading = Reading(self._place, report, threads)
        if begin > 0:
            if reading.seeks_exactly:
                reading.seek(self._stamp(begin))
            else:
                reading.skipped = self._key_packet(self._stamp(begin))
        return reading

    def _key_packet(self, stamp: int) -> int:
        """Number of the last key packet at or before `stamp`, counted from the first packet; nothing is decoded."""
        found = 0
        with closing(Reading(self._place, Report())) as reading:
            for number, packet in enumerate(reading.packets()):
                shown = packet.dts if packet.pts is None else packet.pts
                if packet.is_keyframe and shown is not None and shown <= stamp:
                    found = number
                if packet.dts is not None and packet.dts > stamp:
                    break
        return found

    def _stamp(self, time: Fraction) -> int:
        return self._origin + math.floor(time / self._time_base)

    def _picture(self, reading: Reading, stamp: int, duration: int, frame: VideoFrame) -> Picture:
        time = (stamp - self._origin) * self._time_base
        return Picture(time, duration * self._time_base, partial(self._render, reading, frame))

    def _render(self, reading: Reading, frame: VideoFrame, max_side: int | None) -> NDArray[np.uint8]:
        return self._orientation(frame).apply(reading.to_rgb(frame, max_side))

    def _orientation(self, frame: VideoFrame) -> Orientation:
        return Orientation.of(frame) if self._forced is None else self._forced

    def _early_end(self, last: Picture, report: Report) -> EarlyEnd | None:
        end, stated = last.time + last.duration, self._promised
        missing = Fraction(0) if stated is None or report.jumps else stated - end
        if not report.gave_up and missing <= max(_EARLY_S, 2 * last.duration):
            return None
        return EarlyEnd(float(end), None if stated is None else float(stated))
