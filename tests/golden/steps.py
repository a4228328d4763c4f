"""Replaying single compression steps (`s*`) and trajectories (`t*`): scores, keep plan, compaction, no model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hermes.cache import Origin, SlabCache, SlotShape
from hermes.compaction import CosSin, KeepPlan, compact
from hermes.policies import Hermes, MemoryView
from hermes.scoring import pool_attention
from tests.golden.recording import STEP_TOLERANCES, Differences, Recording


def check_step(recording: Recording) -> Differences:
    """One compression from recorded keys, values, positions and attention."""
    differences = Differences(STEP_TOLERANCES)
    policy, prefix = _policy(recording), recording.meta["prefix"]
    attention = _pooled(recording, policy)
    if recording.meta.get("score_only"):
        places = [torch.zeros(3, length - prefix, dtype=torch.int32) for length in recording.meta["lens"]]
        _compare_scores(differences, policy, MemoryView(prefix, attention, places), recording, "")
        return differences
    cache = _cache(*(recording.per_layer(f"{name}_in") for name in ("k", "v", "pos")))
    view = _view(cache, prefix, attention)
    _compare_scores(differences, policy, view, recording, "")
    plan = policy.plan(view)
    _compare_keep(differences, plan, recording, "keep")
    reindex = policy.config.reindex_due(cache.top_position - 1, recording.meta["max_pos"])
    differences.compare("flags", reindex, recording.meta["reindexed"])
    compact(cache, plan, prefix, reindex, _cos_sin(recording))
    _compare_cache(differences, cache, recording, "")
    differences.compare("positions", _next_positions(cache), recording["next_pos"])
    return differences


def check_trajectory(recording: Recording) -> Differences:
    """Six chunks in a row; summaries re-enter as ordinary tokens."""
    differences = Differences(STEP_TOLERANCES)
    policy, prefix = _policy(recording), recording.meta["prefix"]
    cache = _cache(*(recording.per_layer(f"s0_{name}_in") for name in ("k", "v", "pos")))
    for step in range(1, recording.meta["steps"] + 1):
        name = f"s{step}_"
        differences.compare("positions", _next_positions(cache), recording[f"{name}start"])
        _append_chunk(cache, recording, name, differences)
        view = _view(cache, prefix, _wanted(policy, recording.per_layer(f"{name}pooled")))
        _compare_scores(differences, policy, view, recording, name)
        plan = policy.plan(view)
        _compare_keep(differences, plan, recording, f"{name}keep")
        compressed = policy.over_budget(prefix, cache.lengths)
        reindex = compressed and policy.config.reindex_due(cache.top_position - 1, recording.meta["max_pos"])
        differences.compare("flags", [compressed, reindex], recording_flags(recording, name))
        if compressed:
            compact(cache, plan, prefix, reindex, _cos_sin(recording))
        _compare_cache(differences, cache, recording, name)
        differences.compare("positions", _next_positions(cache), recording[f"{name}next_pos"])
    return differences


def recording_flags(recording: Recording, name: str) -> list[bool]:
    """Whether a step compressed and whether it renumbered."""
    return [bool(recording[f"{name}compressed"]), bool(recording[f"{name}reindexed"])]


def _policy(recording: Recording) -> Hermes:
    return Hermes(recording.config("llava-code" if recording.meta["path"] == "1d" else "qwen-code"))


def _cache(keys: Sequence[Tensor], values: Sequence[Tensor], positions: Sequence[Tensor]) -> SlabCache:
    cpu = torch.device("cpu")
    kv_heads, _, head_dim = keys[0].shape
    rows = [position.float().reshape(-1, position.shape[-1]) for position in positions]  # (axes, tokens)
    capacity = 2 * max(key.shape[1] for key in keys) + 100
    cache = SlabCache(SlotShape(kv_heads, head_dim, len(rows[0]), torch.float32), capacity, [cpu] * len(keys))
    for layer, row in zip(cache.layers, rows, strict=True):
        tokens = row.shape[1]
        origin = Origin.grid(range(tokens), 1, 1)
        layer.positions[:, :tokens], layer.place[:, :tokens], layer.count[:tokens] = row, origin.place, origin.count
        layer.next_position = float(row.max()) + 1
    for layer, key, value in zip(cache.layers, keys, values, strict=True):
        layer.update(key[None], value[None])
    return cache


def _append_chunk(cache: SlabCache, recording: Recording, name: str, differences: Differences) -> None:
    recorded = [row.float().reshape(-1, row.shape[-1]) for row in recording.per_layer(f"{name}newpos")]
    origin = Origin.grid(range(recorded[0].shape[-1]), 1, 1)
    absolute = cache.stage(recorded[0] - cache.layers[0].next_position, origin)
    differences.compare("positions", absolute, torch.stack(recorded))
    for layer, key, value in zip(
        cache.layers, recording.per_layer(f"{name}newk"), recording.per_layer(f"{name}newv"), strict=True
    ):
        layer.update(key[None], value[None])


def _view(cache: SlabCache, prefix: int, attention: Sequence[Tensor | None]) -> MemoryView:
    return MemoryView(prefix, attention, [layer.place[:, prefix : layer.length] for layer in cache.layers])


def _pooled(recording: Recording, policy: Hermes) -> list[Tensor | None]:
    """Pooled attention of the layers where the policy wants any."""
    if "pooled_00" in recording:
        return _wanted(policy, recording.per_layer("pooled"))
    prefix = recording.meta["prefix"]
    weights = recording.per_layer("attn")  # (heads, prompt tokens, cached + prompt tokens)
    return _wanted(policy, [pool_attention(rows, prefix, rows.shape[2] - rows.shape[1] - prefix) for rows in weights])


def _wanted(policy: Hermes, attention: Sequence[Tensor]) -> list[Tensor | None]:
    wanted = policy.guidance(len(attention))
    return [row if guidance else None for row, guidance in zip(attention, wanted, strict=True)]


def _cos_sin(recording: Recording) -> CosSin:
    """The rotary embedding of the recording's settings, angles in float64; with M-RoPE frequency j turns by the axis that
    its section names."""
    half = recording.meta["head_dim"] // 2
    frequencies = recording.meta["theta"] ** -(torch.arange(half, dtype=torch.float64) / half)
    sections = recording.meta.get("mrope", [half])
    axis = torch.repeat_interleave(torch.arange(len(sections)), torch.tensor(sections))  # (half,)

    def cos_sin(positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions.double().transpose(1, 2)[..., axis] * frequencies  # (batch, tokens, half)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().float(), angles.sin().float()

    return cos_sin


def _next_positions(cache: SlabCache) -> list[float]:
    return [layer.next_position for layer in cache.layers]


def _compare_scores(differences: Differences, policy: Hermes, view: MemoryView, recording: Recording, name: str) -> None:
    for quantity, scores in (("raw", policy.raw_scores(view)), ("smooth", policy.scores(view))):
        for ours, recorded in zip(scores, recording.per_layer(f"{name}{quantity}"), strict=True):
            differences.compare(quantity, ours, recorded)


def _compare_keep(differences: Differences, plan: KeepPlan, recording: Recording, name: str) -> None:
    for ours, recorded in zip(plan.keep, recording.per_layer(name), strict=True):
        differences.compare("keep", ours, recorded)


def _compare_cache(differences: Differences, cache: SlabCache, recording: Recording, name: str) -> None:
    for layer, positions in zip(cache.layers, recording.per_layer(f"{name}pos_out"), strict=True):
        differences.compare("positions", layer.positions[:, : layer.length].reshape(positions.shape), positions)
    if f"{name}k_out_00" not in recording:
        return
    for layer, key, value in zip(
        cache.layers, recording.per_layer(f"{name}k_out"), recording.per_layer(f"{name}v_out"), strict=True
    ):
        differences.compare("keys", layer.keys[0, :, : layer.length], key)
        differences.compare("values", layer.values[0, :, : layer.length], value)
