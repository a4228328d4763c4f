"""How important a cached visual token is to its layer: recency, attention, their blend, and smoothing across depth.

Pure functions of float32 tensors; nothing here knows a cache or a model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hermes.config import MemoryConfig

NORMALISATION_EPSILON = 1e-6  # keeps a constant score finite under min-max normalisation (released code)


def min_max(scores: Tensor) -> Tensor:
    """Scores scaled to [0, 1]: alpha of eq. 1 and 2, which the paper leaves open, as in the released code."""
    low, high = scores.amin(), scores.amax()
    return (scores - low) / (high - low + NORMALISATION_EPSILON)


def recency(tokens: int, rate: float, device: torch.device | None = None) -> Tensor:
    """The forgetting curve exp(-k d) (eq. 1) with d the distance to the newest token as a share of the cached span.

    Returns: (tokens,), float32, newest last.
    """
    distance = torch.arange(tokens - 1, -1, -1, device=device, dtype=torch.float32) / max(tokens - 1, 1)
    return torch.exp(-rate * distance)


def pool_attention(weights: Tensor, prefix: int, visual: int) -> Tensor:
    """Attention that a guidance prompt pays to each visual token, W of eq. 2: mean over heads, then over prompt tokens.

    Args:
        weights: (heads, prompt tokens, prefix + visual + prompt tokens), rows summing to 1.

    Returns: (visual,), float32; not renormalised after the prefix and the prompt itself are cut off.
    """
    return weights.float().mean(dim=0)[:, prefix : prefix + visual].mean(dim=0)


def raw_score(
    attention: Tensor | None, tokens: int, weight: float, rate: float, device: torch.device | None = None
) -> Tensor:
    """Eq. 4, the blend of normalised attention and normalised recency in one layer.

    Args:
        attention: (tokens,), pooled attention; None where `weight` is 1 and it has no say.
        weight: omega, the share of recency.
        rate: k of the forgetting curve.

    Returns: (tokens,), float32 in [0, 1].
    """
    score = torch.zeros(tokens, device=device if attention is None else attention.device)
    if weight < 1:
        assert attention is not None and attention.shape == (tokens,)
        score = (1 - weight) * min_max(attention.float())
    if weight > 0:
        score = score + weight * min_max(recency(tokens, rate, score.device))
    return score


def temporal_redundancy(keys: Tensor, place: Tensor, recent: Tensor) -> Tensor:
    """How much each token is like what recent frames show at the same row and column: cosine similarity of their keys, mean
    over heads and recent tokens (TaR of InfiniPot-V, arXiv 2506.15745).

    Args:
        keys: (kv_heads, tokens, head_dim), without rotary embedding.
        place: (3, tokens), frame number, row and column (`hermes.cache.Origin`).
        recent: (tokens,) bool, which tokens are compared with.

    Returns: (tokens,), float32 in [-1, 1]; 0 where no recent token has that row and column.
    """
    directions = F.normalize(keys.float(), dim=-1)
    cells, cell = torch.unique(place[1:], dim=1, return_inverse=True)
    shows = torch.arange(cells.shape[1], device=cell.device)[:, None].eq(cell[recent]).float()  # (cells, recent tokens)
    shared = shows / shows.sum(dim=1, keepdim=True).clamp(min=1)
    means = shared @ directions[:, recent]  # (kv_heads, cells, head_dim); a product, for its order of summation is fixed
    return (directions * means[:, cell]).sum(dim=-1).mean(dim=0)


def value_norm(values: Tensor) -> Tensor:
    """Euclidean norm of each token's values (kv_heads, tokens, head_dim), mean over heads (VaN of InfiniPot-V, arXiv
    2506.15745): (tokens,), float32."""
    norms: Tensor = torch.linalg.vector_norm(values.float(), dim=-1)
    return norms.mean(dim=0)


def smooth(scores: Sequence[Tensor], config: MemoryConfig, places: Sequence[Tensor] = ()) -> list[Tensor]:
    """Cross-layer smoothing (eq. 5): each layer's score blended with that of the next deeper layer.

    Args:
        scores: per layer (tokens of that layer,), float32.
        places: per layer (3, tokens), where tokens come from (`hermes.cache.Origin`); only for alignment by origin.
    """
    layers = len(scores)
    smoothed = list(scores)
    if config.smoothing_mode == "off":
        return smoothed
    by_origin = config.smoothing_alignment == "origin"
    same = _same_tokens(places) if by_origin else []
    for layer in range(layers - 2, -1, -1):
        own = scores[layer]
        deeper = (smoothed[layer + 1] if config.smoothing_mode == "cascade" else scores[layer + 1]).to(own.device)
        aligned = _picked(deeper, own, *same[layer]) if by_origin else _resample(deeper, len(own))
        share = config.smoothing_share(layer, layers)
        smoothed[layer] = (1 - share) * own + share * aligned
    return smoothed


def _resample(score: Tensor, length: int) -> Tensor:
    """By cache index; a score of another length is interpolated linearly."""
    if len(score) == length:
        return score
    return F.interpolate(score[None, None], size=length, mode="linear", align_corners=False)[0, 0]


def _picked(deeper: Tensor, own: Tensor, index: Tensor, there: Tensor) -> Tensor:
    """The deeper layer's score of each token of this layer, (tokens,); its own where the deeper layer does not hold it."""
    if not len(deeper):
        return own
    return torch.where(there.to(own.device), deeper[index.to(own.device).clamp(max=len(deeper) - 1)], own)


