"""Every family of models against stock transformers, and what compression may never do in any of them."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.video_utils import VideoMetadata

from hermes.cache import SUMMARY_ORIGIN, TEXT_ORIGIN
from hermes.compaction import KeepPlan, compact
from hermes.config import MemoryConfig, Sampling
from hermes.engine import StreamEngine
from hermes.errors import UsageError
from hermes.frames import Frame
from hermes.models import VideoModel, llava_onevision, wrap_model
from hermes.models.base import Tokens
from hermes.models.llava_onevision import LlavaOnevision
from hermes.models.qwen_vl import MAX_PATCHES
from hermes.policies import POLICIES, make_policy
from tests import make_tiny
from tests.conftest import noise_frames
from tests.test_engine import answer, answer_logits, assert_same_memory, memory_of, watch

QUESTION = "What is on screen now?"
FAMILIES = sorted(make_tiny.FAMILIES)
QWEN = ["qwen2_5_vl", "qwen3_vl"]


def tiny(family: str, **sizes: Any) -> VideoModel:
    return wrap_model(*make_tiny.FAMILIES[family](**sizes), f"tiny {family}")


def engine_for(model: VideoModel, policy: str = "hermes", **changes: Any) -> StreamEngine:
    defaults = {"budget": 40, "chunk_frames": 2, "position_room": 128, "history_tokens": 16}
    config = MemoryConfig.preset("paper", **{**defaults, **changes})
    return StreamEngine(model, config, make_policy(policy, config))


def stock_inputs(processor: Any, frames: list[Frame], question: str) -> Any:
    """What the processor makes of the whole video and the question, told at which times the frames were taken."""
    content = [{"type": "video"}, {"type": "text", "text": question}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    clip = torch.from_numpy(np.stack([frame.rgb for frame in frames])).permute(0, 3, 1, 2)
    rate = 1.0 if len(frames) == 1 else (len(frames) - 1) / (frames[-1].time_s - frames[0].time_s)
    metadata = VideoMetadata(total_num_frames=len(frames), fps=rate, frames_indices=list(range(len(frames))))
    return processor(text=text, videos=[clip], video_metadata=[metadata], do_sample_frames=False, return_tensors="pt")


def trained_positions(inputs: Any, video_token: int, seconds_per_patch: float) -> Tensor:
    """(3, 1, tokens) positions of a prompt around one video as Qwen2.5-VL was trained (technical report, section 2.1.2):
    two a second in time, whole numbers; text goes on behind the largest of all."""
    ids = inputs["input_ids"][0]
    patches, rows, columns = inputs["video_grid_thw"][0].tolist()
    start = int((ids == video_token).nonzero()[0])
    places = [
        (start + math.floor(2 * seconds_per_patch * patch), start + row, start + column)
        for patch in range(patches)
        for row in range(rows // 2)
        for column in range(columns // 2)
    ]
    video = torch.tensor(places).T  # (3, visual tokens)
    after = len(ids) - start - video.shape[1]
    text = (torch.arange(start).expand(3, start), video.max() + 1 + torch.arange(after).expand(3, after))
    return torch.cat((text[0], video, text[1]), dim=1)[:, None]


def at_rate(frames: list[Frame], fps: float) -> list[Frame]:
    return [Frame(index / fps, frame.rgb) for index, frame in enumerate(frames)]


@pytest.mark.parametrize("chunk_patches", [1, 3, 8])
@pytest.mark.parametrize("count", [7, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_chunked_feeding_with_full_memory_equals_one_stock_forward(family: str, count: int, chunk_patches: int) -> None:
    """Wide frames: text after a video starts at the same place by every rule (see `Qwen25VL`)."""
    stock, processor = make_tiny.FAMILIES[family]()
    frames = noise_frames(count, width=160, height=16)
    inputs = stock_inputs(processor, frames, QUESTION)
    with torch.inference_mode():
        expected = stock(**inputs).logits[0, -1]
        generated = stock.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    model = tiny(family)
    engine = engine_for(model, "full", chunk_frames=chunk_patches * model.frames_per_patch)
    watch(engine, frames)
    torch.testing.assert_close(answer_logits(engine, QUESTION, 1)[0], expected, atol=1e-4, rtol=0)
    tokens = [token for token in generated.tolist() if token not in model.stop_ids]
    assert answer(engine).text == processor.tokenizer.decode(tokens, skip_special_tokens=True).strip()


@pytest.mark.parametrize("chunk_frames", [2, 6])
@pytest.mark.parametrize("fps", [0.5, 1.0, 1.5, 4.0])
def test_qwen25_counts_time_by_the_sampling_rate_as_in_training(fps: float, chunk_frames: int) -> None:
    stock, processor = make_tiny.qwen2_5_vl()
    frames = at_rate(noise_frames(11, width=40, height=32), fps)
    inputs = stock_inputs(processor, frames, QUESTION)
    assert float(inputs["second_per_grid_ts"][0]) == pytest.approx(2 / fps)
    inputs["position_ids"] = trained_positions(inputs, stock.config.video_token_id, 2 / fps)
    with torch.inference_mode():
        expected = stock(**inputs).logits[0, -1]
    engine = engine_for(tiny("qwen2_5_vl"), "full", chunk_frames=chunk_frames)
    watch(engine, frames)
    torch.testing.assert_close(answer_logits(engine, QUESTION, 1)[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("fps", [0.5, 4.0])
def test_qwen3_writes_the_time_of_every_picture(fps: float) -> None:
    stock, processor = make_tiny.qwen3_vl()
    frames = at_rate(noise_frames(9, width=40, height=32), fps)
    with torch.inference_mode():
        expected = stock(**stock_inputs(processor, frames, QUESTION)).logits[0, -1]
    engine = engine_for(tiny("qwen3_vl"), "full", chunk_frames=4)
    watch(engine, frames)
    torch.testing.assert_close(answer_logits(engine, QUESTION, 1)[0], expected, atol=1e-4, rtol=0)
    frame, row, column = engine.cache.layers[0].place[:, : engine.cache.layers[0].length]
    written = row == TEXT_ORIGIN
    assert frame[written].unique().tolist() == [TEXT_ORIGIN, 0, 2, 4, 6]  # every mark knows which picture it belongs to
    assert ((row == TEXT_ORIGIN) == (column == TEXT_ORIGIN)).all()


@pytest.mark.parametrize("reindex", ["lazy", "eager"])
@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("family", FAMILIES)
def test_in_every_family_policy_and_mode(family: str, policy: str, reindex: str) -> None:
    """An answer leaves the memory bit-identical, kept keys are the unrotated ones turned to their positions, the budget
    holds, and a restored snapshot goes on exactly."""
    frames = noise_frames(15, width=40, height=32)
    engine = engine_for(tiny(family), policy, reindex=reindex)
    watch(engine, frames[:11])
    before = memory_of(engine)
    answer(engine)
    assert_same_memory(before, memory_of(engine))
    if engine.policy.bounded:
        assert max(engine.visual_tokens) <= engine.config.budget
        assert_keys_stand_at_their_positions(engine)
    state = engine.snapshot()
    watch(engine, frames[11:])
    later, said = memory_of(engine), answer(engine).text
    engine.restore(state)
    watch(engine, frames[11:])
    assert_same_memory(later, memory_of(engine))
    assert answer(engine).text == said


def assert_keys_stand_at_their_positions(engine: StreamEngine) -> None:
    for layer in engine.cache.layers:
        alive = slice(engine.prefix, layer.length)
        expected = turned(layer.raw_keys[0, :, alive], layer.positions[:, alive], engine.model)
        torch.testing.assert_close(layer.keys[0, :, alive].double(), expected, atol=2e-5, rtol=0)


def turned(raw: Tensor, positions: Tensor, model: VideoModel) -> Tensor:
    """Keys at positions (axes, tokens), one complex number per pair of channels, in float64, written from the definition."""
    half = raw.shape[-1] // 2
    rope = model.text_config.rope_parameters
    frequencies = rope["rope_theta"] ** -(torch.arange(half, dtype=torch.float64) / half)
    sections = rope.get("mrope_section", [half])
    axis = [number for number, section in enumerate(sections) for _ in range(section)]
    if rope.get("mrope_interleaved"):  # time, row, column, time, row, column, ... as far as the sections reach
        axis = [j % 3 if j < 3 * sections[j % 3] else 0 for j in range(half)]
    angle = positions.double()[axis].T * frequencies  # (tokens, half)
    pairs = torch.complex(raw[..., :half].double(), raw[..., half:].double()) * torch.polar(torch.ones(()).double(), angle)
    return torch.cat((pairs.real, pairs.imag), dim=-1)


@pytest.mark.parametrize("family", QWEN)
def test_renumbering_closes_gaps_on_every_axis_and_time_goes_on_behind_it(family: str) -> None:
    engine = engine_for(tiny(family), "hermes", reindex="eager", chunk_frames=4)
    for frame in noise_frames(24, width=40, height=32):
        event = engine.push(frame)
        if event is None or event.compression is None:
            continue
        for layer in engine.cache.layers:
            summary = layer.place[0, engine.prefix : layer.length] == SUMMARY_ORIGIN
            visual = layer.positions[:, engine.prefix : layer.length]
            assert layer.next_position == layer.positions[:, : layer.length].max() + 1
            for axis in visual[:, ~summary if event.compression.dropped else slice(None)]:
                assert axis.unique().tolist() == list(range(engine.prefix, engine.prefix + len(axis.unique())))


@torch.inference_mode()
def test_fractions_of_a_position_survive_renumbering() -> None:
    """In the released layout time is not rounded: 1.5 frames a second are 2.67 positions a patch."""
    engine = engine_for(tiny("qwen2_5_vl"), "fifo", chunk_frames=8, chunk_positions="restart", budget=200)
    watch(engine, at_rate(noise_frames(8, width=40, height=32), 1.5))
    layer = engine.cache.layers[1]
    times = torch.unique(layer.positions[0, engine.prefix : layer.length]) - engine.prefix
    torch.testing.assert_close(times, torch.arange(4) * (2 * 2 / 1.5), atol=1e-5, rtol=0)
    compact(engine.cache, KeepPlan.everything(engine.cache.lengths), engine.prefix, True, engine.model.cos_sin)
    assert torch.unique(layer.positions[0, engine.prefix : layer.length]).tolist() == [engine.prefix + k for k in range(4)]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    family=st.sampled_from(QWEN),
    policy=st.sampled_from(["hermes", "fifo"]),
    reindex=st.sampled_from(["lazy", "eager"]),
    chunk_patches=st.integers(1, 3),
    gaps=st.lists(st.floats(0.1, 12.0) | st.just(10**5), min_size=16, max_size=24),
    chunk_positions=st.sampled_from(["continue", "restart"]),
)
def test_no_position_ever_passes_the_models_range(
    family: str, policy: str, reindex: str, chunk_patches: int, gaps: list[float], chunk_positions: str
) -> None:
    limit = 500
    model = tiny(family, layers=3, max_positions=limit)
    seen: list[float] = []
    stage = model._stage

    def watched_stage(cache: Any, tokens: Tokens, shared_rotation: bool) -> Any:
        angles = stage(cache, tokens, shared_rotation)
        seen.append(max(float(layer.positions[:, : layer.length + len(tokens)].max()) for layer in cache.layers))
        return angles

    model._stage = watched_stage  # type: ignore[method-assign]
    engine = engine_for(
        model, policy, reindex=reindex, chunk_frames=2 * chunk_patches, budget=40, position_room=80,
        reindex_margin=0, chunk_positions=chunk_positions, longest_gap_s=15.0,
    )  # fmt: skip
    for time_s, frame in zip(np.cumsum(gaps), noise_frames(len(gaps), width=24, height=16), strict=True):
        engine.push(Frame(float(time_s), frame.rgb))
    list(engine.ask("?", Sampling(max_new_tokens=3)))
    assert max(seen) <= limit - 1


def test_positions_belong_to_the_memory_and_not_to_the_model() -> None:
    """Two videos in turn on one Qwen model answer as each alone (the model's own `rope_deltas` has no say)."""
    frames = [noise_frames(12, seed=seed, width=40, height=32) for seed in (1, 2)]
    model = tiny("qwen2_5_vl")
    alone = [engine_for(model) for _ in frames]
    for engine, film in zip(alone, frames, strict=True):
        watch(engine, film)
    together = [engine_for(model) for _ in frames]
    for pair in zip(*frames, strict=True):
        for engine, frame in zip(together, pair, strict=True):
            engine.push(frame)
            list(engine.ask("?", Sampling(max_new_tokens=2), remember=False))
    for left, right in zip(alone, together, strict=True):
        torch.testing.assert_close(answer_logits(left, QUESTION, 1), answer_logits(right, QUESTION, 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", QWEN)
def test_a_question_between_two_frames_of_a_pair_reads_the_first_twice_as_stock_does(family: str) -> None:
    stock, processor = make_tiny.FAMILIES[family]()
    frames = noise_frames(5, width=160, height=16)
    engine = engine_for(tiny(family), "full", chunk_frames=4)
    watch(engine, frames)
    with torch.inference_mode():
        expected = stock(**stock_inputs(processor, frames, QUESTION)).logits[0, -1]
    torch.testing.assert_close(answer_logits(engine, QUESTION, 1)[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", QWEN)
def test_chunks_that_would_cut_a_pair_are_refused(family: str) -> None:
    with pytest.raises(UsageError, match="joins every 2"):
        engine_for(tiny(family), chunk_frames=3)


@pytest.mark.parametrize("seconds", [int, np.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_times_may_be_any_kind_of_number(family: str, seconds: Any) -> None:
    engine = engine_for(tiny(family))
    watch(engine, [Frame(seconds(index), frame.rgb) for index, frame in enumerate(noise_frames(4))])
    assert answer(engine).answer_tokens > 0


def test_a_long_gap_takes_no_more_positions_than_the_longest() -> None:
    engine = engine_for(tiny("qwen2_5_vl"), "full", chunk_frames=2, longest_gap_s=10.0)
    for time_s in (0, 1, 2, 3, 5000, 5001, 5002, 5003):
        engine.push(Frame(float(time_s), noise_frames(1)[0].rgb))
    times = torch.unique(engine.cache.layers[0].positions[0, engine.prefix : engine.cache.layers[0].length])
    assert (times - engine.prefix).tolist() == [0, 4, 2 * (3 + 10), 2 * (3 + 10 + 2)]


@pytest.mark.parametrize("family", QWEN)
def test_a_stream_may_change_its_size_at_any_frame(family: str) -> None:
    engine = engine_for(tiny(family), "hermes", chunk_frames=4)
    sizes = [(40, 32)] * 3 + [(32, 40)] * 2 + [(16, 16)] * 3
    for index, (width, height) in enumerate(sizes):
        frame = noise_frames(1, width=width, height=height)[0]
        engine.push(Frame(float(index), frame.rgb))
    assert answer(engine).answer_tokens > 0


@settings(max_examples=60, deadline=None)
@given(family=st.sampled_from(QWEN), width=st.integers(1, 3000), height=st.integers(1, 3000))
@example(family="qwen2_5_vl", width=4321, height=3)
@example(family="qwen3_vl", width=3, height=4321)
@example(family="qwen2_5_vl", width=1, height=1)
def test_frames_of_any_size_become_tokens_within_the_limits(family: str, width: int, height: int) -> None:
    model = remembered(family)
    size = model.chunk_size(2, width, height)
    assert 1 <= size.tokens <= MAX_PATCHES


@functools.cache
def remembered(family: str) -> VideoModel:
    return tiny(family)


@pytest.mark.parametrize("family", QWEN)
def test_the_limit_of_pixels_can_be_set(family: str) -> None:
    model = tiny(family)
    model.limit_pixels(6 * 64)
    assert model.chunk_size(2, 640, 480).tokens <= 6
    with pytest.raises(UsageError, match="63 pixels are too few"):
        model.limit_pixels(63)
    with pytest.raises(UsageError, match="fixed size"):
        tiny("llava_onevision").limit_pixels(1000)


def test_large_frames_are_resized_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llava_onevision")
    assert isinstance(model, LlavaOnevision)
    frames = noise_frames(7)
    together = model.pixels(frames)
    monkeypatch.setattr(llava_onevision, "_PIXELS_TOGETHER", 3 * 40 * 30)
    sizes: list[int] = []
    processor = model.processor.video_processor

    def counting(clip: Tensor, **options: Any) -> Any:
        sizes.append(len(clip))
        return processor(clip, **options)

    monkeypatch.setattr(model.processor, "video_processor", counting)
    assert torch.equal(model.pixels(frames), together)
    assert sizes == [3, 3, 1]
