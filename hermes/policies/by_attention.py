"""Policies that rank by what a stand-in for the question attends to, in every layer alike."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from hermes.compaction import KeepPlan
from hermes.policies.base import Guidance, MemoryView, Policy, top


class _ByAttention(Policy):
    @property
    @abstractmethod
    def stand_in(self) -> Guidance:
        """What is read in place of the question."""

    @property
    def summaries(self) -> int:
        """Summary tokens that each layer's dropped tokens are folded into."""
        return 0

    def guidance(self, layers: int) -> tuple[Guidance | None, ...]:
        return (self.stand_in,) * layers

    def plan(self, view: MemoryView) -> KeepPlan:
        budget = self.config.budget - self.summaries
        keep = []
        for attention in view.attention:
            assert attention is not None
            keep.append(top(attention, budget, view.prefix))
        return KeepPlan(tuple(keep), (self.summaries,) * len(keep), self.config.summary_weighting == "count")


@dataclass(frozen=True)
class AttentionOnly(_ByAttention):
    """What the deep layers of HERMES (arXiv 2601.14724) go by, in every layer: the attention of its global guidance prompt.
    No recency, no smoothing across depth, no summary token."""

    stand_in = Guidance.GLOBAL


@dataclass(frozen=True)
class StreamMem(_ByAttention):
    """An approximation of StreamMem (arXiv 2508.15717), from the paper's description: the attention of the chat template's
    own tokens, as a query that fits any question, ranks the tokens of every layer.

    Dropped tokens are folded into one summary token a layer (`MemoryConfig.summaries`), where the paper merges each
    frame's tokens into one of their own, weighted by attention. Left out: merging nearly equal frames before they are
    read, and stretching the positions (YaRN); positions are renumbered as in every policy here.
    """

    stand_in = Guidance.CHAT

    @property
    def summaries(self) -> int:
        return self.config.summaries
