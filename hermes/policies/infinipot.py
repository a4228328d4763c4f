"""The InfiniPot-V policy: drop what recent frames show again, then what has small values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hermes.compaction import KeepPlan
from hermes.policies.base import MemoryView, Policy, behind_prefix
from hermes.scoring import temporal_redundancy, value_norm

RECENT_SHARE = 1 / 8  # of the budget: so many of the newest frames, at least one, are what older ones are compared with
TEMPORAL_SHARE = 1 / 2  # of the budget goes by temporal redundancy, recent frames included, the rest by value norm


@dataclass(frozen=True)
class InfiniPotV(Policy):
    """An approximation of InfiniPot-V (arXiv 2506.15745), from the paper's description; it asks no question.

    Temporal-axis redundancy (TaR): the recent frames stay, and of the older tokens those whose keys are least like the keys
    of the recent frames at the same row and column. Value norm (VaN): what is left of the budget goes to the tokens with the
    largest values among the rest. Tokens are chosen for all heads of a layer together, and the shares are ours; left
    out is the pooling of value norms that the paper adapts to each layer.
    """

    def plan(self, view: MemoryView) -> KeepPlan:
        keep = tuple(self._kept(view, layer) for layer in range(len(view.places)))
        return KeepPlan(keep, (0,) * len(keep))

    def _kept(self, view: MemoryView, layer: int) -> Tensor:
        place, budget = view.places[layer], min(self.config.budget, view.visual[layer])
        recent = _recent(place, max(int(RECENT_SHARE * budget), 1))
        newness = torch.linspace(2, 3, len(recent), device=recent.device)  # above any similarity, which is at most 1
        fresh = torch.where(recent, newness, -temporal_redundancy(view.raw_keys(layer), place, recent))
        by_time = fresh.topk(int(TEMPORAL_SHARE * budget)).indices
        norm = value_norm(view.values(layer)).index_fill(0, by_time, -1.0)
        by_value = norm.topk(budget - len(by_time)).indices
        return behind_prefix(torch.cat((by_time, by_value)), view.prefix)


def _recent(place: Tensor, tokens: int) -> Tensor:
    """Which tokens belong to the newest frames, as many as have so many tokens together but at least one, (tokens,) bool."""
    frames, counts = torch.unique(place[0], return_counts=True)  # rising
    newer = counts.flip(0).cumsum(0).flip(0)  # tokens of each frame and all newer ones
    fits = newer <= tokens
    fits[-1] = True
    return place[0].ge(frames[fits][0])
