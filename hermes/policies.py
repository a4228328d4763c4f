"""Memory policies: what each layer keeps when a chunk has pushed it over budget. They rank; `hermes.compaction` writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from hermes.cache import SUMMARY_ORIGIN
from hermes.compaction import KeepPlan
from hermes.config import MemoryConfig, Role
from hermes.errors import UsageError
from hermes.scoring import raw_score, smooth


class Guidance(Enum):
    """The generic prompts that stand in for the unknown question (appendix B)."""

    LOCAL = "local"
    GLOBAL = "global"
    MIXED = "mixed"


@dataclass(frozen=True)
class MemoryView:
    """What a policy may look at.

    Attributes:
        prefix: system tokens at the start of every layer, always kept.
        attention: per layer, pooled attention (visual tokens,) of the prompt that the policy asked for, or None.
        places: per layer, (3, visual tokens) int32: frame number, row, column of each slot (`hermes.cache.Origin`).
    """

    prefix: int
    attention: Sequence[Tensor | None]
    places: Sequence[Tensor]

    @property
    def visual(self) -> list[int]:
        """Visual tokens per layer."""
        return [place.shape[1] for place in self.places]


@dataclass(frozen=True)
class Policy(ABC):
    """One way of forgetting.

    Attributes:
        config: the constants; `budget` holds for every policy that has one.
    """

    config: MemoryConfig

    bounded = True  # whether the cache has a fixed size under this policy

    def over_budget(self, prefix: int, lengths: Sequence[int]) -> bool:
        """Whether a cache of these lengths (prefix included) has to be compacted."""
        uncounted = 0 if self.config.trigger_includes_prefix else prefix
        return any(length - uncounted > self.config.budget for length in lengths)

    def guidance(self, layers: int) -> tuple[Guidance | None, ...]:
        """Per layer, the guidance prompt whose attention the policy needs there; None where it has no say."""
        return (None,) * layers

    @abstractmethod
    def plan(self, view: MemoryView) -> KeepPlan:
        """Rank the visual tokens of every layer and say what stays."""


@dataclass(frozen=True)
class Hermes(Policy):
    """HERMES (arXiv 2601.14724): recency in shallow layers, attention in deep ones, both in between, smoothed across
    depth; deep layers fold what they drop into a summary token."""

    def guidance(self, layers: int) -> tuple[Guidance | None, ...]:
        by_role = {Role.SHALLOW: Guidance.LOCAL, Role.MIDDLE: Guidance.MIXED, Role.DEEP: Guidance.GLOBAL}
        return tuple(
            by_role[role] if self.config.recency_weight(layer, layers) < 1 else None
            for layer, role in enumerate(self.config.roles(layers))
        )

    def plan(self, view: MemoryView) -> KeepPlan:
        scores = self.scores(view)
        if self.config.protect_summary:
            scores = [_shielded(score, place) for score, place in zip(scores, view.places, strict=True)]
        roles = self.config.roles(len(scores))
        folds = tuple(self.config.summary and role is Role.DEEP for role in roles)
        budgets = [self.config.budget - 1 if fold else self.config.budget for fold in folds]
        keep = tuple(top(score, budget, view.prefix) for score, budget in zip(scores, budgets, strict=True))
        return KeepPlan(keep, folds)

    def scores(self, view: MemoryView) -> list[Tensor]:
        """Smoothed importance of every visual token, per layer (visual tokens,), float32."""
        return smooth(self.raw_scores(view), self.config)

    def raw_scores(self, view: MemoryView) -> list[Tensor]:
        """Importance before smoothing, per layer (visual tokens,), float32 (equations 1, 2 and 4)."""
        layers = len(view.places)
        return [
            raw_score(
                attention,
                place.shape[1],
                self.config.recency_weight(layer, layers),
                self.config.forgetting_rate(layer, layers),
                place.device,
            )
            for layer, (attention, place) in enumerate(zip(view.attention, view.places, strict=True))
        ]


@dataclass(frozen=True)
class Fifo(Policy):
    """A sliding window: the newest tokens stay, in every layer alike."""

    def plan(self, view: MemoryView) -> KeepPlan:
        keep = tuple(top(torch.arange(visual), self.config.budget, view.prefix) for visual in view.visual)
        return KeepPlan(keep, (False,) * len(keep))


@dataclass(frozen=True)
class Full(Policy):
    """Keep everything: the reference for accuracy, with a cache that grows with the video."""

    bounded = False

    def over_budget(self, prefix: int, lengths: Sequence[int]) -> bool:
        return False

    def plan(self, view: MemoryView) -> KeepPlan:
        return KeepPlan.everything([view.prefix + visual for visual in view.visual])


POLICIES: dict[str, type[Policy]] = {"hermes": Hermes, "fifo": Fifo, "full": Full}


def make_policy(name: str, config: MemoryConfig) -> Policy:
    """The policy of that name; raises `UsageError` listing the known ones."""
    if name not in POLICIES:
        raise UsageError(f"unknown memory policy {name!r}", f"choose one of: {', '.join(POLICIES)}")
    return POLICIES[name](config)


def top(score: Tensor, count: int, prefix: int) -> Tensor:
    """Cache indices of the prefix and of the `count` best visual tokens, ascending (equation 6), int64."""
    best = score.topk(min(count, len(score))).indices.sort().values
    return torch.cat((torch.arange(prefix, device=score.device), best + prefix))


def _shielded(score: Tensor, place: Tensor) -> Tensor:
    """The score with earlier summary tokens above everything else."""
    return score.masked_fill(place[0] == SUMMARY_ORIGIN, float("inf"))
