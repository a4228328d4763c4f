"""How long a step takes that is repeated for hours, in a bounded amount of memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

WINDOW = 64


@dataclass(frozen=True)
class Timing:
    """Milliseconds of each time that a step was done.

    Attributes:
        recent: the newest ones, at most `WINDOW`.
        total_ms: of all.
    """

    recent: tuple[float, ...] = ()
    total_ms: float = 0.0

    def after(self, ms: float) -> Timing:
        """With one more."""
        return Timing((*self.recent[1 - WINDOW :], ms), self.total_ms + ms)

    @property
    def last(self) -> float | None:
        """The newest; None before the first."""
        return self.recent[-1] if self.recent else None

    @property
    def mean(self) -> float | None:
        """Of the recent ones."""
        return fmean(self.recent) if self.recent else None

    @property
    def p95(self) -> float | None:
        """The smallest of the recent ones that 95 % of them do not exceed."""
        return sorted(self.recent)[math.ceil(0.95 * len(self.recent)) - 1] if self.recent else None