def _same_tokens(places: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Of each layer but the last: which token of the next deeper one is the same, (tokens,) int64, and whether any is.

    What has no place of its own, summary tokens and the text between pictures, is told apart by its frame number only: the
    first such token of the deeper layer stands for all.
    """
    lengths = [place.shape[1] for place in places]
    frame, row, column = torch.cat([place.to(places[0].device) for place in places], dim=1).long()
    numbers = ((frame << 32) + ((row + 1) << 16) + column + 1).split(lengths)  # in the order of frame, row, column
    padded = pad_sequence(list(numbers), batch_first=True, padding_value=2.0**62)  # (layers, tokens), beyond all numbers
    deeper, order = padded[1:].sort(dim=1, stable=True)
    at = torch.searchsorted(deeper, padded[:-1].contiguous()).clamp(max=padded.shape[1] - 1)
    there, index = deeper.gather(1, at) == padded[:-1], order.gather(1, at)
    return [(index[layer, :length], there[layer, :length]) for layer, length in enumerate(lengths[:-1])]


def with_anchors(score: Tensor, frames: Tensor, count: int, share: float, decay: float) -> Tensor:
    """The scores of layers with so many anchors above everything else: the best tokens of frames on ever finer grids over
    the stream.

    The newest frame and the first one are anchors, then those whose distance to the first has the largest power of two in it
    for their age, so that those wanted later are among those kept before. The host does not wait for a device.

    Args:
        score: (layers, tokens), float32.
        frames: (layers, tokens), the frame number of each, negative for summary tokens, which anchor nothing.
        count: how many anchors a layer has, if it has as many frames.
        share: of a frame's tokens that are anchors, one at least; the largest frame of a layer says how many one has.
        decay: with which power of their age the distances of anchors grow.
    """
    seen = frames >= 0
    newest = frames.amax(dim=1, keepdim=True)
    first = frames.masked_fill(~seen, torch.iinfo(frames.dtype).max).amin(dim=1, keepdim=True)
    step, age = (frames - first).long(), (newest - frames).double() + 1
    grid = (step & -step).double() / age.pow(decay)
    grid = grid.masked_fill((frames == first) | (frames == newest), torch.inf)
    rank, largest = _rank_in_frame(score, frames)
    anchors = seen & (rank < (share * largest).round().clamp(min=1))
    order = score.argsort(dim=1, descending=True, stable=True)
    finest = grid.masked_fill(~anchors, -torch.inf).gather(1, order).argsort(dim=1, descending=True, stable=True)
    chosen = torch.zeros_like(seen).scatter(1, order.gather(1, finest)[:, :count], value=True)
    return score.masked_fill(chosen & anchors, torch.inf)


def _rank_in_frame(score: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
    """How many tokens of its own frame score better than each, (layers, tokens), and the tokens of the largest frame of each
    layer, (layers, 1)."""
    best_first = score.argsort(dim=1, descending=True, stable=True)
    order = best_first.gather(1, frames.gather(1, best_first).argsort(dim=1, stable=True))  # by frame, best first
    ordered = frames.gather(1, order)
    begins = F.pad(ordered.diff(dim=1) != 0, (1, 0), value=True)
    places = torch.arange(score.shape[1], device=score.device)
    rank = places - (places * begins).cummax(dim=1).values
    largest = rank.masked_fill(ordered < 0, 0).amax(dim=1, keepdim=True) + 1
    return torch.empty_like(rank).scatter(1, order, rank), largest
