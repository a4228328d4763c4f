"""How sure a measured share is, and a difference between two.

Wilson's interval and McNemar's test take questions as independent. Those about one video are not quite: they share its
memory. `cluster_interval` draws whole videos instead, and assumes nothing within one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

RESAMPLES = 2000
"""Of a bootstrap; the ends of its interval then differ from those of another seed by a few per cent of its width."""

_Z = NormalDist().inv_cdf(0.975)


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
        spread = _Z * math.sqrt(self.share * (1 - self.share) / self.total + _Z**2 / (4 * self.total**2))
        centre = self.share + _Z**2 / (2 * self.total)
        scale = 1 + _Z**2 / self.total
        return ((centre - spread) / scale, (centre + spread) / scale)


@dataclass(frozen=True)
class Paired:
    """Two ways of answering on the same questions.

    Attributes:
        gained: questions that only the second one answers right.
        lost: questions that only the first one answers right.
        total: questions.
    """

    gained: int
    lost: int
    total: int

    @property
    def difference(self) -> float:
        """The share of the second one minus that of the first; NaN without questions."""
        return (self.gained - self.lost) / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the difference: Wald's, with half a question more in each of the four cells (Bonett and Price
        2012), which keeps its level in small samples."""
        if not self.total:
            return (-1.0, 1.0)
        gained, lost = ((count + 1) / (self.total + 2) for count in (self.gained, self.lost))
        spread = _Z * math.sqrt((gained + lost - (gained - lost) ** 2) / (self.total + 2))
        return (max(-1.0, gained - lost - spread), min(1.0, gained - lost + spread))

    @property
    def p_value(self) -> float:
        """Exact two-sided McNemar test: how likely the questions that differ would split at least as unevenly, were each as
        likely to go either way."""
        differing = self.gained + self.lost
        tail = sum(math.comb(differing, count) for count in range(min(self.gained, self.lost) + 1))
        return min(1.0, 2 * tail / (1 << differing))


def cluster_interval(values: Iterable[tuple[Hashable, float]]) -> tuple[float, float] | None:
    """95 % interval of the mean of values that come in clusters: a percentile bootstrap that draws whole clusters, RESAMPLES
    times, always from the same seed.

    Args:
        values: each with its cluster, here 1 for right and 0 for wrong with the video that it is about.

    Returns: None for fewer than two clusters. With few of them, say below ten, it is too narrow.
    """
    sums: dict[Hashable, float] = {}
    counts: dict[Hashable, int] = {}
    for cluster, value in values:
        sums[cluster] = sums.get(cluster, 0.0) + value
        counts[cluster] = counts.get(cluster, 0) + 1
    if len(sums) < 2:
        return None
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    totals, sizes = np.array(list(sums.values())), np.array(list(counts.values()))
    means = totals[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
