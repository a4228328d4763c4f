"""The course of a run through its film: what its log says was skipped, and the film without that."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from hermes.errors import UsageError
from hermes.frames import Frame
from hermes.sources import Feed
from hermes.timecode import format_time
from hermes_cli.film import Film
from hermes_cli.player import HALF_MILLISECOND_S

if TYPE_CHECKING:
    from hermes.engine import StreamEngine

Record = Mapping[str, Any]

_SEEK = "seek"  # type of the record


@dataclass(frozen=True)
class Skip:
    """A stretch that was never seen: the frames between two moments, both excluded."""

    after_s: float
    until_s: float

    def __contains__(self, time_s: float) -> bool:
        return self.after_s + HALF_MILLISECOND_S < time_s < self.until_s - HALF_MILLISECOND_S

    def __str__(self) -> str:
        return f"{format_time(max(0.0, self.after_s))} to {format_time(self.until_s)}"


def seek_record(engine: StreamEngine, until_s: float) -> dict[str, Any]:
    """The memory stays as it stands, and the film goes on at a moment (see `hermes.sessions.Log`)."""
    return {"type": _SEEK, "at": engine.now_s, "frames": engine.frames_seen, "until": until_s}


def skips(log: Iterable[Record]) -> tuple[Skip, ...]:
    """What a session has skipped, in order."""
    found: tuple[Skip, ...] = ()
    for record in log:
        if record.get("type") == _SEEK:
            found = skips_after(found, record)
    return found


def skips_after(earlier: tuple[Skip, ...], record: Record) -> tuple[Skip, ...]:
    """What is skipped once the run has moved: of what lies behind its memory nothing is known any more."""
    after_s = -math.inf if record["at"] is None else record["at"]
    kept = tuple(skip for skip in earlier if skip.after_s < after_s)
    is_gap = record["until"] - after_s > HALF_MILLISECOND_S
    return (*kept, Skip(after_s, record["until"])) if is_gap else kept


def check_seen(skips: Iterable[Skip], time_s: float) -> None:
    """Raise `UsageError` for a moment that was skipped."""
    for skip in skips:
        if time_s in skip:
            hint = "hermes ask with the video itself and --at plays it from its start"
            raise UsageError(f"{format_time(time_s)} was not seen: {skip} was skipped", hint)


@dataclass(frozen=True)
class CutFilm(Film):
    """A film of which stretches are skipped.

    Attributes:
        skips: in order.
    """

    skips: tuple[Skip, ...] = ()

    @classmethod
    def of(cls, film: Film, skips: tuple[Skip, ...]) -> CutFilm:
        """The same film, but with these stretches skipped and no others."""
        whole = {field.name: getattr(film, field.name) for field in fields(Film)}
        return cls(**whole, skips=skips)

    def feed(self, after_s: float = -math.inf, ahead: int = 0) -> Feed:
        """As `Film.feed`; a stretch that begins there is not even decoded."""
        if self.source.info.is_live:
            return super().feed(after_s, ahead)
        begin_s = max(self.start_s, after_s)
        for skip in self.skips:
            if skip.after_s <= begin_s < skip.until_s:
                begin_s = max(begin_s, skip.until_s - 1 / self.fps)  # a frame may be taken a little after its own time
        return Feed(self.source, self._shown(self.source.frames(self.fps, begin_s, self.end_s), after_s), ahead=ahead)

    def _shown(self, frames: Generator[Frame, None, None], after_s: float) -> Generator[Frame, None, None]:
        with closing(frames):
            for frame in frames:
                if frame.time_s > after_s and not any(frame.time_s in skip for skip in self.skips):
                    yield frame

    def check_seen(self, time_s: float) -> None:
        """Raise `UsageError` for a moment that was skipped."""
        check_seen(self.skips, time_s)
