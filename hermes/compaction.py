"""Carrying out a keep plan: gather what stays, fold what a deep layer drops into summary tokens, renumber positions.

The only writer of kept keys. Works alike for one position axis (plain rotary embedding) and three (M-RoPE).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hermes.cache import SUMMARY_ORIGIN, Run, SlabCache
from hermes.rope import rotate, unrotate

CosSin = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Positions (batch, axes, tokens) to cos and sin, each (batch, tokens, head_dim), float32."""


@dataclass(frozen=True)
class KeepPlan:
    """What each layer keeps.

    Attributes:
        keep: per layer, cache indices to keep, ascending, prefix included, int64.
        summaries: per layer, how many summary tokens the dropped ones are folded into, each those of another stretch.
        weighted: whether a slot that stands for several tokens counts as often among those that are folded.
    """

    keep: tuple[Tensor, ...]
    summaries: tuple[int, ...]
    weighted: bool = False

    @classmethod
    def everything(cls, lengths: Sequence[int]) -> KeepPlan:
        """Drop nothing; with re-indexing this only renumbers."""
        return cls(tuple(torch.arange(length) for length in lengths), (0,) * len(lengths))


def compact(cache: SlabCache, plan: KeepPlan, prefix: int, reindex: bool, cos_sin: CosSin) -> None:
    """Carry out `plan` in place (paper algorithm 1, equation 6, appendix E).

    Layers that hold, keep and fold alike are done together, and the host waits for the devices once, at the end.

    Args:
        prefix: system tokens at the start of every layer, kept and never renumbered.
        reindex: renumber the kept tokens; otherwise they stay where they are.
        cos_sin: the model's rotary embedding.
    """
    fill_raw_keys(cache, cos_sin)
    for run in cache.runs([len(keep) for keep in plan.keep], plan.summaries):
        keep = torch.stack(plan.keep[run.span]).to(run.slab.device)
        dropped = run.length - keep.shape[1]
        summaries = min(plan.summaries[run.first], dropped)
        summary = _fold(run, keep, summaries, plan.weighted) if summaries else None
        if dropped:
            _gather(run, keep)
        if reindex:
            _renumber(run, prefix, cos_sin)
        if summary:
            _append(run, summary, cos_sin)
    home = cache.layers[-1].device
    tops = [run.slab.positions[run.rows, :, : run.length].amax(dim=2).to(home) for run in cache.runs()]  # (layers, axes)
    for layer, top in zip(cache.layers, torch.cat(tops).tolist(), strict=True):
        layer.next_position = max(top) + 1
        if reindex:  # what comes next keeps its distance in time to the newest frame, which stands at the top now
            layer.time_shift = top[0] - cache.video_time


def fill_raw_keys(cache: SlabCache, cos_sin: CosSin) -> None:
    """Unrotate the keys that came in since the last compaction."""
    for run in cache.runs():
        rows, new = run.rows, slice(run.layers[0].raw_length, run.length)
        if new.start < new.stop:
            cos, sin = _angles(run.slab.positions[rows, :, new], cos_sin)
            run.slab.raw_keys[rows, :, new] = unrotate(run.slab.keys[rows, :, new], cos, sin).to(run.slab.keys.dtype)
        for layer in run.layers:
            layer.raw_length = run.length


def _angles(positions: Tensor, cos_sin: CosSin) -> tuple[Tensor, Tensor]:
    """cos and sin at (layers, axes, tokens) positions for keys (layers, kv_heads, tokens, head_dim)."""
    cos, sin = cos_sin(positions)
    return cos[:, None], sin[:, None]


@dataclass(frozen=True)
class _Summary:
    """Summary tokens, so many in each layer."""

    raw_key: Tensor  # (layers, kv_heads, summaries, head_dim), float32
    value: Tensor  # (layers, kv_heads, summaries, head_dim), float32
    count: Tensor  # (layers, summaries)


def _fold(run: Run, keep: Tensor, summaries: int, weighted: bool) -> _Summary:
    """The means of the dropped tokens, one for each of so many stretches of equal length.

    Rotating each to a common target and averaging is the same as averaging the unrotated keys and rotating once, since
    rotation is linear.
    """
    kept = torch.zeros(len(keep), run.length, dtype=torch.int8, device=keep.device).scatter_(1, keep, 1)
    dropped = kept.argsort(dim=1, stable=True)[:, : run.length - keep.shape[1]]  # ascending; their number is known
    parts = [_mean(run, stretch, weighted) for stretch in dropped.tensor_split(summaries, dim=1)]
    return _Summary(
        torch.cat([part.raw_key for part in parts], dim=2),
        torch.cat([part.value for part in parts], dim=2),
        torch.cat([part.count for part in parts], dim=1),
    )


