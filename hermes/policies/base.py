"""What a memory policy sees and says, and what all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from hermes.cache import SlabCache
from hermes.compaction import CosSin, KeepPlan
from hermes.config import MemoryConfig
from hermes.rope import unrotate


class Guidance(Enum):
    """What stands in for the unknown question: the generic prompts of HERMES (appendix B), or `CHAT`, what the checkpoint's
    own chat template writes between a video and an answer, without any question."""

    LOCAL = "local"
    GLOBAL = "global"
    MIXED = "mixed"
    CHAT = "chat"


def _not_given(layer: int) -> Tensor:
    raise LookupError(f"this view has no keys and values of layer {layer}")


@dataclass(frozen=True)
class MemoryView:
    """What a policy may look at.

    Attributes:
        prefix: system tokens at the start of every layer, always kept.
        attention: per layer, pooled attention (visual tokens,) of the prompt that the policy asked for, or None.
        places: per layer, (3, visual tokens) int32: frame number, row, column of each slot (`hermes.cache.Origin`).
        raw_keys: layer to its visual tokens' keys without their rotary embedding, (kv_heads, visual tokens, head_dim),
            float32, computed when called. Rotated ones could not be compared across positions.
        values: layer to its visual tokens' values, (kv_heads, visual tokens, head_dim), in the cache's dtype.
    """

    prefix: int
    attention: Sequence[Tensor | None]
    places: Sequence[Tensor]
    raw_keys: Callable[[int], Tensor] = _not_given
    values: Callable[[int], Tensor] = _not_given

    @classmethod
    def of(cls, cache: SlabCache, prefix: int, attention: Sequence[Tensor | None], cos_sin: CosSin) -> MemoryView:
        """The view of a cache, which stays as it is and must while the view is in use.

        Args:
            cos_sin: the model's rotary embedding.
        """

        def raw_keys(index: int) -> Tensor:
            layer = cache.layers[index]
            visual = slice(prefix, layer.length)
            cos, sin = cos_sin(layer.positions[None, :, visual])
            return unrotate(layer.keys[0, :, visual], cos[0], sin[0])

        def values(index: int) -> Tensor:
            return cache.layers[index].values[0, :, prefix : cache.layers[index].length]

        places = [layer.place[:, prefix : layer.length] for layer in cache.layers]
        return cls(prefix, attention, places, raw_keys, values)

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


def top(score: Tensor, count: int, prefix: int) -> Tensor:
    """Cache indices of the prefix and of the `count` best visual tokens, ascending (equation 6), int64."""
    return behind_prefix(score.topk(min(count, len(score))).indices, prefix)


def behind_prefix(visual: Tensor, prefix: int) -> Tensor:
    """Cache indices of the prefix and of these visual tokens, which count from 0 behind it, ascending, int64."""
    return torch.cat((torch.arange(prefix, device=visual.device), visual.sort().values + prefix))
