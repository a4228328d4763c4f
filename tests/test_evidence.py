"""Which moments an answer drew on: the weights against stock transformers, what watching may never do, how right it is."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hermes.cache import SUMMARY_ORIGIN, TEXT_ORIGIN
from hermes.compaction import KeepPlan
from hermes.config import MemoryConfig, Role, Sampling
from hermes.engine import StreamEngine
from hermes.evals.shapes import ShapesTask, chance, evaluate_shapes, tracing
from hermes.events import Answer, Moment
from hermes.evidence import MOMENTS, Watch, frame_shares, moments
from hermes.frames import Frame
from hermes.generate import decode
from hermes.models import VideoModel, load_model
from hermes.policies import POLICIES, Fifo, MemoryView
from hermes.tiny import checkpoint_folder
from hermes.tiny.clip import write_clip
from hermes.tiny.render import video_frames
from hermes.tiny.world import RandomSource, Video, make_video
from hermes_cli.app import main
from tests import make_tiny
from tests.conftest import noise_frames
from tests.test_engine import QUESTION, assert_same_memory, memory_of, watch
from tests.test_families import FAMILIES, engine_for, stock_inputs, tiny


@pytest.fixture
def embedded() -> VideoModel:
    return load_model(checkpoint_folder(), device="cpu")


def world_frames(video: Video) -> list[Frame]:
    return [Frame(float(second), picture) for second, picture in enumerate(video_frames(video, 48))]


def answer(engine: StreamEngine, question: str = QUESTION, **sampling: Any) -> Answer:
    *_, last = engine.ask(question, Sampling(**{"max_new_tokens": 8, **sampling}), remember=False)
    assert isinstance(last, Answer)
    return last


def test_runs_of_heavy_frames_are_moments_up_to_the_next_frame() -> None:
    times_s = [0.0, 0.5, 2.0, 3.0, 4.0, 5.0, 7.5]
    shares = [0.0, 0.3, 0.1, 0.02, 0.25, 0.03, 0.2]
    assert moments(shares, times_s) == (Moment(0.5, 3.0, 0.4), Moment(4.0, 5.0, 0.25), Moment(7.5, 7.5, 0.2))
    assert moments(shares, times_s, count=1) == (Moment(0.5, 3.0, 0.4),)
    assert moments([0.25] * 4, times_s[:4]) == (Moment(0.0, 3.0, 1.0),)  # nothing stands out
    assert moments([0.0] * 4, times_s[:4]) == moments([], []) == ()


@given(st.lists(st.floats(0, 1), max_size=40))
def test_moments_are_disjoint_ordered_by_share_and_never_more_than_the_whole(weights: list[float]) -> None:
    whole = sum(weights) or 1.0
    found = moments([weight / whole for weight in weights], [float(second) for second in range(len(weights))])
    shares = [moment.share for moment in found]
    assert len(found) <= MOMENTS
    assert shares == sorted(shares, reverse=True)
    assert all(0 < share <= 1 for share in shares)
    assert sum(shares) <= 1 + 1e-6
    in_time = sorted(found, key=lambda moment: moment.start_s)
    assert all(one.end_s < other.start_s for one, other in pairwise(in_time))


def test_shares_are_of_all_that_was_seen_summaries_included() -> None:
    layers = [
        (torch.tensor([5.0, 1.0, 2.0, 1.0]), torch.tensor([TEXT_ORIGIN, 0, 2, SUMMARY_ORIGIN])),
        (torch.tensor([3.0, 4.0, 0.0]), torch.tensor([TEXT_ORIGIN, 2, 2])),
    ]
    received, numbers = zip(*layers, strict=True)
    assert frame_shares(received, numbers, frames=4).tolist() == [0.125, 0.0, 0.75, 0.0]
    assert frame_shares(received, numbers, frames=4, joined=2).tolist() == [0.0625, 0.0625, 0.375, 0.375]
    assert frame_shares(received, numbers, frames=3, joined=2).tolist() == [0.0625, 0.0625, 0.75]  # a last frame by itself
    assert frame_shares([torch.ones(2)], [torch.tensor([TEXT_ORIGIN] * 2)], frames=0).tolist() == []


@torch.inference_mode()
def watched_answer(engine: StreamEngine, tokens: int, looking: bool = True) -> tuple[Tensor, list[int], Watch]:
    """Logits and ids of the answer's tokens, and a watch over all layers, through the engine's own steps."""
    with engine.cache.scratch():
        engine._read_pending()
        times_s = [*engine.frame_times_s, *(frame.time_s for frame in engine._pending)]
        eye = Watch(engine.cache, range(engine.model.layers), times_s, engine.model.frames_per_patch)
        probe = eye.probe if looking else None
        hidden = engine._read_question(engine.prompt.question_ids(QUESTION), tokens, probe)
        steps = list(decode(engine.runner, hidden, Sampling(max_new_tokens=tokens), probe))
    return torch.stack([step.logits for step in steps]), [step.token for step in steps], eye


@pytest.mark.parametrize("family", FAMILIES)
def test_the_attention_is_that_of_stock_transformers_in_every_layer(family: str) -> None:
    stock, processor = make_tiny.FAMILIES[family]()
    stock.set_attn_implementation("eager")
    frames = noise_frames(8, width=160, height=16)
    inputs = stock_inputs(processor, frames, QUESTION)
    model = tiny(family)
    engine = engine_for(model, "full", chunk_frames=6)
    watch(engine, frames)  # the last two wait
    _, ids, eye = watched_answer(engine, 6)
    with torch.inference_mode():
        written = stock.generate(
            **inputs, max_new_tokens=len(ids), min_new_tokens=len(ids), do_sample=False, output_attentions=True,
            return_dict_in_generate=True,
        )  # fmt: skip
    asked = inputs["input_ids"].shape[1]
    assert written.sequences[0, asked:].tolist() == ids
    for layer, attention in eye.probe.attention.items():
        rows = [step[layer][0, :, -1, : len(attention)].mean(dim=0) for step in written.attentions]
        torch.testing.assert_close(attention, torch.stack(rows).sum(dim=0), atol=1e-5, rtol=0)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("family", FAMILIES)
def test_watching_changes_neither_the_answer_nor_the_memory(family: str, policy: str) -> None:
    engine = engine_for(tiny(family), policy)
    watch(engine, noise_frames(11, width=40, height=32))
    before = memory_of(engine)
    plain, watched = (watched_answer(engine, 8, looking) for looking in (False, True))
    assert torch.equal(plain[0], watched[0])
    seen, unseen = answer(engine), answer(engine, evidence=False)
    assert_same_memory(before, memory_of(engine))
    assert seen.text == unseen.text
    assert (bool(seen.evidence), unseen.evidence) == (True, ())


@pytest.mark.parametrize("family", FAMILIES)
def test_moments_lie_among_the_frames_that_the_deep_layers_still_hold(family: str) -> None:
    engine = engine_for(tiny(family))
    watch(engine, noise_frames(41, width=40, height=32))
    roles, layers = engine.config.roles(engine.model.layers), engine.cache.layers
    deep = [layer.place[0, : layer.length] for layer, role in zip(layers, roles, strict=True) if role is Role.DEEP]
    joined = range(engine.model.frames_per_patch)
    held = {int(number) + later for number in torch.cat(deep) if number >= 0 for later in joined}
    evidence = answer(engine).evidence
    assert evidence
    for moment in evidence:
        assert held.issuperset(range(int(moment.start_s), int(moment.end_s)))
    assert sum(moment.share for moment in evidence) <= 1


@dataclass(frozen=True)
class Uneven(Fifo):
    """Deeper layers keep less."""

    def plan(self, view: MemoryView) -> KeepPlan:
        plan = super().plan(view)
        return replace(plan, keep=tuple(keep[: len(keep) - 3 * layer] for layer, keep in enumerate(plan.keep)))


def test_layers_may_hold_different_numbers_of_tokens(model: VideoModel) -> None:
    config = MemoryConfig(budget=40, chunk_frames=2)
    engine = StreamEngine(model, config, Uneven(config))
    watch(engine, noise_frames(12))
    lengths = engine.cache.lengths
    assert len(set(lengths)) == model.layers
    _, _, eye = watched_answer(engine, 4)
    assert [len(attention) for attention in eye.probe.attention.values()] == lengths
    assert eye.moments()


def test_a_frame_that_waits_for_its_chunk_can_be_a_moment(embedded: VideoModel) -> None:
    video = make_video(60, RandomSource("evidence of a waiting frame"))
    scene = next(scene for scene in video.scenes if scene.start > 32)
    engine = StreamEngine(embedded, MemoryConfig(chunk_frames=scene.start))
    watch(engine, world_frames(video)[: scene.start + 2])
    assert engine.snapshot().pending
    first, *_ = answer(engine, "What is on screen now?").evidence
    assert (first.start_s, first.end_s) == (scene.start, scene.start + 1)
    alone = StreamEngine(embedded, MemoryConfig())
    watch(alone, world_frames(video)[:1])
    [moment] = answer(alone, "What is on screen now?").evidence
    assert (moment.start_s, moment.end_s) == (0.0, 0.0)
    assert moment.share == pytest.approx(1)


def test_a_cancelled_answer_has_the_evidence_of_what_came(model: VideoModel) -> None:
    engine = engine_for(model)
    assert engine.evidence == ()
    frames = noise_frames(13)
    watch(engine, frames[:9])
    whole, first = answer(engine).evidence, answer(engine, max_new_tokens=1).evidence
    assert whole != first
    stream = engine.ask(QUESTION, remember=False)
    next(stream)
    assert engine.evidence == first
    stream.close()
    watch(engine, frames[9:])
    assert engine.evidence == first


def test_a_memory_without_frames_has_no_moments(model: VideoModel) -> None:
    assert answer(engine_for(model)).evidence == ()


def test_right_answers_about_the_past_name_the_scene_they_are_read_from(embedded: VideoModel) -> None:
    """`hermes eval shapes --evidence` says it for more videos."""
    task = ShapesTask(frames=64, videos=4, seed="evidence of a scene")
    samples = list(evaluate_shapes(embedded, MemoryConfig(budget=96), ["full", "hermes"], task))
    for policy in ("full", "hermes"):
        found, by_chance = tracing(samples, 64, policy)
        assert found.total >= 20
        assert by_chance < 0.4
        assert found.share >= 0.8


def test_chance_is_the_share_of_places_where_a_moment_would_lie_in_the_scene() -> None:
    assert chance([Moment(7.0, 9.0, 0.5)], (2, 4), 12.0) == pytest.approx(0.2)  # its middle can be at 1 to 11
    assert chance([Moment(7.0, 9.0, 0.5)] * 2, (2, 4), 12.0) == pytest.approx(0.36)
    assert chance([Moment(7.0, 9.0, 0.5)], (0, 2), 12.0) == pytest.approx(0.1)
    assert chance([Moment(0.0, 12.0, 1.0)], (5, 7), 12.0) == 1.0
    assert chance([Moment(0.0, 12.0, 1.0)], (0, 2), 12.0) == 0.0
    assert chance([], (0, 2), 12.0) == 0.0


@pytest.fixture
def film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HF_HUB_CACHE", "/nonexistent")
    monkeypatch.delenv("HERMES_MODEL", raising=False)
    monkeypatch.setattr("sys.stdin", None)
    path = tmp_path / "film.mp4"
    write_clip(make_video(20, RandomSource("evidence of a film")), path)
    return str(path)


def test_answers_in_json_have_their_evidence_unless_told_not_to(film: str, capsys: pytest.CaptureFixture[str]) -> None:
    evidence = []
    for option in ("--evidence", "--no-evidence"):
        assert main(["ask", film, "What did you see first?", "--json", option]) == 0
        evidence.append(json.loads(capsys.readouterr().out)["evidence"])
    assert evidence[1] == []
    assert all(set(moment) == {"start", "end", "share"} for moment in evidence[0])
    assert evidence[0][0]["start"] == 0.0


def test_a_line_names_the_moments_for_who_reads_along(film: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = []
    for options in (["-v"], ["-v", "--no-evidence"], []):
        assert main(["ask", film, "What did you see first?", *options]) == 0
        lines.append([line for line in capsys.readouterr().err.splitlines() if line.startswith("drew on ")])
    assert re.fullmatch(r"drew on 00:00-00:0\d \(\d+ %\)(, \d\d:\d\d(-\d\d:\d\d)? \(\d+ %\))*", lines[0][0])
    assert lines[1:] == [[], []]


def test_the_evaluation_has_a_column_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["eval", "shapes", "--frames", "24", "--videos", "1", "--questions", "8", "--policy", "full", "--evidence"]
    assert main(small) == 0
    header, _, row = capsys.readouterr().out.splitlines()
    assert header == "| Frames | Policy | Realtime | Backward | Evidence | By chance |"
    assert row.count("|") == 7
    assert main([*small, "-o", "json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["evidence"]
    assert (found["frames"], found["policy"], 0 <= found["chance"] <= 1) == (24, "full", True)
