"""Importance scores against the formulas written out one number at a time, in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from hermes.config import PRESETS, MemoryConfig, Role, Sampling
from hermes.errors import UsageError
from hermes.policies import Guidance, Hermes, MemoryView
from hermes.scoring import pool_attention


def naive_score(attention: list[float], omega: float, rate: float) -> list[float]:
    count = len(attention)
    curve = [math.exp(-rate * (count - 1 - index) / max(count - 1, 1)) for index in range(count)]

    def scaled(values: list[float]) -> list[float]:
        return [(value - min(values)) / (max(values) - min(values) + 1e-6) for value in values]

    pairs = zip(scaled(attention), scaled(curve), strict=True)
    return [(1 - omega) * weight + omega * recent for weight, recent in pairs]


def view_of(attention: list[Tensor | None], tokens: int) -> MemoryView:
    return MemoryView(5, attention, [torch.zeros(3, tokens, dtype=torch.int32) for _ in attention])


@pytest.mark.parametrize(
    ("preset", "omega", "rate"),
    [
        ("paper", lambda p: 0.75 - 0.6 * p, lambda p: 20 - 12 * p),
        ("llava-code", lambda p: 1 - 0.9 * p, lambda p: 20 - 19.5 * p),
        ("qwen-code", lambda p: 0.75 - 0.6 * p, lambda p: 20 - 12 * p),
    ],
)
def test_scores_follow_the_equations(preset: str, omega: object, rate: object) -> None:
    layers, tokens = 10, 23
    policy = Hermes(MemoryConfig.preset(preset, budget=9))
    attention = [torch.rand(tokens, generator=torch.Generator().manual_seed(layer)) for layer in range(layers)]
    raw = []
    for layer in range(layers):  # layer 0 shallow, 1 to 6 middle, 7 to 9 deep
        place = (layer - 1) / 6
        by_role = (1.0, 20.0) if layer < 1 else (0.0, 0.0) if layer >= 7 else (omega(place), rate(place))  # type: ignore[operator]
        raw.append(naive_score(attention[layer].tolist(), *by_role))
    wanted = [row if guidance else None for row, guidance in zip(attention, policy.guidance(layers), strict=True)]
    view = view_of(wanted, tokens)
    torch.testing.assert_close(torch.stack(policy.raw_scores(view)).double(), torch.tensor(raw).double(), atol=2e-6, rtol=0)
    smoothed = [list(row) for row in raw]
    for layer in range(layers - 2, -1, -1):
        share = 0.1 if layer < 1 else 0.4 if layer >= 7 else 0.3
        smoothed[layer] = [(1 - share) * a + share * b for a, b in zip(raw[layer], smoothed[layer + 1], strict=True)]
    torch.testing.assert_close(torch.stack(policy.scores(view)).double(), torch.tensor(smoothed).double(), atol=2e-6, rtol=0)
    plan = policy.plan(view)
    for layer, keep in enumerate(plan.keep):
        count = 8 if layer >= 7 else 9
        best = sorted(range(tokens), key=lambda token: -smoothed[layer][token])[:count]
        assert keep.tolist() == [*range(5), *sorted(token + 5 for token in best)]
    assert plan.summaries == (0,) * 7 + (1,) * 3


def test_raw_smoothing_reads_the_unsmoothed_deeper_score_and_off_reads_none() -> None:
    attention: list[Tensor | None] = [torch.rand(6) for _ in range(4)]
    view = view_of(attention, 6)
    scores = {mode: Hermes(MemoryConfig.preset("paper", smoothing_mode=mode)).scores(view) for mode in ("raw", "off")}
    torch.testing.assert_close(scores["off"], Hermes(MemoryConfig()).raw_scores(view))
    torch.testing.assert_close(scores["raw"][1], 0.7 * scores["off"][1] + 0.3 * scores["off"][2])


def test_pooling_averages_heads_then_prompt_tokens_and_cuts_prefix_and_prompt() -> None:
    weights = torch.rand(3, 4, 2 + 5 + 4).softmax(dim=-1)
    expected = [sum(weights[h, q, 2 + i].item() for h in range(3) for q in range(4)) / 12 for i in range(5)]
    torch.testing.assert_close(pool_attention(weights, prefix=2, visual=5), torch.tensor(expected))


def test_roles_split_layers_as_the_released_code_does() -> None:
    roles = MemoryConfig().roles(28)
    assert [roles.count(role) for role in (Role.SHALLOW, Role.MIDDLE, Role.DEEP)] == [2, 17, 9]
    assert roles == tuple(sorted(roles, key=[Role.SHALLOW, Role.MIDDLE, Role.DEEP].index))


def test_guidance_is_wanted_only_where_attention_counts() -> None:
    mixed, whole = Guidance.MIXED, Guidance.GLOBAL
    assert Hermes(PRESETS["paper"]).guidance(10) == (None, *[mixed] * 6, *[whole] * 3)
    assert Hermes(PRESETS["llava-code"]).guidance(10) == (None, None, *[mixed] * 5, *[whole] * 3)


def test_a_protected_summary_is_never_dropped() -> None:
    places = [torch.zeros(3, 12, dtype=torch.int32) for _ in range(4)]
    for place in places:
        place[:, 4] = -2
    attention: list[Tensor | None] = [torch.linspace(1, 2, 12) for _ in range(4)]
    attention = [row.clone().index_fill_(0, torch.tensor([4]), 0.0) for row in attention if row is not None]
    kept = {}
    for protect in (False, True):
        policy = Hermes(MemoryConfig(budget=5, protect_summary=protect))
        kept[protect] = policy.plan(MemoryView(3, attention, places)).keep[-1].tolist()
    assert 3 + 4 not in kept[False]
    assert 3 + 4 in kept[True]


@pytest.mark.parametrize(
    "changes",
    [{"budget": 1}, {"chunk_frames": 0}, {"shallow_share": 0.9}, {"guidance": "x"}, {"reindex": ""}, {"smoothing_mode": "?"},
     {"colour": 3}],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        MemoryConfig.preset("paper", **changes)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e-320, 1e300])
@pytest.mark.parametrize("name", ["temperature", "top_p", "repetition_penalty"])
def test_sampling_out_of_range_is_refused(name: str, value: float) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(UsageError, match=name):
        Sampling(**settings)


@pytest.mark.parametrize("settings", [{"seed": -1}, {"seed": 2**64}, {"max_new_tokens": 0}])
def test_sampling_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Sampling(**settings)


def test_unknown_presets_are_refused() -> None:
    with pytest.raises(UsageError, match="paper"):
        try:
            MemoryConfig.preset("best")
        except UsageError as error:
            raise UsageError(error.hint) from error
