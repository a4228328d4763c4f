"""Where pictures come from. The only file of the product that imports `av` (PyAV, Python bindings of libav).

Time is always a timestamp of the container times its time base, kept as a fraction and counted from the first *shown*
frame; frame rates and frame counts of the header are hints for display only. A picture leaves here as a viewer would
see it: turned, unmirrored and with square pixels. Its size may change inside one film where the film does so.
"""

from __future__ import annotations

import codecs
import math
import os
import re
import stat
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import cast

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.format import Flags
from av.packet import Packet
from av.stream import Disposition, Stream
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from hermes.errors import SourceError, UsageError
from hermes.frames import Frame
from hermes.timecode import format_time, parse

_ACCEPTED = "give the path of one video file (MP4, MOV, MKV, WebM, AVI, MPEG-TS, ...)"
_FETCH_AGAIN = "download or record it again"

_RESOLUTION = Fraction(1, 2000)
"""Moments within half a millisecond are one moment: Matroska rounds its times to milliseconds, and so do times that we
print. Without it, sampling a 30-per-second Matroska film at 30 per second would lose the frames rounded upwards."""

_FAR_S = 10**9  # a moment beyond every film, small enough for the 64-bit timestamps of libav
_LEAP_S, _LEAP_STEPS = 10, 10  # a hole longer than both is a new segment, in a format that may leap
_JITTER_S = Fraction(1, 10)  # a smaller step back is a clumsy muxer, not a new segment
_MOST_BAD_PACKETS = 100  # in a row, before a reading gives up
_EARLY_S = Fraction(1, 2)  # a film may miss its stated length by this much
_LEAST_PIXEL_ASPECT = Fraction(1, 10)  # beyond it, and beyond its inverse, the header is wrong

_EXACT_SEEK = {"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"}  # times do not depend on the packets before
_WITHOUT_PTS = {"avi"}  # stores decoding times only; the presentation times libav guesses are wrong with B-frames


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """What is known of a source before it is played.

    Attributes:
        name: as the user wrote it, made printable.
        width, height: of the shown picture in square pixels, after rotation.
        duration_s: stated length in seconds, None when unknown. It may be wrong: see `Report.ended_early`.
        fps: frames per second, a hint for display only; None when absent or outside (0, 1000].
        codec: name of the video codec.
        rotation: degrees clockwise that the stored picture is turned for showing, after mirroring: 0, 90, 180 or 270.
        mirrored: whether the stored picture is mirrored left to right for showing.
    """

    name: str
    width: int
    height: int
    duration_s: float | None
    fps: float | None
    codec: str
    rotation: int = 0
    mirrored: bool = False


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """A film that stopped before its stated length, or whose remaining packets are all damaged."""

    end_s: float
    stated_s: float | None

    def __str__(self) -> str:
        short = "" if self.stated_s is None else f", {self.stated_s - self.end_s:.1f} s short of its stated length"
        return f"stream ended at {format_time(self.end_s)}{short}"


