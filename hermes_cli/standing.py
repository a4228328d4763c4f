"""Questions that are asked again and again while a film plays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hermes.errors import UsageError
from hermes.timecode import parse, resolve
from hermes_cli.questions import readable

_FORM = 'write it as "10s QUESTION", for example --every "10s Is anyone at the door?"'


@dataclass
class StandingQuestion:
    """A question that is asked whenever so many seconds of the film have passed.

    Attributes:
        every_s: how many.
        until_change: keep an answer to ourselves while it stays the same.
        asked_s: the moment up to which it has been asked.
    """

    every_s: float
    text: str
    until_change: bool = False
    asked_s: float = 0.0
    _said: str | None = field(default=None, init=False)

    def due(self, now_s: float, next_s: float) -> float | None:
        """The moment that it is to be asked about before a frame of `next_s` is taken; None when there is none.

        Of several that have passed since the newest frame, `now_s`, only the last is asked about: nothing was seen between.
        """
        moment_s = (math.ceil(next_s / self.every_s) - 1) * self.every_s
        if moment_s <= self.asked_s or moment_s < now_s:
            return None
        self.asked_s = moment_s
        return moment_s

    def is_news(self, answer: str) -> bool:
        """Whether an answer differs from the one before."""
        before, self._said = self._said, answer
        return answer != before


def standing_question(written: str, until_change: bool = False) -> StandingQuestion:
    """Read `INTERVAL QUESTION`; raises `UsageError` for what is none."""
    interval, *question = written.strip().split(maxsplit=1) or [""]
    if not question:
        raise UsageError(f"{written!r} is not an interval and a question", _FORM)
    try:
        every_s = interval_s(interval)
    except UsageError as error:
        raise UsageError(error.message, _FORM) from error
    return StandingQuestion(every_s, readable(*question), until_change)


def interval_s(written: str) -> float:
    """Seconds of an interval: `10s`, `1:30`; raises `UsageError` for anything else."""
    try:
        seconds = resolve(parse(written), duration_s=None, fps=1.0, name="an interval")
    except UsageError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"{written!r} is no interval", "write it as 10s or 1:30")
    return seconds
