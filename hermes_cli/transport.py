"""What holds a film back while it plays: its pace, a pause, one frame at a time, and the end of the run."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

_SLOWEST, _FASTEST = 0.01, 100.0  # that the pace is changed to in steps; /speed goes further


class Transport:
    """The controls of a film. The player waits here before every frame; any thread may turn them.

    Args:
        speed: media seconds per second; infinite is as fast as frames can be read.
        clock: seconds that only rise.
    """

    def __init__(self, speed: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._speed, self._clock = speed, clock
        self._changed = threading.Condition()  # re-entrant
        self._paused = self._stopped = self._interrupted = False
        self._steps = 0
        self._anchor: tuple[float, float] | None = None  # a media time and the clock's when it was due

    @property
    def speed(self) -> float:
        """Media seconds per second."""
        return self._speed

    @property
    def paused(self) -> bool:
        """Whether the film is held."""
        return self._paused

    @property
    def stopped(self) -> bool:
        """Whether the film shall end, for good or until `resume`."""
        return self._stopped or self._interrupted

    @property
    def interrupted(self) -> bool:
        """Whether it shall end only until `resume`."""
        return self._interrupted and not self._stopped

    def pause(self) -> None:
        """Hold the film before its next frame."""
        self._turn(paused=True)

    def play(self) -> None:
        """Let it go on."""
        self._turn(paused=False)

    def step(self, count: int = 1) -> None:
        """Let so many frames through, and hold."""
        with self._changed:
            self._steps += count
            self._turn(paused=True)

    def set_speed(self, speed: float) -> None:
        """Change the pace; raises `ValueError` for one that is not positive."""
        if not speed > 0:
            raise ValueError(speed)
        self._turn(speed=speed)

    def change_speed(self, factor: float) -> None:
        """Change the pace by a factor; a film as fast as possible slows down to real time."""
        with self._changed:
            speed = self._speed
            self.set_speed(
                1.0 if math.isinf(speed) and factor < 1 else min(max(speed * factor, _SLOWEST), max(speed, _FASTEST))
            )

    def stop(self) -> None:
        """End the film, whatever it waits for."""
        self._turn(stopped=True)

    def interrupt(self) -> None:
        """End it for now: whoever plays it leaves it, and may play on from elsewhere after `resume`."""
        self._turn(interrupted=True)

    def resume(self) -> None:
        """It may be played again, held or not as it was; steps that were left are forgotten."""
        with self._changed:
            self._steps = 0
            self._turn(interrupted=False)

    def wait(self, time_s: float) -> bool:
        """Wait until the frame of that media time may be taken; returns False when the film shall end instead."""
        with self._changed:
            while not self.stopped:
                if self._paused:
                    if self._steps:
                        self._steps -= 1
                        return True
                    self._changed.wait()
                    continue
                left_s = self._due_s(time_s) - self._clock()
                if left_s <= 0:
                    return True
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
            return False

    def _due_s(self, time_s: float) -> float:
        now_s = self._clock()
        if math.isinf(self._speed):
            return now_s
        if self._anchor is None:
            self._anchor = (time_s, now_s)
        media_s, at_s = self._anchor
        return at_s + (time_s - media_s) / self._speed

    def _turn(
        self,
        paused: bool | None = None,
        speed: float | None = None,
        stopped: bool = False,
        interrupted: bool | None = None,
    ) -> None:
        with self._changed:
            self._paused = self._paused if paused is None else paused
            self._speed = self._speed if speed is None else speed
            self._stopped = self._stopped or stopped
            self._interrupted = self._interrupted if interrupted is None else interrupted
            self._anchor = None  # the pace counts from here on
            self._changed.notify_all()
