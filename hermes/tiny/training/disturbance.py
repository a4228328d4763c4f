"""What a compressed memory does to the tokens of a video, done to them in training.

A streaming memory drops tokens, closes up positions and starts far from zero; a model that never saw that would answer
worse with one. Each batch draws one `Disturbance`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from hermes.tiny.architecture import MAX_POSITIONS, TOKENS_PER_FRAME
from hermes.tiny.training.blocks import PREFIX_TOKENS
from hermes.tiny.training.recipe import Recipe

KEEP_STEP = 16  # dropping keeps a multiple of this many tokens, and no less
ROOM_FOR_QUESTION = 200  # positions kept free after the last visual token


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One way to disturb a batch; the default leaves it alone. `drop` and `evict_to` exclude each other.

    Attributes:
        drop: share of the visual tokens removed from every video, at random.
        compact: whether the positions of what is left are closed up.
        max_offset: the positions after the prefix start up to so many further on, drawn per video.
        evict_to: share of the visual tokens a simulated eviction keeps in every layer; 0 for none.
        chunk_frames: frames between two evictions.
        oldest_first: whether every layer evicts the oldest tokens first, instead of each in its own way.
        together: whether tokens of a frame tend to be dropped together, or layers to evict the same tokens.
    """

    drop: float = 0.0
    compact: bool = False
    max_offset: int = 0
    evict_to: float = 0.0
    chunk_frames: int = 8
    oldest_first: bool = False
    together: bool = False


UNDISTURBED = Disturbance()


def draw_disturbance(rng: random.Random, progress: float, recipe: Recipe) -> Disturbance:
    """The disturbance of one batch; none before `recipe.disturb_from`."""
    if progress < recipe.disturb_from:
        return UNDISTURBED
    chosen: dict[str, float | bool] = {}
    draw = rng.random()
    if draw < recipe.drop_share:
        chosen["drop"] = rng.uniform(*recipe.drop_range)
        chosen["together"] = rng.random() < recipe.drop_frames
        chosen["compact"] = rng.random() < recipe.drop_compact
    elif draw < recipe.drop_share + recipe.evict_share:
        chosen["evict_to"] = rng.uniform(*recipe.evict_range)
        chosen["chunk_frames"] = rng.choice(recipe.evict_chunks)
        chosen["together"] = rng.random() < recipe.evict_together
        chosen["oldest_first"] = rng.random() < recipe.evict_fifo
    if rng.random() < recipe.offset_share:
        chosen["max_offset"] = recipe.offset_limit
    return Disturbance(**chosen)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class VisualTokens:
    """The N visual tokens left of every video.

    Attributes:
        features: (videos, N, hidden).
        frame: the frame each shows, ascending, (videos, N), int64, as the next two.
        index: which token of the undisturbed video it was.
        position: its rotary position in the prompt.
    """

    features: Tensor
    frame: Tensor
    index: Tensor
    position: Tensor

    @property
    def count(self) -> int:
        """N."""
        return self.frame.shape[1]

    @property
    def is_anchor(self) -> Tensor:
        """The last token of its frame, the only one that has seen all of it; (videos, N), bool."""
        return self.index % TOKENS_PER_FRAME == TOKENS_PER_FRAME - 1


def place_tokens(features: Tensor, disturbance: Disturbance) -> VisualTokens:
    """Drop visual tokens and give the others positions.

    Args:
        features: (videos, frames, TOKENS_PER_FRAME, hidden).
        disturbance: what to do to them; draws come from torch's generator.
    """
    videos, frames = features.shape[:2]
    count = frames * TOKENS_PER_FRAME
    features = features.reshape(videos, count, -1)
    index = torch.arange(count, device=features.device).expand(videos, -1)
    first = PREFIX_TOKENS + _draw_offset(videos, count, disturbance.max_offset, features.device)  # (videos, 1)
    position = index
    if disturbance.drop:
        index = _draw_kept(videos, frames, disturbance, features.device)
        features = features.gather(1, index[..., None].expand(-1, -1, features.shape[-1]))
        position = torch.arange(index.shape[1], device=index.device).expand_as(index) if disturbance.compact else index
    return VisualTokens(features, index // TOKENS_PER_FRAME, index, position + first)


def _draw_offset(videos: int, count: int, limit: int, device: torch.device) -> Tensor:
    """Shift of every video's positions, (videos, 1), int64, as far as the model's positions allow."""
    limit = min(limit, MAX_POSITIONS - ROOM_FOR_QUESTION - PREFIX_TOKENS - count)
    if limit <= 0:
        return torch.zeros(videos, 1, dtype=torch.int64, device=device)
    return (torch.rand(videos, 1, device=device) * limit).long()


def _draw_kept(videos: int, frames: int, disturbance: Disturbance, device: torch.device) -> Tensor:
    """Which tokens stay, ascending, (videos, kept)."""
    count = frames * TOKENS_PER_FRAME
    kept = max(KEEP_STEP, round(count * (1 - disturbance.drop)) // KEEP_STEP * KEEP_STEP)
    score = torch.rand(videos, count, device=device)
    if disturbance.together:
        score = score * 0.5 + torch.rand(videos, frames, device=device).repeat_interleave(TOKENS_PER_FRAME, 1)
    return score.topk(kept, 1).indices.sort(1).values
