"""What cameras and streams have in common: pictures that come when they come, and connections that break."""

from __future__ import annotations

import os
import threading
import time
import zlib
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event, stop_after_attempt, stop_never
from tenacity.stop import stop_any, stop_when_event_set
from tenacity.wait import wait_exponential

from hermes.errors import SourceError
from hermes.sources.base import EarlyEnd, Health, Picture, Report, Source, SourceInfo, State
from hermes.sources.daemon import in_daemon
from hermes.sources.rates import Rate
from hermes.timecode import format_time

_STALLED_S = 5.0
_FROZEN_S = 10.0
_LOOK_S = 1.0  # how often the bytes of pictures are compared
_GOOD_S = 60.0  # a connection that lasted so long is a new beginning for the count of attempts
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0  # between attempts, doubled each time
_ADRIFT_S = 30  # the segments of HLS come in bursts shorter than this
_INSTANT = Fraction(1, 1000)


@dataclass(frozen=True)
class Connecting:
    """How a source that is not a file is reached.

    Attributes:
        timeout_s: how long to wait for a connection, and for each picture.
        rtsp_transport: what RTSP sends its pictures by.
        reconnect: how often in a row to connect again when a connection is lost; None for ever.
        password: for the user in an address that has none; otherwise that of the environment, `HERMES_RTSP_PASSWORD`.
    """

    timeout_s: float = 10.0
    rtsp_transport: Literal["tcp", "udp"] = "tcp"
    reconnect: int | None = 5
    password: str | None = field(default_factory=lambda: os.environ.get("HERMES_RTSP_PASSWORD") or None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Shot:
    """A picture as it comes from a connection.

    Attributes:
        stamp: its own time in seconds, from any origin; None where the source gives none.
        duration: seconds that it stays, as far as the source knows.
        render: as that of `Picture`.
    """

    stamp: Fraction | None
    duration: Fraction
    render: Callable[[int | None], NDArray[np.uint8]]


class LiveSource(Source):
    """A source that cannot be played twice. Subclasses say how to connect, and what is known of it then.

    It is connected to when it is made. Until somebody takes its pictures they are thrown away, so the first one taken is
    new. Time is zero there and goes on by the wall clock from one connection to the next; within one the pictures' own times
    hold, if they have any and these stay with the wall clock. A connection that is lost is made again, after waiting
    1, 2, 4, ... seconds; when that has failed as often as allowed, the pass ends early.

    Args:
        name: what messages call it.
        reconnect: how often to try again before giving up, None for ever.

    Raises:
        SourceError: there is no connection, or no picture comes from it.
    """

    def __init__(self, name: str, reconnect: int | None) -> None:
        super().__init__()
        self._name, self._reconnect = name, reconnect
        self._ending, self._wanted = threading.Event(), threading.Event()
        self._state: State = "connecting"
        self._arrivals = Rate()
        self._reconnects = self._attempt = 0
        self._news: deque[str] = deque()
        self._frozen = _Frozen()
        self._shots: Generator[Shot, None, None] | None = self._connect(Report())
        in_daemon(self._begin).result()
        self._discarding = in_daemon(self._discard)

    @abstractmethod
    def _connect(self, report: Report) -> Generator[Shot, None, None]:
        """Connect, give pictures while they come, and disconnect when closed.

        Raises:
            SourceError: there is no connection, or it was lost.
        """

    @abstractmethod
    def _describe(self) -> tuple[float | None, str]:
        """Pictures a second, if the source says so, and the name of the codec; asked once the first picture is there."""

    def stop(self) -> None:
        self._ending.set()
        self._wanted.set()

    def health(self) -> Health:
        last_s, state = self._arrivals.newest_s, self._state
        silent_s = None if last_s is None else time.monotonic() - last_s
        if state == "live" and silent_s is not None and silent_s > _STALLED_S:
            state = "stalled"
        return Health(state, self._arrivals.per_s, silent_s, self._reconnects, self._attempt, self._reconnect)

    def news(self) -> list[str]:
        return [self._news.popleft() for _ in range(len(self._news))]

    def pictures(self, begin: Fraction, report: Report) -> Generator[Picture, None, None]:
        self._wanted.set()
        self._discarding.result()  # it ends with the picture under way
        clock = _Clock()
        try:
            for attempt in self._attempts():
                with attempt:
                    yield from self._connected(clock, report, attempt.retry_state)
        except SourceError as error:
            if not self._ending.is_set():
                self._news.append(f"{error.message}; gave up")
                report.ended_early = EarlyEnd(max(0.0, float(clock.newest)), None)
        finally:
            self._state = "ended"

    def _attempts(self) -> Retrying:
        """What connects as often as it takes or is allowed to; the first attempt is the connection that is there."""
        most = stop_never if self._reconnect is None else stop_after_attempt(self._reconnect + 1)
        return Retrying(
            retry=retry_if_exception_type(SourceError),
            stop=stop_any(most, stop_when_event_set(self._ending)),
            wait=wait_exponential(_FIRST_WAIT_S, _LONGEST_WAIT_S),
            sleep=sleep_using_event(self._ending),
            before_sleep=self._note_loss,
            reraise=True,
        )

    def _note_loss(self, retry: RetryCallState) -> None:
        was_lost, self._state, self._attempt = self._state == "reconnecting", "reconnecting", retry.attempt_number
        error = retry.outcome.exception() if retry.outcome else None
        if isinstance(error, SourceError) and not was_lost:
            self._news.append(f"{error.message}; connecting again")

    def _connected(self, clock: _Clock, report: Report, retry: RetryCallState) -> Generator[Picture, None, None]:
        """The pictures of one connection; raises `SourceError` when it is lost."""
        shots, self._shots = self._shots or self._connect(report), None
        begin_s: float | None = None
        try:
            with closing(shots):
                for shot in shots:
                    if self._ending.is_set():
                        return
                    self._arrivals.note()
                    if begin_s is None:
                        begin_s = time.monotonic()
                        self._note_begin(clock)
                    if self._frozen.look(shot):
                        self._news.append(f"{self._name}: the picture has not changed for {_FROZEN_S:.0f} s: is it frozen?")
                    yield Picture(clock.time(shot.stamp), shot.duration, shot.render)
        finally:
            if begin_s is not None and time.monotonic() - begin_s >= _GOOD_S:
                retry.attempt_number = 1
        raise SourceError(f"{self._name}: the connection was closed")

    def _note_begin(self, clock: _Clock) -> None:
        seen = clock.newest
        now = clock.connect()
        if self._state == "reconnecting":
            self._reconnects += 1
            gap = f"from {format_time(float(seen))} to {format_time(float(now))}" if seen >= 0 else "until now"
            self._news.append(f"{self._name}: nothing was seen {gap}")
        self._state, self._attempt = "live", 0

    def _begin(self) -> None:
        assert self._shots is not None
        first = next(self._shots, None)
        if first is None:
            raise SourceError(f"{self._name}: no picture came", "look whether it is on, and what else uses it")
        height, width, _ = first.render(None).shape
        fps, codec = self._describe()
        self.info = SourceInfo(self._name, width, height, None, fps, codec, is_live=True)
        self._state = "live"
        self._arrivals.note()

    def _discard(self) -> None:
        """Take pictures until somebody wants them, who then finds the connection as it is."""
        assert self._shots is not None
        with suppress(SourceError):
            while not self._wanted.is_set() and next(self._shots, None) is not None:
                self._arrivals.note()
        if self._ending.is_set():
            self._shots.close()


class _Clock:
    """The time of live pictures: their own, tied to the wall clock where a connection begins or where they leave it."""

    def __init__(self) -> None:
        self.newest = -_INSTANT  # of nothing yet
        self._begin_s: float | None = None
        self._offset: Fraction | None = None

    def connect(self) -> Fraction:
        """A connection begins, whose times count from anywhere; returns the time now."""
        self._offset = None
        return self._now()

    def time(self, stamp: Fraction | None) -> Fraction:
        """The time of a picture that has come now; times rise."""
        now = self._now()
        if stamp is None:
            self.newest = now
        else:
            if self._offset is None or abs(stamp + self._offset - now) > _ADRIFT_S:
                self._offset = now - stamp
            self.newest = max(stamp + self._offset, self.newest + _INSTANT)
        return self.newest

    def _now(self) -> Fraction:
        """Seconds since the first picture by the wall clock, but never before the newest one."""
        if self._begin_s is None:
            self._begin_s = time.monotonic()
        elapsed = Fraction(round((time.monotonic() - self._begin_s) * 1000), 1000)
        return max(elapsed, self.newest + _INSTANT)


class _Frozen:
    """Notices pictures that stay the same to the last byte, which those of a camera never do."""

    def __init__(self) -> None:
        self._looked_s = self._changed_s = float("-inf")
        self._seen: int | None = None
        self._told = False

    def look(self, shot: Shot) -> bool:
        """Whether they have been the same for long, said once each time."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s, seen = now_s, zlib.crc32(shot.render(None).tobytes())
        if seen != self._seen:
            self._seen, self._changed_s, self._told = seen, now_s, False
        is_news = not self._told and now_s - self._changed_s >= _FROZEN_S
        self._told = self._told or is_news
        return is_news
