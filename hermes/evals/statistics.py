"""How sure a measured share is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Accuracy:
    """A share of right answers, or of whatever else is right, with its 95 % Wilson interval."""

    right: int
    total: int

    @property
    def share(self) -> float:
        """Right answers per question; NaN without questions."""
        return self.right / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The interval that the true share lies in, were the questions drawn again (Wilson 1927)."""
        if not self.total:
            return (0.0, 1.0)
        z = NormalDist().inv_cdf(0.975)
        spread = z * math.sqrt(self.share * (1 - self.share) / self.total + z**2 / (4 * self.total**2))
        centre = self.share + z**2 / (2 * self.total)
        scale = 1 + z**2 / self.total
        return ((centre - spread) / scale, (centre + spread) / scale)