def _mean(run: Run, slots: Tensor, weighted: bool) -> _Summary:
    """One summary token out of (layers, folded) slots."""
    counts = run.slab.count[run.rows].gather(1, slots)
    weights = (counts if weighted else torch.ones_like(counts)).float()
    shares = (weights / weights.sum(dim=1, keepdim=True))[:, None, :, None]
    raw_key, value = (
        (_taken(slab[run.rows], slots).float() * shares).sum(dim=2, keepdim=True)
        for slab in (run.slab.raw_keys, run.slab.values)
    )
    return _Summary(raw_key, value, counts.sum(dim=1, keepdim=True))


def _gather(run: Run, keep: Tensor) -> None:
    slab, rows, kept = run.slab, run.rows, keep.shape[1]
    for content in (slab.keys, slab.values, slab.raw_keys):
        content[rows, :, :kept] = _taken(content[rows], keep)
    for facts in (slab.positions, slab.place):
        facts[rows, :, :kept] = facts[rows].gather(2, keep[:, None].expand(-1, facts.shape[1], -1))
    slab.count[rows, :kept] = slab.count[rows].gather(1, keep)
    for layer in run.layers:
        layer.length = layer.raw_length = kept


def _taken(content: Tensor, indices: Tensor) -> Tensor:
    """Slots of (layers, kv_heads, capacity, head_dim) at (layers, taken) indices: (layers, kv_heads, taken, head_dim).

    One copy of whole slots, which is faster than a gather of single numbers.
    """
    layers, kv_heads, capacity, head_dim = content.shape
    starts = torch.arange(layers * kv_heads, device=content.device).view(layers, kv_heads, 1) * capacity
    slots = (starts + indices[:, None]).flatten()
    return content.reshape(-1, head_dim).index_select(0, slots).view(layers, kv_heads, -1, head_dim)


def _renumber(run: Run, prefix: int, cos_sin: CosSin) -> None:
    """Close the gaps in the positions and rotate the keys to match."""
    slab, rows, visual = run.slab, run.rows, slice(prefix, run.length)
    if visual.start >= visual.stop:
        return
    slab.positions[rows, :, visual] = compact_positions(slab.positions[rows, :, visual], prefix)
    cos, sin = _angles(slab.positions[rows, :, visual], cos_sin)
    slab.keys[rows, :, visual] = rotate(slab.raw_keys[rows, :, visual], cos, sin).to(slab.keys.dtype)


def compact_positions(positions: Tensor, start: int) -> Tensor:
    """Positions without gaps: on every axis the distinct values become start, start + 1, ... in the same order.

    With one axis, whose values are distinct, this is start, start + 1, ... over the tokens.

    Args and returns: (..., axes, tokens), float32.
    """
    ascending, order = positions.sort(dim=-1)
    steps = (ascending.diff(dim=-1) > 0).cumsum(dim=-1)
    ranks = torch.nn.functional.pad(steps, (1, 0)).to(positions.dtype)
    return torch.empty_like(positions).scatter_(-1, order, ranks) + start


def _append(run: Run, summary: _Summary, cos_sin: CosSin) -> None:
    """The summary tokens, one position after another behind the last kept token, the same on every axis."""
    slab, rows, slots = run.slab, run.rows, slice(run.length, run.length + summary.count.shape[1])
    top = slab.positions[rows, :, : slots.start].amax(dim=(1, 2))  # (layers,)
    steps = torch.arange(1, summary.count.shape[1] + 1, device=top.device)
    slab.positions[rows, :, slots] = (top[:, None] + steps)[:, None]
    cos, sin = _angles(slab.positions[rows, :, slots], cos_sin)
    slab.keys[rows, :, slots] = rotate(summary.raw_key, cos, sin).to(slab.keys.dtype)
    slab.raw_keys[rows, :, slots] = summary.raw_key.to(slab.keys.dtype)
    slab.values[rows, :, slots] = summary.value.to(slab.values.dtype)
    slab.place[rows, :, slots] = SUMMARY_ORIGIN
    slab.count[rows, slots] = summary.count.to(slab.count.dtype)
    for layer in run.layers:
        layer.length = layer.raw_length = slots.stop
