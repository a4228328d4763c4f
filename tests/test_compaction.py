"""Compaction: what is kept, what is folded, and keys rotated to their new positions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

from hermes.cache import SUMMARY_ORIGIN, Origin, SlabCache, SlotShape
from hermes.compaction import KeepPlan, compact, compact_positions
from hermes.models import VideoModel
from hermes.rope import rotate, unrotate

PREFIX, VISUAL, KV_HEADS, HEAD_DIM = 3, 20, 2, 16


def angles(positions: Tensor) -> tuple[Tensor, Tensor]:
    """Plain rotary embedding of (batch, 1, tokens) positions, angles in float64."""
    frequencies = 10000.0 ** -(torch.arange(HEAD_DIM // 2, dtype=torch.float64) / (HEAD_DIM // 2))
    angle = positions[:, 0, :, None].double() * frequencies
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos().float(), angle.sin().float()


def turned(raw: Tensor, positions: Tensor) -> Tensor:
    """Keys at positions, one complex number per pair of channels, in float64."""
    frequencies = 10000.0 ** -(torch.arange(HEAD_DIM // 2, dtype=torch.float64) / (HEAD_DIM // 2))
    pairs = torch.complex(raw[..., : HEAD_DIM // 2].double(), raw[..., HEAD_DIM // 2 :].double())
    pairs = pairs * torch.polar(torch.ones(()).double(), positions[:, None].double() * frequencies)
    return torch.cat((pairs.real, pairs.imag), dim=-1)


def filled(positions: list[int], dtype: torch.dtype = torch.float32) -> tuple[SlabCache, Tensor, Tensor]:
    """A one-layer cache of random tokens at `positions`, with their unrotated keys and their values."""
    cache = SlabCache(SlotShape(KV_HEADS, HEAD_DIM, 1, dtype), 400, [torch.device("cpu")])
    where = torch.tensor(positions, dtype=torch.float32)
    raw = torch.randn(KV_HEADS, len(positions), HEAD_DIM)
    values = torch.randn(KV_HEADS, len(positions), HEAD_DIM).to(dtype)
    text, video = Origin.text(PREFIX), Origin.grid(range(len(positions) - PREFIX), 1, 1)
    place = torch.cat((text.place, video.place), dim=1)
    cache.stage(where[None], Origin(place, torch.cat((text.count, video.count))))
    cache.layers[0].update(turned(raw, where).to(dtype)[None], values[None])
    return cache, raw, values


SCATTERED = [0, 1, 2, *range(5, 5 + 3 * VISUAL, 3)]
KEEP = [0, 1, 2, 4, 5, 9, 12, 13, 22]


@pytest.mark.parametrize("reindex", [False, True])
def test_kept_keys_stand_at_their_new_positions(reindex: bool) -> None:
    cache, raw, values = filled(SCATTERED)
    compact(cache, KeepPlan((torch.tensor(KEEP),), (0,)), PREFIX, reindex, angles)
    layer = cache.layers[0]
    expected = list(range(len(KEEP))) if reindex else [SCATTERED[index] for index in KEEP]
    assert layer.positions[0, : layer.length].tolist() == expected
    assert layer.next_position == expected[-1] + 1
    torch.testing.assert_close(
        layer.keys[0, :, : layer.length].double(), turned(raw[:, KEEP], torch.tensor(expected)), atol=1e-5, rtol=0
    )
    assert torch.equal(layer.values[0, :, : layer.length], values[:, KEEP])
    assert layer.place[0, PREFIX : layer.length].tolist() == [index - PREFIX for index in KEEP[PREFIX:]]


@pytest.mark.parametrize("reindex", [False, True])
def test_dropped_tokens_fold_into_a_summary(reindex: bool) -> None:
    cache, raw, values = filled(SCATTERED)
    compact(cache, KeepPlan((torch.tensor(KEEP),), (1,)), PREFIX, reindex, angles)
    layer = cache.layers[0]
    dropped = [index for index in range(PREFIX + VISUAL) if index not in KEEP]
    target = len(KEEP) if reindex else SCATTERED[KEEP[-1]] + 1
    moved = turned(raw[:, dropped], torch.full((len(dropped),), target))  # each to the target, then averaged
    assert layer.length == len(KEEP) + 1
    assert layer.positions[0, layer.length - 1] == target
    torch.testing.assert_close(layer.keys[0, :, layer.length - 1].double(), moved.mean(dim=1), atol=1e-5, rtol=0)
    torch.testing.assert_close(layer.values[0, :, layer.length - 1], values[:, dropped].mean(dim=1))
    assert layer.place[0, layer.length - 1] == SUMMARY_ORIGIN
    assert layer.count[layer.length - 1] == len(dropped)


def test_a_summary_counts_all_the_tokens_it_has_come_to_stand_for() -> None:
    cache, _, _ = filled(SCATTERED)
    compact(cache, KeepPlan((torch.arange(10),), (1,)), PREFIX, False, angles)
    compact(cache, KeepPlan((torch.arange(6),), (1,)), PREFIX, False, angles)
    layer = cache.layers[0]
    assert layer.count[:PREFIX].sum() == 0
    assert layer.count[: layer.length].sum() == VISUAL


@pytest.mark.parametrize("reindex", [False, True])
def test_each_stretch_of_what_is_dropped_folds_into_a_summary_of_its_own(reindex: bool) -> None:
    cache, raw, values = filled(SCATTERED)
    compact(cache, KeepPlan((torch.tensor(KEEP),), (4,)), PREFIX, reindex, angles)
    layer = cache.layers[0]
    dropped = [index for index in range(PREFIX + VISUAL) if index not in KEEP]  # 14 of them
    first = len(KEEP) if reindex else SCATTERED[KEEP[-1]] + 1
    stretches = [dropped[:4], dropped[4:8], dropped[8:11], dropped[11:]]
    for number, stretch in enumerate(stretches):
        slot = len(KEEP) + number
        moved = turned(raw[:, stretch], torch.full((len(stretch),), first + number)).mean(dim=1)
        torch.testing.assert_close(layer.keys[0, :, slot].double(), moved, atol=1e-5, rtol=0)
        torch.testing.assert_close(layer.values[0, :, slot], values[:, stretch].mean(dim=1))
        assert layer.positions[0, slot].item() == first + number
        assert layer.count[slot].item() == len(stretch)
    assert layer.length == len(KEEP) + 4


def test_a_summary_may_weigh_as_much_as_it_stands_for() -> None:
    cache, _, values = filled(SCATTERED)
    compact(cache, KeepPlan((torch.arange(10),), (1,)), PREFIX, False, angles)  # 13 tokens become one
    compact(cache, KeepPlan((torch.arange(6),), (1,), weighted=True), PREFIX, False, angles)  # 4 tokens and that one
    layer = cache.layers[0]
    torch.testing.assert_close(layer.values[0, :, layer.length - 1], values[:, 6:].mean(dim=1))


def test_nothing_is_folded_when_nothing_is_dropped() -> None:
    cache, _, _ = filled(SCATTERED)
    before = cache.snapshot()
    compact(cache, KeepPlan((torch.arange(PREFIX + VISUAL),), (1,)), PREFIX, False, angles)
    for name in ("0.keys", "0.values", "0.positions", "0.place"):
        assert torch.equal(cache.snapshot()[name], before[name])


def test_16_bit_keys_do_not_drift_over_300_renumberings() -> None:
    cache, raw, _ = filled(list(range(PREFIX + 320)), torch.bfloat16)
    layer = cache.layers[0]
    for _ in range(300):  # the oldest token goes, so every other one moves down by a position
        keep = torch.tensor([*range(PREFIX), *range(PREFIX + 1, layer.length)])
        compact(cache, KeepPlan((keep,), (0,)), PREFIX, True, angles)
    survivors = raw[:, -20:]
    expected = turned(survivors, layer.positions[0, PREFIX : layer.length])
    error = (layer.keys[0, :, PREFIX : layer.length].double() - expected).norm() / expected.norm()
    assert layer.length == PREFIX + 20
    assert error < 0.005


def test_unrotating_undoes_rotation_even_when_the_embedding_scales_it() -> None:
    vectors = torch.randn(2, 7, HEAD_DIM)
    cos, sin = angles(torch.arange(7.0)[None, None])
    scale = 1.3  # YaRN multiplies cos and sin
    torch.testing.assert_close(unrotate(rotate(vectors, scale * cos, scale * sin), scale * cos, scale * sin), vectors)


def test_rotation_equals_the_models_own(model: VideoModel) -> None:
    positions = torch.tensor([[[0.0, 7.0, 1999.0]]])
    cos, sin = model.cos_sin(positions)
    vectors = torch.randn(1, 2, 3, cos.shape[-1])
    _, expected = apply_rotary_pos_emb(vectors, vectors, cos, sin)
    torch.testing.assert_close(rotate(vectors, cos, sin), expected)


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ([[9, 12, 13, 40]], [[3, 4, 5, 6]]),
        ([[4, 4, 8, 8.5], [7, 9, 7, 9], [1, 1, 1, 1]], [[3, 3, 4, 5], [3, 4, 3, 4], [3, 3, 3, 3]]),
    ],
)
def test_positions_close_their_gaps_on_every_axis(positions: list[list[float]], expected: list[list[float]]) -> None:
    assert compact_positions(torch.tensor(positions, dtype=torch.float32), 3).tolist() == expected


def test_scratch_forgets_everything_appended_inside() -> None:
    cache, _, _ = filled(SCATTERED)
    before = cache.snapshot()
    with pytest.raises(RuntimeError), cache.scratch():
        cache.stage(torch.arange(4.0)[None], Origin.text(4))
        cache.update(torch.ones(1, KV_HEADS, 4, HEAD_DIM), torch.ones(1, KV_HEADS, 4, HEAD_DIM), 0)
        assert cache.lengths == [PREFIX + VISUAL + 4]
        raise RuntimeError
    after = cache.snapshot()
    assert all(torch.equal(before[name], after[name]) for name in before)
