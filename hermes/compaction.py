"""Carrying out a keep plan: gather what stays, fold what a deep layer drops into a summary token, renumber positions.

The only writer of kept keys. Works alike for one position axis (plain rotary embedding) and three (M-RoPE).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hermes.cache import SUMMARY_ORIGIN, SlabCache, SlabLayer
from hermes.rope import rotate, unrotate

CosSin = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Positions (batch, axes, tokens) to cos and sin, each (batch, tokens, head_dim), float32."""


@dataclass(frozen=True)
class KeepPlan:
    """What each layer keeps.

    Attributes:
        keep: per layer, cache indices to keep, ascending, prefix included, int64.
        summarise: per layer, whether the dropped tokens are folded into one summary token.
    """

    keep: tuple[Tensor, ...]
    summarise: tuple[bool, ...]

    @classmethod
    def everything(cls, lengths: Sequence[int]) -> KeepPlan:
        """Drop nothing; with re-indexing this only renumbers."""
        return cls(tuple(torch.arange(length) for length in lengths), (False,) * len(lengths))


def compact(cache: SlabCache, plan: KeepPlan, prefix: int, reindex: bool, cos_sin: CosSin) -> None:
    """Carry out `plan` in place (paper algorithm 1, equation 6, appendix E).

    Args:
        prefix: system tokens at the start of every layer, kept and never renumbered.
        reindex: renumber the kept tokens; otherwise they stay where they are.
        cos_sin: the model's rotary embedding.
    """
    for layer, keep, summarise in zip(cache.layers, plan.keep, plan.summarise, strict=True):
        _compact_layer(layer, keep.to(layer.device), summarise, prefix, reindex, cos_sin)
    tops = torch.stack([layer.positions[:, : layer.length].amax(dim=1).cpu() for layer in cache.layers])  # (layers, axes)
    for layer, top in zip(cache.layers, tops.tolist(), strict=True):
        layer.next_position = max(top) + 1
        if reindex:  # what comes next keeps its distance in time to the newest frame, which stands at the top now
            layer.time_shift = top[0] - cache.video_time


def _compact_layer(layer: SlabLayer, keep: Tensor, summarise: bool, prefix: int, reindex: bool, cos_sin: CosSin) -> None:
    _fill_raw_keys(layer, cos_sin)
    summary = _fold(layer, keep) if summarise and len(keep) < layer.length else None
    _gather(layer, keep)
    if reindex:
        _renumber(layer, prefix, cos_sin)
    if summary is not None:
        _append(layer, summary, cos_sin)


def _fill_raw_keys(layer: SlabLayer, cos_sin: CosSin) -> None:
    """Unrotate the keys that came in since the last compaction."""
    new = slice(layer.raw_length, layer.length)
    if new.start < new.stop:
        cos, sin = cos_sin(layer.positions[None, :, new])
        layer.raw_keys[:, :, new] = unrotate(layer.keys[:, :, new], cos, sin).to(layer.keys.dtype)
        layer.raw_length = layer.length


@dataclass(frozen=True)
class _Summary:
    raw_key: Tensor  # (1, kv_heads, 1, head_dim), float32
    value: Tensor  # (1, kv_heads, 1, head_dim), float32
    count: Tensor  # ()


def _fold(layer: SlabLayer, keep: Tensor) -> _Summary:
    """The mean of the dropped tokens. Rotating each to a common target and averaging is the same as averaging the
    unrotated keys and rotating once, since rotation is linear."""
    dropped = torch.ones(layer.length, dtype=torch.bool, device=layer.device)
    dropped[keep] = False
    indices = dropped.nonzero()[:, 0]
    raw_key = layer.raw_keys[:, :, indices].float().mean(dim=2, keepdim=True)
    value = layer.values[:, :, indices].float().mean(dim=2, keepdim=True)
    return _Summary(raw_key, value, layer.count[indices].sum())


def _gather(layer: SlabLayer, keep: Tensor) -> None:
    kept = len(keep)
    if kept == layer.length:
        return
    for slab in (layer.keys, layer.values, layer.raw_keys):
        slab[:, :, :kept] = slab.index_select(2, keep)
    for slab in (layer.positions, layer.place):
        slab[:, :kept] = slab.index_select(1, keep)
    layer.count[:kept] = layer.count.index_select(0, keep)
    layer.length = layer.raw_length = kept


def _renumber(layer: SlabLayer, prefix: int, cos_sin: CosSin) -> None:
    """Close the gaps in the positions and rotate the keys to match."""
    visual = slice(prefix, layer.length)
    if visual.start >= visual.stop:
        return
    layer.positions[:, visual] = compact_positions(layer.positions[:, visual], prefix)
    cos, sin = cos_sin(layer.positions[None, :, visual])
    layer.keys[:, :, visual] = rotate(layer.raw_keys[:, :, visual], cos, sin).to(layer.keys.dtype)


def compact_positions(positions: Tensor, start: int) -> Tensor:
    """Positions without gaps: on every axis the distinct values become start, start + 1, ... in the same order.

    With one axis, whose values are distinct, this is start, start + 1, ... over the tokens.

    Args and returns: (axes, tokens), float32.
    """
    ranks = [torch.unique(axis, return_inverse=True)[1] for axis in positions]
    return torch.stack(ranks).to(positions) + start


def _append(layer: SlabLayer, summary: _Summary, cos_sin: CosSin) -> None:
    """The summary token, one position behind the last kept token on every axis."""
    slot = layer.length
    target = layer.positions[:, :slot].amax() + 1
    layer.positions[:, slot] = target
    cos, sin = cos_sin(layer.positions[None, :, slot : slot + 1])
    layer.keys[:, :, slot : slot + 1] = rotate(summary.raw_key, cos, sin).to(layer.keys.dtype)
    layer.raw_keys[:, :, slot : slot + 1] = summary.raw_key.to(layer.keys.dtype)
    layer.values[:, :, slot : slot + 1] = summary.value.to(layer.values.dtype)
    layer.place[:, slot] = SUMMARY_ORIGIN
    layer.count[slot] = summary.count
    layer.length = layer.raw_length = slot + 1
