"""The part of a source that is played, and moments of it as a user writes them."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

from hermes.errors import UsageError
from hermes.frames import Frame
from hermes.sources import Source, open_source
from hermes.timecode import TimePoint, format_time, parse, resolve


@dataclass(frozen=True)
class Film:
    """A source, its sampling rate and the window of it that is played.

    Attributes:
        source: where the frames come from.
        fps: frames taken per second of media time.
        start_s, end_s: the window [start_s, end_s); `end_s` is infinite for the whole rest.
    """

    source: Source
    fps: float
    start_s: float
    end_s: float

    @classmethod
    def open(cls, source: str, fps: float, start: str, end: str) -> Film:
        """Open a source and check the window against it.

        Raises:
            SourceError: the source cannot be opened or shown.
            UsageError: a time is unreadable or outside the source, the window is empty, or `fps` is no sampling rate.
        """
        first, last = parse(start), parse(end)
        opened = open_source(source)
        opened.frames(fps)  # refuses a bad sampling rate
        whole = cls(opened, fps, 0.0, math.inf)
        film = cls(opened, fps, max(0.0, whole._seconds(first)), whole._seconds(last))
        if film.start_s >= film.end_s:
            raise UsageError(f"nothing lies between --start {start} and --end {end}", "let --end be later than --start")
        film._check_exists(film.start_s)
        return film

    def stop_s(self, last_s: float = math.inf) -> float | None:
        """Where playing up to `last_s` will end, as far as the source says; None when it does not."""
        duration = self.source.info.duration_s
        stop_s = min(math.inf if duration is None else duration, self.end_s, last_s)
        return None if math.isinf(stop_s) else stop_s

    def frames(self, after_s: float = -math.inf) -> Generator[Frame, None, None]:
        """The sampled frames of the window that come after a moment; the same ones, wherever it lies."""
        with closing(self.source.frames(self.fps, max(self.start_s, after_s), self.end_s)) as frames:
            yield from (frame for frame in frames if frame.time_s > after_s)

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
        if self.source.info.duration_s is None:
            self._check_exists(time_s)

    def _check_exists(self, time_s: float) -> None:
        if math.inf > time_s > (self.source.info.duration_s or 0.0):  # the stated length is only a promise: look
            self.source.frame_at(time_s)

    def _seconds(self, point: TimePoint) -> float:
        info = self.source.info
        return resolve(point, duration_s=info.duration_s, fps=self.fps, name=info.name)
