"""How far a film has been played, on standard error: a bar on a terminal, plain lines in a log, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from hermes_cli.clock import clock
from hermes_cli.tally import Tally

_PLAIN_INTERVAL_S = 5.0


@dataclass(frozen=True)
class Goal:
    """What progress is measured against.

    Attributes:
        start_s, stop_s: where playing starts and ends, in seconds; the end is None when unknown.
        budget: visual tokens that a layer may keep, None without a bound.
    """

    start_s: float
    stop_s: float | None
    budget: int | None

    def share(self, tally: Tally) -> float | None:
        """How much has been played, 0 to 1; None when the end is unknown."""
        if self.stop_s is None or tally.at is None:
            return None
        length_s = self.stop_s - self.start_s
        return min(1.0, (tally.at - self.start_s) / length_s) if length_s > 0 else 1.0

    def text(self, tally: Tally, elapsed_s: float) -> str:
        """One line: clock, tokens held, speed."""
        played = clock(tally.at or 0.0)
        if self.stop_s is not None:
            played += f" / {clock(self.stop_s)} ({self.share(tally) or 0:.0%})"
        held = str(tally.visual_tokens) if self.budget is None else f"{tally.visual_tokens} of {self.budget}"
        speed = tally.frames / elapsed_s if elapsed_s > 0 else 0.0
        return f"{played}  {held} tokens  {speed:.1f} frames/s"


class NoProgress:
    """Shows nothing; the base of those that do."""

    def update(self, tally: Tally) -> None:
        """A frame or a chunk has been taken in."""

    def hide(self) -> None:
        """Leave the terminal to someone else."""


class PlainProgress(NoProgress):
    """A line now and then."""

    def __init__(self, console: Console, goal: Goal, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._goal, self._clock = console, goal, clock
        self._start = self._last = clock()

    def update(self, tally: Tally) -> None:
        now = self._clock()
        if now - self._last >= _PLAIN_INTERVAL_S:
            self._last = now
            self._console.print(self._goal.text(tally, now - self._start), soft_wrap=True)


class BarProgress(NoProgress):
    """A bar that is redrawn in place, and gone when it is hidden."""

    def __init__(self, console: Console, goal: Goal) -> None:
        self._goal, self._start = goal, time.monotonic()
        columns = (TextColumn("{task.description}", markup=False), BarColumn())
        self._bar = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._task: TaskID = self._bar.add_task("", total=None if goal.stop_s is None else 1.0)

    def update(self, tally: Tally) -> None:
        text = self._goal.text(tally, time.monotonic() - self._start)
        self._bar.update(self._task, description=text, completed=self._goal.share(tally) or 0.0)
        self._bar.start()

    def hide(self) -> None:
        self._bar.stop()