@dataclass(slots=True)
class Report:
    """What one `Source.frames` pass met on its way; it grows while frames are taken.

    Attributes:
        damaged_packets: packets that could not be read or decoded; time stays true across the hole.
        jumps: places where timestamps ran backwards or leapt; time was made continuous there.
        untimed: the format has no timestamps at all, so time is the sum of stated frame durations.
        gave_up: too many packets in a row were damaged, so the rest was not tried.
        ended_early: set once the pass has reached an end that came too early; the frames before it are good.
    """

    damaged_packets: int = 0
    jumps: int = 0
    untimed: bool = False
    gave_up: bool = False
    ended_early: EarlyEnd | None = None

    @property
    def notices(self) -> list[str]:
        """One line for each kind of trouble, for the user."""
        notices = []
        if self.untimed:
            notices.append("no timestamps in this format; time is counted from its stated frame rate")
        if self.jumps:
            notices.append(f"{_counted(self.jumps, 'jump')} in the timestamps; time was made continuous")
        if self.damaged_packets:
            notices.append(f"{_counted(self.damaged_packets, 'damaged packet')} skipped")
        if self.ended_early:
            notices.append(str(self.ended_early))
        return notices


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A decoded picture that is converted to RGB only when it is wanted.

    Attributes:
        time: seconds after the first shown picture.
        duration: seconds that it stays, as far as the source knows.
        render: gives (height, width, 3) uint8 for a limit of the longer side in pixels, or None for full size.
    """

    time: Fraction
    duration: Fraction
    render: Callable[[int | None], NDArray[np.uint8]]

    def covers(self, moment: Fraction) -> bool:
        """Whether a last picture is still on show at a moment not before it."""
        return moment <= self.time + _RESOLUTION or moment + _RESOLUTION < self.time + self.duration

    def frame(self, max_side: int | None) -> Frame:
        return Frame(float(self.time), self.render(max_side))


class Source(ABC):
    """A film, camera or list of arrays. A new kind sets `info` and gives `pictures`; sampling and seeking are here.

    Attributes:
        info: what is known before playing.
        report: what the newest `frames` pass met.
    """

    info: SourceInfo

    def __init__(self) -> None:
        self.report = Report()

    @abstractmethod
    def pictures(self, begin: Fraction, report: Report) -> Generator[Picture, None, None]:
        """All pictures in order of showing, from the newest at or before `begin` (else the first) to the end.

        Times must rise. Trouble on the way is written into `report`.
        """

    def frames(
        self, fps: float | None = None, start_s: float = 0.0, end_s: float | None = None, *, max_side: int | None = None
    ) -> Generator[Frame, None, None]:
        """Frames of the window [start_s, end_s).

        With `fps`, tick k is the moment k / fps and takes the newest frame at or before it; a frame is taken once, so
        a rate above the source's takes every frame. The last tick is the last one before the end of the film. Ticks do
        not move with the window: `start_s=T` gives exactly the frames that the whole film gives for ticks at or after
        T, and windows that touch share no frame.

        Args:
            fps: ticks per second of media time; None takes every frame, each at its own time.
            start_s: ticks before it are left out.
            end_s: ticks at or after it are left out; None or `math.inf` plays to the end.
            max_side: an optimisation the caller may ask for: the longer side in pixels beyond which a picture may be
                scaled down while it is converted (a model that looks at 48 pixels needs no 4K array).

        Raises:
            UsageError: `fps` is not a positive number, or a time is not a number.
        """
        if fps is not None and not 0 < fps < math.inf:
            raise UsageError(f"{fps:g} frames per second is not a sampling rate", "give a positive number, such as 0.5")
        rate = None if fps is None else Fraction(str(float(fps)))
        window = _moment(start_s), _moment(math.inf if end_s is None else end_s)
        self.report = Report()
        return self._sampled(rate, *window, self.report, max_side)

    def _sampled(
        self, rate: Fraction | None, start: Fraction, end: Fraction, report: Report, max_side: int | None
    ) -> Generator[Frame, None, None]:
        # A frame is due at the first tick at or after it, and the newest of those due at one tick is taken.
        with closing(self.pictures(start - _RESOLUTION, report)) as pictures:
            for picture, following in pairwise(chain(pictures, (None,))):
                assert picture is not None  # None only follows the last one
                tick = _tick(picture.time, rate)
                if tick + _RESOLUTION >= end:
                    return
                is_taken = picture.covers(tick) if following is None else _tick(following.time, rate) != tick
                if is_taken and tick + _RESOLUTION >= start:
                    yield picture.frame(max_side)

    def frame_at(self, time_s: float, *, max_side: int | None = None) -> Frame:
        """The frame on show at `time_s`: the newest at or before it. Leaves `report` alone.

        Before the first frame it is the first one; up to one frame past the end, and for `math.inf`, the last one.

        Raises:
            UsageError: `time_s` lies further past the end, or is not a number.
        """
        moment = _moment(time_s)
        newest: Picture | None = None
        with closing(self.pictures(moment, Report())) as pictures:
            for picture in pictures:
                if newest is not None and picture.time > moment + _RESOLUTION:
                    return newest.frame(max_side)
                newest = picture
        assert newest is not None  # no source is empty
        end = newest.time + newest.duration
        if time_s < math.inf and moment > end + newest.duration + _RESOLUTION:
            hint = "give a time before that, or 'end' for the last frame"
            raise UsageError(f"{self.info.name} ends at {format_time(float(end))}", hint)
        return newest.frame(max_side)


class FrameList(Source):
    """Frames in memory, for tests and evaluation. `max_side` does not scale them.

    Args:
        frames: at least one, with rising times; the first need not be at zero.
        name: what messages call it.

    Raises:
        SourceError: there is no frame, or times do not rise.
    """

    def __init__(self, frames: Sequence[Frame], name: str = "frames in memory") -> None:
        super().__init__()
        if not frames:
            raise SourceError(f"{name}: no frames")
        gaps = [Fraction(later.time_s) - Fraction(earlier.time_s) for earlier, later in pairwise(frames)]
        if any(gap <= 0 for gap in gaps):
            raise SourceError(f"{name}: frame times do not rise")
        self._frames = tuple(frames)
        self._durations = (*gaps, gaps[-1] if gaps else Fraction(0))  # the last one stays as long as the one before it
        length = float(Fraction(frames[-1].time_s) + self._durations[-1])
        height, width, _ = frames[0].rgb.shape
        self.info = SourceInfo(name, width, height, length, _rate_hint(1 / float(gaps[0]) if gaps else None), "rgb24")

    @classmethod
    def from_arrays(cls, arrays: Sequence[NDArray[np.uint8]], fps: float, name: str = "frames in memory") -> FrameList:
        """Pictures of shape (height, width, 3), uint8, the first at zero and `fps` of them a second."""
        return cls([Frame(number / fps, rgb) for number, rgb in enumerate(arrays)], name)

    def pictures(self, begin: Fraction, report: Report) -> Generator[Picture, None, None]:
        first = max((number for number, frame in enumerate(self._frames) if frame.time_s <= begin), default=0)
        for frame, duration in list(zip(self._frames, self._durations, strict=True))[first:]:
            yield Picture(Fraction(frame.time_s), duration, partial(_unscaled, frame.rgb))


def _unscaled(rgb: NDArray[np.uint8], max_side: int | None) -> NDArray[np.uint8]:
    return rgb


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

    def apply(self, rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Turn a picture (height, width, 3)."""
        return np.ascontiguousarray(np.rot90(rgb[:, ::-1] if self.mirrored else rgb, -self.clockwise // 90))


class VideoFile(Source):
    """A film, or a still image (one frame at time zero), on the local disk.

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
        path: of a regular file.
        rotate: degrees clockwise (0, 90, 180, 270) instead of what the file says; None follows the file.

    Raises:
        SourceError: the file cannot be opened, is no video, or holds no picture that can be decoded.
        UsageError: `rotate` is no quarter turn.
    """

    def __init__(self, path: str | Path, *, rotate: int | None = None) -> None:
        super().__init__()
        if rotate not in (None, 0, 90, 180, 270):
            raise UsageError(f"pictures cannot be turned by {rotate} degrees", "give 0, 90, 180 or 270")
        self._path = Path(path)
        self._forced = None if rotate is None else Orientation(rotate)
        with closing(_Reading(self._path, Report())) as reading:
            first = next(reading.frames(), None)
            if first is None:
                raise SourceError(f"{reading.name}: no picture could be decoded", _FETCH_AGAIN)
            self._origin, _, frame = first
            self._time_base = reading.time_base
            length, self._promised = reading.lengths(self._origin)
            self.info = self._describe(reading, frame, length)

    def _describe(self, reading: _Reading, frame: VideoFrame, length: Fraction | None) -> SourceInfo:
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
    ) -> Generator[Picture, None, tuple[Picture, _Reading]]:
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
                raise SourceError(f"{self.info.name}: the file changed while it was read", _FETCH_AGAIN)
            back = 2 * back + 1

    def _reading_from(self, begin: Fraction, report: Report, threads: str) -> _Reading:
        """A reading that starts at a key frame near `begin`, at the first packet when that is not after zero."""
        reading = _Reading(self._path, report, threads)
        if begin > 0:
            if reading.seeks_exactly:
                reading.seek(self._stamp(begin))
            else:
                reading.skipped = self._key_packet(self._stamp(begin))
        return reading

    def _key_packet(self, stamp: int) -> int:
        """Number of the last key packet at or before `stamp`, counted from the first packet; nothing is decoded."""
        found = 0
        with closing(_Reading(self._path, Report())) as reading:
            for number, packet in enumerate(reading.packets()):
                shown = packet.dts if packet.pts is None else packet.pts
                if packet.is_keyframe and shown is not None and shown <= stamp:
                    found = number
                if packet.dts is not None and packet.dts > stamp:
                    break
        return found

    def _stamp(self, time: Fraction) -> int:
        return self._origin + math.floor(time / self._time_base)

    def _picture(self, reading: _Reading, stamp: int, duration: int, frame: VideoFrame) -> Picture:
        time = (stamp - self._origin) * self._time_base
        return Picture(time, duration * self._time_base, partial(self._render, reading, frame))

    def _render(self, reading: _Reading, frame: VideoFrame, max_side: int | None) -> NDArray[np.uint8]:
        return self._orientation(frame).apply(reading.to_rgb(frame, max_side))

    def _orientation(self, frame: VideoFrame) -> Orientation:
        matrix = frame.side_data.get("DISPLAYMATRIX")
        if self._forced is not None or matrix is None:
            return self._forced or Orientation()
        return Orientation.from_matrix(np.frombuffer(cast("bytes", matrix), np.int32).reshape(3, 3))

    def _early_end(self, last: Picture, report: Report) -> EarlyEnd | None:
        end, stated = last.time + last.duration, self._promised
        missing = Fraction(0) if stated is None or report.jumps else stated - end
        if not report.gave_up and missing <= max(_EARLY_S, 2 * last.duration):
            return None
        return EarlyEnd(float(end), None if stated is None else float(stated))


class _Reading:
    """One pass over a file: repaired packets, and the frames decoded from them.

    Attributes:
        skipped: number of packets to read without decoding them.
        counted_to: damage to packets shown at or before this stamp is not counted.
        damage_at_newest: damaged packets counted when the newest frame came out.
    """

    def __init__(self, path: Path, report: Report, threads: str = "AUTO") -> None:
        self.name = _printable(str(path))
        self.container = _open(path, self.name)
        self.stream = _film(self.container, self.name)
        self.stream.thread_type = threads
        self.skipped = 0
        self.counted_to: int | None = None
        self.damage_at_newest = 0
        self._report = report
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
        """Packets of the film with continuous times, past those that cannot be read."""
        while self._bad_in_a_row < _MOST_BAD_PACKETS:
            with suppress(FFmpegError):
                for packet in self.container.demux(self.stream):
                    self._clock.repair(packet)
                    self._report.jumps = self._clock.jumps
                    yield packet
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
        rgb = self._reformatter.reformat(
            frame, width, height, "rgb24", interpolation=Interpolation.BICUBIC
        ).to_ndarray()
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
        return _rate_hint(float(min(rates))) if rates else None


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


def open_source(spec: str | Path) -> Source:
    """The source that a user names on the command line: today the path of one local video file.

    Raises:
        SourceError: it names a camera, an address, standard input or a pattern, or `VideoFile` refuses it.
    """
    kind = None if isinstance(spec, Path) else _other_kind(spec)
    if kind is not None:
        raise SourceError(f"the source is {kind}, and only video files can be played", _ACCEPTED)
    return VideoFile(spec)


def _other_kind(spec: str) -> str | None:
    """What `spec` means when it is not a path. An address is not repeated: it may hold a password."""
    if spec == "-":
        return "standard input"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", spec):
        return "a network address"
    if spec.isdecimal() or spec.startswith("camera:"):
        return f"a camera ({_printable(spec)}; a file of that name is ./{_printable(spec)})"
    if re.search(r"[*?\[]", spec) and not os.path.lexists(spec):
        return f"a pattern ({_printable(spec)})"
    return None


def _open(path: Path, name: str) -> InputContainer:
    head = _head(path, name)
    try:
        # "file:" keeps a colon in a name from being taken for a protocol.
        return av.open(f"file:{path}", "r", metadata_errors="replace")
    except FFmpegError as error:
        raise _unreadable(path, name, head) from error


def _head(path: Path, name: str) -> bytes:
    """The first bytes of a regular file that is not empty."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise SourceError(f"{name} is a folder", _ACCEPTED)
        if not stat.S_ISREG(mode):  # reading a named pipe would wait for ever
            raise SourceError(f"{name} is not a regular file", _ACCEPTED)
        with path.open("rb") as file:
            head = file.read(4096)
    except FileNotFoundError:
        raise SourceError(f"{name}: no such file", "check the path") from None
    except PermissionError:
        raise SourceError(f"{name}: no permission to read it", "check its owner and mode") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError(f"{name} cannot be read: {reason}", "check the path") from None
    if not head:
        raise SourceError(f"{name}: file is empty", _FETCH_AGAIN)
    return head


def _unreadable(path: Path, name: str, head: bytes) -> SourceError:
    """Why libav does not know this file, as far as its first bytes tell."""
    if head.lstrip(codecs.BOM_UTF8 + b" \t\r\n").lower().startswith((b"<!doctype html", b"<html")):
        return SourceError(
            f"{name}: this is an HTML page, not a video", "fetch the video itself, not the page about it"
        )
    if head[4:8] in (b"ftyp", b"mdat", b"moov", b"free", b"skip", b"wide"):
        if not _has_index(path):
            return SourceError(f"{name}: MP4 index (moov) missing, the file is incomplete", _FETCH_AGAIN)
        return SourceError(f"{name}: MP4 index (moov) damaged", _FETCH_AGAIN)
    if _is_text(head):
        return SourceError(f"{name}: this is a text file, not a video", _ACCEPTED)
    return SourceError(f"{name}: not a video that can be read; its data are damaged or of another kind", _ACCEPTED)


def _has_index(path: Path) -> bool:
    """Whether an MP4 file holds its whole `moov` box (ISO/IEC 14496-12, 4.2: size, type, perhaps a 64-bit size)."""
    end, position = path.stat().st_size, 0
    with path.open("rb") as file:
        while position + 8 <= end:
            file.seek(position)
            length, kind = struct.unpack(">I4s", file.read(8))
            if length == 1:
                length = int.from_bytes(file.read(8), "big")
            elif length == 0:
                length = end - position
            if kind == b"moov":
                return bool(position + length <= end)
            position += max(length, 8)
    return False


def _is_text(head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)


def _film(container: InputContainer, name: str) -> VideoStream:
    """The best video stream that is no cover picture. Matroska drops that mark, so the mark alone is not enough."""
    films = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not films:
        raise SourceError(f"{name} has no video stream ({_streams(container)})", _ACCEPTED)
    best = container.streams.best("video")
    film = next((film for film in films if film is best), films[0])
    if film.codec_context is None:
        raise SourceError(f"{name}: no decoder for its video codec", "convert it, for example to H.264")
    return film


def _streams(container: InputContainer) -> str:
    """`1 audio stream: aac; 2 subtitle streams: ass, srt`."""
    codecs_by_kind: dict[str, list[str]] = {}
    for stream in container.streams:
        kind = "cover picture" if stream.type == "video" else f"{stream.type} stream"
        context = getattr(stream, "codec_context", None)
        codecs_by_kind.setdefault(kind, []).append("unknown" if context is None else context.name)
    listed = [f"{_counted(len(names), kind)}: {', '.join(names)}" for kind, names in codecs_by_kind.items()]
    return "; ".join(listed) or "no streams"


def _duration_tag(stream: Stream) -> Fraction | None:
    """Length of one Matroska stream, as muxers write it beside that of the whole file: `00:00:12.000000000`."""
    try:
        return Fraction(str(parse(stream.metadata["DURATION"].strip("\0")).value))
    except (KeyError, UsageError):
        return None


def _has_flag(container: InputContainer, flag: Flags) -> bool:
    return bool(container.format.flags & cast("int", flag.value))


def _moment(time_s: float) -> Fraction:
    if math.isnan(time_s):
        raise UsageError("nan is not a time")
    return Fraction(min(max(time_s, -_FAR_S), _FAR_S))


def _tick(time: Fraction, rate: Fraction | None) -> Fraction:
    """The moment a frame is due: the first tick at or after it, or its own time without a rate."""
    return time if rate is None else math.ceil((time - _RESOLUTION) * rate) / rate


def _rate_hint(rate: float | None) -> float | None:
    return rate if rate is not None and 0 < rate <= 1000 else None


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _printable(text: str) -> str:
    """A file name as one line that any terminal can show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
