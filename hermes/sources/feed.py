"""Frames decoded ahead, in a thread of their own, so that a source neither waits for the model nor floods it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from threading import Condition
from typing import Literal

from hermes.frames import Frame
from hermes.sources.base import Report, Source, State
from hermes.sources.daemon import in_daemon
from hermes.sources.rates import Rate

Buffering = Literal["latest", "all"]

_AHEAD = 4  # frames of a film, whatever their size
_ROOM_BYTES = 2**27  # for more of them
_BACKLOG = 32  # frames of a live source that wait where all are wanted
_PULSE_S = 0.5


@dataclass(frozen=True)
class Pulse:
    """How a source and its frames are doing, about twice a second and whenever the state changes.

    Attributes:
        state: of the source (`hermes.sources.base.Health`).
        source_fps: pictures that a live source gave a second lately; what a film states. None when unknown.
        sampled_fps: frames taken in a second, lately; None when that cannot be said.
        dropped: sampled frames that the model was too slow for.
        lag_s: how old the newest frame taken was when it was taken; None for a film.
        silent_s, reconnects, attempt, attempts: as in `Health`.
    """

    state: State
    source_fps: float | None
    sampled_fps: float | None
    dropped: int
    lag_s: float | None
    silent_s: float | None
    reconnects: int
    attempt: int
    attempts: int | None


@dataclass(frozen=True)
class _Arrived:
    frame: Frame
    report: Report
    at_s: float


class Feed:
    """One pass over a source. A film waits until there is room; of a live source the oldest frame in the way is dropped.

    `Source.report` is what the frames taken so far have met, as if nothing had been read ahead.

    Args:
        source: where the frames come from.
        frames: they themselves, read in another thread from now on.
        buffering: whether the newest frame of a live source replaces one that waits, or joins the queue.
        ahead: how many frames of a film may wait, as far as `_ROOM_BYTES` go.

    Attributes:
        ended: whether `take` has found that no frame is left and none will come.
    """

    def __init__(
        self, source: Source, frames: Generator[Frame, None, None], buffering: Buffering = "latest", ahead: int = 0
    ) -> None:
        self._source, self._live = source, source.info.is_live
        self._limit = max(_AHEAD, ahead) if not self._live else 1 if buffering == "latest" else _BACKLOG
        self._waiting: deque[_Arrived] = deque()
        self._changed = Condition()
        self._closed = self._overflowed = False
        self._dropped, self._lag_s, self._taken = 0, None if not self._live else 0.0, Rate()
        self._news: deque[str] = deque()
        self._told: tuple[State, float] | None = None
        self._warned_of_stall = False
        self._report, source.report = source.report, Report()
        self.ended = False
        self._reading = in_daemon(lambda: self._read(frames))
        self._reading.add_done_callback(lambda _: self._wake())

    def take(self, timeout_s: float) -> Frame | None:
        """The next frame; None when none comes in time, or ever (`ended`). Raises what reading raises."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._reading.done(), timeout_s)
            if not self._waiting:
                if self._reading.done():
                    self.ended, self._source.report = True, self._report
                    self._reading.result()
                return None
            arrived = self._waiting.popleft()
            self._changed.notify_all()
        self._source.report = arrived.report
        self._taken.note()
        if self._live:
            self._lag_s = time.monotonic() - arrived.at_s
        return arrived.frame

    def coming(self, count: int) -> list[Frame]:
        """So many of the frames that `take` will give next, or those that have been read; none of a live source, where a
        newer one may take their place."""
        with self._changed:
            return [] if self._live else [arrived.frame for arrived in islice(self._waiting, count)]

    def news(self) -> list[str]:
        """What the user should know, once each."""
        stalled = self._source.health().state == "stalled"
        if stalled and not self._warned_of_stall:
            self._news.append(f"{self._source.info.name}: no new picture comes")
        self._warned_of_stall = stalled
        return [*self._source.news(), *(self._news.popleft() for _ in range(len(self._news)))]

    def pulse(self) -> Pulse | None:
        """How it goes, where that has to be told again; else None."""
        health = self._source.health()
        state: State = "ended" if self.ended else health.state
        now_s = time.monotonic()
        if self._told and self._told[0] == state and now_s - self._told[1] < _PULSE_S:
            return None
        self._told = state, now_s
        source_fps = health.fps if self._live else self._source.info.fps
        return Pulse(
            state,
            source_fps,
            self._taken.per_s,
            self._dropped,
            self._lag_s,
            health.silent_s,
            health.reconnects,
            health.attempt,
            health.attempts,
        )

    def close(self) -> None:
        """Read no further. A read that blocks is left to end by itself."""
        self._closed = True
        self._wake()
        self._source.stop()

    def _read(self, frames: Generator[Frame, None, None]) -> None:
        with closing(frames):
            for frame in frames:
                if not self._put(_Arrived(frame, replace(self._report), time.monotonic())):
                    return

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _put(self, arrived: _Arrived) -> bool:
        """Returns False when nobody takes frames any more."""
        with self._changed:
            if self._live and len(self._waiting) == self._limit:
                self._waiting.popleft()
                self._dropped += 1
                self._warn_of_overflow()
            self._changed.wait_for(lambda: self._closed or len(self._waiting) < self._room_for(arrived.frame))
            self._waiting.append(arrived)
            self._changed.notify_all()
            return not self._closed

    def _room_for(self, frame: Frame) -> int:
        """How many frames of this size may wait."""
        return self._limit if self._live else min(self._limit, max(_AHEAD, _ROOM_BYTES // frame.rgb.nbytes))

    def _warn_of_overflow(self) -> None:
        if self._limit > 1 and not self._overflowed:
            self._overflowed = True
            self._news.append(f"{self._limit} frames wait for the model; from here on the oldest are dropped")
