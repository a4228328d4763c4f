"""The HERMES policy: each layer remembers by its role in the hierarchy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from hermes.cache import SUMMARY_ORIGIN
from hermes.compaction import KeepPlan
from hermes.config import Role
from hermes.policies.base import Guidance, MemoryView, Policy, top
from hermes.scoring import raw_score, smooth, with_anchors


@dataclass(frozen=True)
class Hermes(Policy):
    """HERMES (arXiv 2601.14724): recency in shallow layers, attention in deep ones, both in between, smoothed across
    depth; deep layers fold what they drop into summary tokens."""

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
        layers = len(scores)
        summaries = tuple(self.config.summaries if role is Role.DEEP else 0 for role in self.config.roles(layers))
        budgets = [self.config.layer_budget(layer, layers) - summaries[layer] for layer in range(layers)]
        if any(self.config.anchors):
            scores = self._anchored(scores, view.places, budgets)
        keep = tuple(top(score, budget, view.prefix) for score, budget in zip(scores, budgets, strict=True))
        return KeepPlan(keep, summaries, self.config.summary_weighting == "count")

    def _anchored(self, scores: Sequence[Tensor], places: Sequence[Tensor], budgets: Sequence[int]) -> list[Tensor]:
        """The scores with anchors above everything else; neighbours that are alike are done together."""
        layers = len(scores)
        counts = [round(self.config.anchor_share(layer, layers) * budgets[layer]) for layer in range(layers)]
        alike = [(score.device, len(score), count) for score, count in zip(scores, counts, strict=True)]
        anchored: list[Tensor] = []
        for (_, _, count), group in groupby(range(layers), key=alike.__getitem__):
            members = list(group)
            score = torch.stack([scores[layer] for layer in members])
            frames = torch.stack([places[layer][0] for layer in members])
            anchored += with_anchors(score, frames, count, self.config.anchor_tokens, self.config.anchor_decay)
        return anchored

    def over_budget(self, prefix: int, lengths: Sequence[int]) -> bool:
        layers, uncounted = len(lengths), 0 if self.config.trigger_includes_prefix else prefix
        return any(length - uncounted > self.config.layer_budget(layer, layers) for layer, length in enumerate(lengths))

    def scores(self, view: MemoryView) -> list[Tensor]:
        """Smoothed importance of every visual token, per layer (visual tokens,), float32."""
        return smooth(self.raw_scores(view), self.config, view.places)

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


def _shielded(score: Tensor, place: Tensor) -> Tensor:
    """The score with earlier summary tokens above everything else."""
    return score.masked_fill(place[0] == SUMMARY_ORIGIN, float("inf"))
