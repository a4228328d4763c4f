"""What repeated measurements have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one quantity.

    Attributes:
        samples: in the order they were taken; at least one.
    """

    samples: tuple[float, ...]

    @classmethod
    def of(cls, samples: Sequence[float | None]) -> Spread | None:
        """Of those that were taken; None without any."""
        taken = tuple(sample for sample in samples if sample is not None)
        return cls(taken) if taken else None

    @property
    def mean(self) -> float:
        """Arithmetic mean."""
        return float(np.mean(self.samples))

    @property
    def std(self) -> float:
        """Standard deviation of a sample (n - 1); 0 for a single one."""
        return float(np.std(self.samples, ddof=1)) if len(self.samples) > 1 else 0.0

    def percentile(self, share: float) -> float:
        """The value that `share` per cent of the samples do not exceed, interpolated between neighbours."""
        return float(np.percentile(self.samples, share))

    def record(self) -> dict[str, float | list[float]]:
        """As a JSON object: mean, std, p50, p99 and the samples."""
        return {
            "mean": self.mean,
            "std": self.std,
            "p50": self.percentile(50),
            "p99": self.percentile(99),
            "samples": list(self.samples),
        }
