"""What every source of pictures is, and sampling, which is the same for all of them.

Time is always a timestamp times its time base, kept as a fraction and counted from the first *shown* frame.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain, pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hermes.errors import SourceError, UsageError
from hermes.frames import Frame
from hermes.timecode import format_time

_RESOLUTION = Fraction(1, 2000)
"""Moments within half a millisecond are one moment: Matroska rounds its times to milliseconds, and so do times that we
print. Without it, sampling a 30-per-second Matroska film at 30 per second would lose the frames rounded upwards."""

_FAR_S = 10**9  # a moment beyond every film, small enough for the 64-bit timestamps of libav


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
        is_live: whether it goes on by itself, and cannot be played twice.
    """

    name: str
    width: int
    height: int
    duration_s: float | None
    fps: float | None
    codec: str
    rotation: int = 0
    mirrored: bool = False
    is_live: bool = False


State = Literal["playing", "connecting", "live", "stalled", "reconnecting", "ended"]


@dataclass(frozen=True, slots=True)
class Health:
    """How a source is doing.

    Attributes:
        state: `playing` is that of a film until it has ended; the others are those of a live source.
        fps: pictures that came a second, lately; None when that cannot be said.
        silent_s: how long none has come, where it is live.
        reconnects: how often a lost connection was made again.
        attempt, attempts: while reconnecting, which attempt is next, and how many are allowed (None: any number).
    """

    state: State
    fps: float | None = None
    silent_s: float | None = None
    reconnects: int = 0
    attempt: int = 0
    attempts: int | None = 0


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
        cut_short: films of a list that ended too early, so that the next one began at once.
        ended_early: set once the pass has reached an end that came too early; the frames before it are good.
    """

    damaged_packets: int = 0
    jumps: int = 0
    untimed: bool = False
    gave_up: bool = False
    cut_short: int = 0
    ended_early: EarlyEnd | None = None

    @property
    def notices(self) -> list[str]:
        """One line for each kind of trouble, for the user."""
        notices = []
        if self.untimed:
            notices.append("no timestamps in this format; time is counted from its stated frame rate")
        if self.jumps:
            notices.append(f"{counted(self.jumps, 'jump')} in the timestamps; time was made continuous")
        if self.damaged_packets:
            notices.append(f"{counted(self.damaged_packets, 'damaged packet')} skipped")
        if self.cut_short:
            notices.append(f"{counted(self.cut_short, 'video')} ended early; the next one followed at once")
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
    """A film, camera, stream or list of arrays. A new kind sets `info` and gives `pictures`; sampling and seeking are here.

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

    def health(self) -> Health:
        """How it is doing; may be asked from any thread."""
        return Health("playing")

    def news(self) -> list[str]:
        """What the user should know, once each; one thread may ask."""
        return []

    def stop(self) -> None:  # noqa: B027 - most sources never wait
        """Let a pass that waits for pictures come to its end, from any thread; a live source cannot be played after it."""

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

    def measured_length(self) -> Fraction:
        """Seconds until the last picture is over, by looking at it and not at what is stated; no live source has one."""
        end = Fraction(0)
        with closing(self.pictures(Fraction(_FAR_S), Report())) as pictures:
            for picture in pictures:
                end = picture.time + picture.duration
        return end


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
        self.info = SourceInfo(name, width, height, length, rate_hint(1 / float(gaps[0]) if gaps else None), "rgb24")

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


def _moment(time_s: float) -> Fraction:
    if math.isnan(time_s):
        raise UsageError("nan is not a time")
    return Fraction(min(max(time_s, -_FAR_S), _FAR_S))


def _tick(time: Fraction, rate: Fraction | None) -> Fraction:
    """The moment a frame is due: the first tick at or after it, or its own time without a rate."""
    return time if rate is None else math.ceil((time - _RESOLUTION) * rate) / rate


def rate_hint(rate: float | None) -> float | None:
    """Frames per second for display, or None when that makes no sense."""
    return rate if rate is not None and 0 < rate <= 1000 else None


def counted(number: int, noun: str) -> str:
    """`1 packet`, `2 packets`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
