"""The part of a source that is played, and moments of it as a user writes them."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace

from hermes.errors import UsageError
from hermes.frames import Frame
from hermes.sources import Buffering, Connecting, Feed, Source, SourceInfo, open_source
from hermes.sources.daemon import in_daemon
from hermes.timecode import TimePoint, format_time, parse, resolve


@dataclass(frozen=True)
class Pacing:
    """How fast a source goes, and what becomes of frames for which the model is too slow.

    Attributes:
        speed: media seconds per second; None is as fast as frames come.
        buffering: of a live source: its newest frame, or all as long as there is room.
    """

    speed: float | None = None
    buffering: Buffering = "latest"

    def __post_init__(self) -> None:
        if self.speed is not None and not self.speed > 0:
            raise UsageError(f"nothing can be played at a speed of {self.speed:g}", "give a positive number, such as 2")

    def check(self, info: SourceInfo) -> None:
        """Raise `UsageError` for a source that cannot be played at this speed."""
        if info.is_live and self.speed not in {None, 1.0}:
            raise UsageError(f"{info.name} is live: it goes at its own speed", "leave --speed out")


@dataclass(frozen=True)
class Film:
    """A source, its sampling rate and the window of it that is played.

    Attributes:
        source: where the frames come from.
        fps: frames taken per second of media time.
        start_s, end_s: the window [start_s, end_s); `end_s` is infinite for the whole rest.
        pacing: how fast it goes.
    """

    source: Source
    fps: float
    start_s: float
    end_s: float
    pacing: Pacing = Pacing()

    @classmethod
    def open(
        cls,
        source: str,
        fps: float,
        start: str,
        end: str,
        pacing: Pacing = Pacing(),
        connecting: Connecting | None = None,
    ) -> Film:
        """Open a source and check the window against it.

        Raises:
            SourceError: the source cannot be opened or shown.
            UsageError: a time is unreadable or outside the source, the window is empty, `fps` is no sampling rate, or the
                source cannot be played at that speed.
        """
        first, last = parse(start), parse(end)
        opened = open_source(source, connecting)
        try:
            opened.frames(fps)  # refuses a bad sampling rate
            pacing.check(opened.info)
            whole = cls(opened, fps, 0.0, math.inf)
            film = cls(opened, fps, max(0.0, whole._seconds(first)), whole._seconds(last), pacing)
            if film.start_s >= film.end_s:
                raise UsageError(f"nothing lies between --start {start} and --end {end}", "let --end be later than --start")
            film._check_exists(film.start_s)
        except UsageError:
            opened.stop()
            raise
        return film

    def stop_s(self, last_s: float = math.inf) -> float | None:
        """Where playing up to `last_s` will end, as far as the source says; None when it does not."""
        duration = self.source.info.duration_s
        stop_s = min(math.inf if duration is None else duration, self.end_s, last_s)
        return None if math.isinf(stop_s) else stop_s

    @property
    def speed(self) -> float:
        """Media seconds per second that it is held back to; infinite for as fast as frames come."""
        return math.inf if self.pacing.speed is None or self.source.info.is_live else self.pacing.speed

    def feed(self, after_s: float = -math.inf, ahead: int = 0) -> Feed:
        """The sampled frames of the window that come after a moment; of a film the same ones, wherever it lies.

        What is live begins now: its time goes on from that moment.

        Args:
            ahead: see `Feed`.
        """
        if self.source.info.is_live:
            begin_s = 0.0 if math.isinf(after_s) else after_s + 1 / self.fps
            frames = self.source.frames(self.fps, max(0.0, self.start_s - begin_s), self.end_s - begin_s)
            return Feed(self.source, _later(frames, begin_s), self.pacing.buffering)
        frames = self.source.frames(self.fps, max(self.start_s, after_s), self.end_s)
        return Feed(self.source, _after(frames, after_s), ahead=ahead)

    def moment(self, written: str) -> float:
        """Seconds of a time as the user wrote it, infinite for `end`.

        Raises:
            UsageError: the time is unreadable, past the end of the window, or past the end of a source of known length.
        """
        time_s = self._seconds(parse(written))
        if self.end_s < time_s < math.inf:
            raise UsageError(f"{written} is after --end {format_time(self.end_s)}", "ask about a time that is played")
        if self.source.info.duration_s is not None:
            self._check_exists(time_s)
        return time_s

    def check_reached(self, time_s: float) -> None:
        """After playing: raises `UsageError` if a source of unknown length turned out to end before `time_s`."""
        if self.source.info.duration_s is None and not self.source.info.is_live:
            self._check_exists(time_s)

    def _check_exists(self, time_s: float) -> None:
        is_after_all = math.inf > time_s > (self.source.info.duration_s or 0.0)
        if is_after_all and not self.source.info.is_live:  # the stated length is only a promise: look
            in_daemon(lambda: self.source.frame_at(time_s)).result()

    def _seconds(self, point: TimePoint) -> float:
        info = self.source.info
        playhead_s = 0.0 if info.is_live else None  # what is live begins now
        return resolve(point, duration_s=info.duration_s, playhead_s=playhead_s, fps=self.fps, name=info.name)


def _after(frames: Generator[Frame, None, None], after_s: float) -> Generator[Frame, None, None]:
    with closing(frames):
        yield from (frame for frame in frames if frame.time_s > after_s)


def _later(frames: Generator[Frame, None, None], by_s: float) -> Generator[Frame, None, None]:
    with closing(frames):
        yield from (replace(frame, time_s=frame.time_s + by_s) for frame in frames)
