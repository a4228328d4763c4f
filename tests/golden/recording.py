"""One recorded file, and the largest differences found while replaying it."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hermes.config import MemoryConfig

STEP_TOLERANCES = {"raw": 2e-6, "smooth": 2e-6, "keys": 2e-5, "values": 1e-6, "keep": 0, "positions": 0, "flags": 0}
END_TO_END_TOLERANCES = {
    "embeds": 2e-5, "pooled": 2e-6, "raw": 2e-6, "smooth": 2e-6, "keys": 2e-5, "values": 2e-5,
    "logits": 2e-5, "keep": 0, "positions": 0, "tokens": 0, "flags": 0,
}  # fmt: skip


class Recording:
    """The arrays and settings of one `.npz` file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with np.load(path) as archive:
            self._arrays = {name: archive[name] for name in archive.files}
        self.meta: dict[str, Any] = json.loads(bytes(self._arrays.pop("meta")))
        self.layers: int = self.meta["L"]

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> Tensor:
        return torch.from_numpy(self._arrays[name])

    def per_layer(self, name: str) -> list[Tensor]:
        """The arrays `name_00`, `name_01`, ... or the rows of `name`."""
        if f"{name}_00" in self._arrays:
            return [self[f"{name}_{layer:02d}"] for layer in range(self.layers)]
        return list(self[name])

    def config(self, preset: str, **changes: Any) -> MemoryConfig:
        """The memory settings that the recording was made with."""
        budget = self.meta.get("budget", self.meta.get("kv_size"))
        reindex = "lazy" if self.meta["streaming"] else "eager"
        return MemoryConfig.preset(preset, budget=budget, reindex=reindex, **changes)


class Differences:
    """The largest absolute difference per quantity; a mismatch in shape counts as infinite."""

    def __init__(self, tolerances: dict[str, float]) -> None:
        self._tolerances = tolerances
        self._largest: dict[str, float] = defaultdict(float)

    def compare(self, quantity: str, ours: Any, recorded: Any) -> None:
        """Take in one comparison."""
        assert quantity in self._tolerances
        left, right = torch.as_tensor(ours).double(), torch.as_tensor(recorded).double()
        if left.shape != right.shape:
            difference = float("inf")
        else:
            difference = float((left - right).abs().max()) if left.numel() else 0.0
        largest = max(self._largest[quantity], difference)
        self._largest[quantity] = float("inf") if math.isnan(difference) else largest

    @property
    def passed(self) -> bool:
        """Whether anything was compared and all of it is within tolerance."""
        return bool(self._largest) and all(value <= self._tolerances[quantity] for quantity, value in self._largest.items())

    def __str__(self) -> str:
        return "  ".join(f"{quantity} {value:.1e}" for quantity, value in sorted(self._largest.items()))
