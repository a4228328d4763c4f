"""Memory policies: what all of them promise, and each rule against a plain computation of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hermes.cache import TEXT_ORIGIN, Origin
from hermes.config import MemoryConfig
from hermes.engine import StreamEngine
from hermes.guidance import prompt_ids
from hermes.models import VideoModel
from hermes.policies import POLICIES, Guidance, Hermes, MemoryView, make_policy
from hermes.scoring import with_anchors
from tests.conftest import noise_frames

PREFIX = 5
HEADS, HEAD_DIM = 2, 4


def place_of(sizes: dict[int, int]) -> Tensor:
    """Places of frames with so many tokens each, in rows of two."""
    origins = [Origin.grid([frame], (size + 1) // 2, 2).place[:, :size] for frame, size in sizes.items()]
    return torch.cat(origins, dim=1)


def view_of(places: Sequence[Tensor], wanted: Sequence[Guidance | None], seed: int = 0) -> MemoryView:
    """Random attention where it is wanted, random keys and values."""
    random = torch.Generator().manual_seed(seed)
    attention = [
        torch.rand(place.shape[1], generator=random) if guidance else None
        for place, guidance in zip(places, wanted, strict=True)
    ]
    keys, values = ([torch.randn(HEADS, place.shape[1], HEAD_DIM, generator=random) for place in places] for _ in range(2))
    return MemoryView(PREFIX, attention, places, keys.__getitem__, values.__getitem__)


def kept_by(policy: str, budget: int, view: MemoryView, layer: int = 0) -> list[int]:
    """Visual tokens that stay, counted from 0 behind the prefix."""
    keep = make_policy(policy, MemoryConfig(budget=budget)).plan(view).keep[layer].tolist()
    assert keep[:PREFIX] == list(range(PREFIX))
    return [index - PREFIX for index in keep[PREFIX:]]


@pytest.mark.parametrize("name", POLICIES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_plan_keeps_the_prefix_and_no_more_than_the_budget(name: str, data: st.DataObject) -> None:
    layers = data.draw(st.integers(1, 5))
    frames = st.dictionaries(st.integers(0, 99), st.integers(1, 9), min_size=1, max_size=12)
    places = [place_of(dict(sorted(data.draw(frames).items()))) for _ in range(layers)]
    policy = make_policy(name, MemoryConfig(budget=data.draw(st.integers(2, 60))))
    plan = policy.plan(view_of(places, policy.guidance(layers)))
    for place, keep, fold in zip(places, plan.keep, plan.summaries, strict=True):
        length = PREFIX + place.shape[1]
        assert keep.dtype == torch.int64
        assert keep.tolist() == sorted(set(keep.tolist()))
        assert keep[:PREFIX].tolist() == list(range(PREFIX))
        assert keep[-1] < length
        visual = len(keep) - PREFIX + fold
        if not policy.bounded:
            assert len(keep) == length
        elif name == "recent":
            assert 1 <= visual <= policy.config.budget
        else:  # all others fill the budget
            assert visual == min(policy.config.budget, place.shape[1] + fold)


@pytest.mark.parametrize("name", POLICIES)
def test_a_stream_of_any_length_stays_within_the_budget(name: str, model: VideoModel) -> None:
    config = MemoryConfig(budget=31, chunk_frames=4, position_room=128, history_tokens=16)
    engine = StreamEngine(model, config, make_policy(name, config))
    for frame in noise_frames(40):
        engine.push(frame)
    assert (max(engine.visual_tokens) <= config.budget) == engine.policy.bounded


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    budget=st.integers(2, 40),
)
@settings(max_examples=60, deadline=None)
def test_recent_keeps_as_many_whole_newest_frames_as_fit(sizes: list[int], budget: int) -> None:
    numbered = {3 * index: size for index, size in enumerate(sizes)}
    kept = kept_by("recent", budget, view_of([place_of(numbered)], [None]))
    total = sum(sizes)
    fitting = [total - sum(sizes[start:]) for start in range(len(sizes)) if sum(sizes[start:]) <= budget]
    if fitting:
        assert kept == list(range(fitting[0], total))
    else:
        newest = range(total - sizes[-1], total)
        assert len(kept) == budget
        assert set(kept) <= set(newest)


def stream(frames: int, tokens: int, budget: int, chunk: int, step: int = 1, first: int = 0) -> Iterator[tuple[int, Tensor]]:
    """Each newest frame with what `uniform` holds then; what it has dropped is gone."""
    held = torch.empty(3, 0, dtype=torch.int32)
    numbers = range(first, first + frames * step, step)
    for start in range(0, frames, chunk):
        held = torch.cat((held, place_of(dict.fromkeys(numbers[start : start + chunk], tokens))), dim=1)
        if held.shape[1] > budget:
            held = held[:, kept_by("uniform", budget, view_of([held], [None]))]
        yield numbers[min(start + chunk, frames) - 1], held


def whole(held: Tensor, tokens: int) -> list[int]:
    """Frames of which all tokens are there."""
    counts = Counter(held[0].tolist())
    return sorted(frame for frame, count in counts.items() if count == tokens)


@pytest.mark.parametrize(("step", "first"), [(1, 0), (2, 0), (2, 1), (3, 7)])
@pytest.mark.parametrize("chunk", [1, 4, 7])
def test_uniform_never_lets_one_gap_be_more_than_twice_another(chunk: int, step: int, first: int) -> None:
    tokens, budget = 3, 35  # eleven whole frames and two tokens of another
    for newest, held in stream(3000, tokens, budget, chunk, step, first):
        frames = whole(held, tokens)
        if held.shape[1] < budget:
            continue
        *gaps, last = [later - earlier for earlier, later in pairwise(frames)]
        assert held.shape[1] == budget
        assert len(frames) == 11
        assert (frames[0], frames[-1]) == (first, newest)
        assert max(gaps) <= 2 * min(gaps)
        assert last <= 2 * min(gaps)
        assert gaps == sorted(gaps, reverse=True)


@pytest.mark.parametrize("frames", [12, 57, 400, 1001])
def test_uniform_keeps_the_same_however_the_frames_came(frames: int) -> None:
    by_chunk = [whole(list(stream(frames, 3, 35, chunk))[-1][1], 3) for chunk in (1, 5, 16, frames)]
    level = {number: math.inf if number == 0 else (number & -number) for number in range(frames)}
    ranked = sorted(range(frames - 1), key=lambda number: (-level[number], -number))
    assert by_chunk == [sorted([*ranked[:10], frames - 1])] * 4


def test_uniform_thins_frames_that_are_too_large_evenly() -> None:
    sizes = dict.fromkeys(range(8), 100)
    kept = kept_by("uniform", 40, view_of([place_of(sizes)], [None]))
    within = [5, 15, 25, 35, 45, 55, 65, 75, 85, 95]
    assert kept == [100 * frame + slot for frame in (0, 4, 6, 7) for slot in within]


@pytest.mark.parametrize(("name", "stand_in", "folded"), [("attention", "global", 0), ("streammem", "chat", 1)])
def test_attention_alone_ranks_every_layer(name: str, stand_in: str, folded: int) -> None:
    policy = make_policy(name, MemoryConfig(budget=6))
    wanted = policy.guidance(4)
    assert wanted == (Guidance(stand_in),) * 4
    view = view_of([place_of({0: 9, 1: 8})] * 4, wanted)
    plan = policy.plan(view)
    assert plan.summaries == (folded,) * 4
    for attention, keep in zip(view.attention, plan.keep, strict=True):
        assert attention is not None
        best = sorted(range(17), key=lambda token: -attention[token])[: 6 - folded]
        assert keep.tolist() == [*range(PREFIX), *sorted(PREFIX + token for token in best)]


def test_without_summaries_streammem_drops_for_good() -> None:
    policy = make_policy("streammem", MemoryConfig(budget=6, summaries=0))
    plan = policy.plan(view_of([place_of({0: 9})], policy.guidance(1)))
    assert (len(plan.keep[0]), plan.summaries) == (PREFIX + 6, (0,))


def test_the_chat_template_itself_is_a_guidance_prompt(model: VideoModel) -> None:
    asked = model.prompt("template").question_ids("why?")
    ids = prompt_ids(model, Guidance.CHAT, "Question: why? Answer: so")
    question = model.tokenize("why?")
    start = next(at for at in range(len(asked)) if asked[at : at + len(question)] == question)
    assert ids == asked[:start] + asked[start + len(question) :]
    assert ids


def cosine(left: Tensor, right: Tensor) -> float:
    dot = sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))
    return dot / math.sqrt(sum(a * a for a in left.tolist()) * sum(b * b for b in right.tolist()))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("budget", "recent_frames"), [(20, [19]), (40, [19]), (56, [18, 19])])
@pytest.mark.parametrize("seed", range(3))
def test_infinipot_drops_what_recent_frames_repeat_then_small_values(
    budget: int, recent_frames: list[int], seed: int
) -> None:
    place = place_of({**dict.fromkeys(range(20), 4), 3: 6, 19: 3})  # one has a row, and one a token, that recent ones lack
    view = view_of([place], [None], seed)
    keys, values = view.raw_keys(0), view.values(0)
    tokens = range(place.shape[1])
    recent = [token for token in tokens if place[0, token] in recent_frames]
    redundancy = {}
    for token in tokens:
        same = [other for other in recent if place[1:, other].equal(place[1:, token])]
        likeness = [cosine(keys[head, token], keys[head, other]) for other in same for head in range(HEADS)]
        redundancy[token] = sum(likeness) / max(len(likeness), 1)
    older = sorted((token for token in tokens if token not in recent), key=lambda token: redundancy[token])
    by_time = [*recent, *older][: budget // 2]
    norm = {token: sum(values[head, token].norm().item() for head in range(HEADS)) for token in tokens}
    rest = sorted((token for token in tokens if token not in by_time), key=lambda token: -norm[token])
    expected = sorted([*by_time, *rest[: budget - len(by_time)]])
    assert kept_by("infinipot", budget, view) == expected


@pytest.mark.parametrize("reindex", ["lazy", "eager"])
def test_a_view_gives_keys_as_they_are_without_their_positions(model: VideoModel, reindex: str) -> None:
    config = MemoryConfig.preset("paper", budget=31, chunk_frames=4, position_room=128, history_tokens=16, reindex=reindex)
    engine = StreamEngine(model, config, make_policy("recent", config))
    for frame in noise_frames(1) * 12:
        engine.push(replace(frame, time_s=float(engine.frames_seen)))
    view = MemoryView.of(engine.cache, engine.prefix, [None] * model.layers, model.cos_sin)
    keys, tokens = view.raw_keys(0), view.visual[0] // 3  # three equal frames; in layer 0 nothing else tells them apart
    assert keys.shape[1] == view.values(0).shape[1] == 27
    torch.testing.assert_close(keys[:, :tokens], keys[:, -tokens:], atol=1e-4, rtol=0)
    rotated = engine.cache.layers[0].keys[0, :, engine.prefix : engine.cache.layers[0].length]
    assert not torch.allclose(rotated[:, :tokens], rotated[:, -tokens:], atol=1e-2)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_scores_are_smoothed_with_those_of_the_same_token(data: st.DataObject) -> None:
    frames = st.dictionaries(st.integers(0, 9), st.integers(1, 5), min_size=1, max_size=6)
    places = [place_of(dict(sorted(data.draw(frames).items()))) for _ in range(4)]
    config = MemoryConfig(smoothing_alignment="origin")
    policy = Hermes(config)
    view = view_of(places, policy.guidance(4), data.draw(st.integers(0, 99)))
    expected: list[dict[tuple[int, ...], float]] = []
    for layer in reversed(range(4)):
        raw = dict(zip(map(tuple, places[layer].T.tolist()), policy.raw_scores(view)[layer].tolist(), strict=True))
        share = 0.0 if layer == 3 else config.smoothing_share(layer, 4)
        deeper = expected[0] if expected else {}
        expected.insert(0, {token: (1 - share) * own + share * deeper.get(token, own) for token, own in raw.items()})
    for scores, wanted in zip(policy.scores(view), expected, strict=True):
        assert scores.tolist() == pytest.approx(list(wanted.values()), abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_anchors_are_the_best_tokens_of_frames_on_ever_finer_grids(data: st.DataObject) -> None:
    sizes = data.draw(st.dictionaries(st.integers(-2, 40), st.integers(1, 5), min_size=1, max_size=20))
    sizes = {frame: size for frame, size in sorted(sizes.items()) if frame != TEXT_ORIGIN} | {
        41: data.draw(st.integers(1, 5))
    }
    frames = [frame for frame, size in sizes.items() for _ in range(size)]
    count, share = data.draw(st.integers(0, 30)), data.draw(st.floats(0, 1))
    decay = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    score = torch.rand(len(frames), generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    shown = [frame for frame in sizes if frame >= 0]
    first, newest = shown[0], shown[-1]
    each = max(1, round(share * max(sizes[frame] for frame in shown)))

    def grid(frame: int) -> float:
        step = frame - first
        return math.inf if frame in (first, newest) else (step & -step) / (newest - frame + 1) ** decay

    wanted: list[tuple[float, float, int]] = []
    for frame in shown:
        own = sorted((slot for slot, other in enumerate(frames) if other == frame), key=lambda slot: -score[slot])
        wanted += [(-grid(frame), -float(score[slot]), slot) for slot in own[:each]]
    anchors = {slot for *_, slot in sorted(wanted)[:count]}
    twice = torch.stack((torch.rand(len(frames)), score))  # layers do not disturb each other
    found = with_anchors(twice, torch.tensor([frames] * 2, dtype=torch.int32), count, share, decay)[1]
    assert {slot for slot, value in enumerate(found.tolist()) if value == math.inf} == anchors
    others = [slot for slot in range(len(frames)) if slot not in anchors]
    assert torch.equal(found[others], score[others])


def test_anchors_take_their_share_of_the_budget_and_scores_the_rest() -> None:
    place = place_of(dict.fromkeys(range(17), 4))
    policy = Hermes(MemoryConfig(budget=10, summaries=0, anchors=(0.0, 0.0, 0.5)))
    view = view_of([place] * 4, policy.guidance(4))
    score = policy.scores(view)[3]
    keep = [index - PREFIX for index in policy.plan(view).keep[3].tolist()[PREFIX:]]
    anchors = [max(range(4 * frame, 4 * frame + 4), key=lambda slot: score[slot]) for frame in (0, 16, 8, 12, 4)]
    others = sorted(set(range(68)) - set(anchors), key=lambda slot: -score[slot])[:5]
    assert sorted(keep) == sorted([*anchors, *others])


def test_layer_budgets_share_out_the_same_memory() -> None:
    config = MemoryConfig(budget=60, layer_budgets=(0.7, 1.0, 1.3))
    budgets = [config.layer_budget(layer, 10) for layer in range(10)]  # 1 shallow, 6 middle, 3 deep
    assert budgets[1] / budgets[0] == pytest.approx(10 / 7, abs=0.05)
    assert budgets[9] / budgets[1] == pytest.approx(1.3, abs=0.05)
    assert sum(budgets) == pytest.approx(600, abs=5)
    places = [place_of(dict.fromkeys(range(30), 4))] * 10
    plan = Hermes(config).plan(view_of(places, Hermes(config).guidance(10)))
    held = [len(keep) - PREFIX + folds for keep, folds in zip(plan.keep, plan.summaries, strict=True)]
    assert held == budgets
    assert Hermes(config).over_budget(PREFIX, [PREFIX + 60] * 10)  # more than shallow layers may keep
    assert not Hermes(config).over_budget(PREFIX, [PREFIX + budget for budget in budgets])
