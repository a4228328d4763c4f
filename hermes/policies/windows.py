"""Policies that look at the age of tokens alone, and the one that forgets nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hermes.compaction import KeepPlan
from hermes.policies.base import MemoryView, Policy, top


@dataclass(frozen=True)
class Fifo(Policy):
    """A sliding window over tokens: the newest stay, in every layer alike (the window of StreamingLLM, arXiv 2309.17453,
    whose attention sink is the system prefix here)."""

    def plan(self, view: MemoryView) -> KeepPlan:
        keep = tuple(top(torch.arange(visual), self.config.budget, view.prefix) for visual in view.visual)
        return KeepPlan(keep, (0,) * len(keep))


@dataclass(frozen=True)
class Full(Policy):
    """Keep everything: the model as it is in any of the papers, and the reference for accuracy, with a cache that grows with
    the video."""

    bounded = False

    def over_budget(self, prefix: int, lengths: Sequence[int]) -> bool:
        return False

    def plan(self, view: MemoryView) -> KeepPlan:
        return KeepPlan.everything([view.prefix + visual for visual in view.visual])
