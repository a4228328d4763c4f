"""The engine against stock transformers, and what a question may never do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from hermes.attention import PromptProbe
from hermes.cache import SlabCache
from hermes.config import MemoryConfig, Sampling
from hermes.engine import EngineState, StreamEngine
from hermes.errors import ModelError, UsageError
from hermes.events import Answer, AnswerDelta, ChunkEncoded
from hermes.frames import Frame
from hermes.generate import decode
from hermes.models import VideoModel
from hermes.policies import POLICIES, make_policy
from tests.conftest import noise_frames

TOKENS = 9  # per frame of the random model
QUESTION = "What is on screen now?"


def engine_for(model: VideoModel, policy: str = "hermes", **changes: Any) -> StreamEngine:
    defaults = {"budget": 4 * TOKENS, "chunk_frames": 2, "position_room": 128, "history_tokens": 16}
    config = MemoryConfig.preset("paper", **{**defaults, **changes})
    return StreamEngine(model, config, make_policy(policy, config))


def watch(engine: StreamEngine, frames: list[Frame]) -> list[ChunkEncoded]:
    return [event for frame in frames if (event := engine.push(frame)) is not None]


def answer(engine: StreamEngine, question: str = QUESTION, **sampling: Any) -> Answer:
    *_, last = engine.ask(question, Sampling(**{"max_new_tokens": 8, **sampling}))
    assert isinstance(last, Answer)
    return last


@torch.inference_mode()
def answer_logits(engine: StreamEngine, question: str, tokens: int) -> Tensor:
    """Logits of every answer token, through the engine's own steps."""
    with engine.cache.scratch():
        engine._read_pending()
        hidden = engine._read_question(engine.prompt.question_ids(question), tokens)
        steps = list(decode(engine.runner, hidden, Sampling(max_new_tokens=tokens)))
    return torch.stack([step.logits for step in steps])


def memory_of(engine: StreamEngine) -> dict[str, Tensor]:
    return engine.snapshot().cache


def assert_same_memory(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def stock_inputs(stock: tuple[Any, Any], frames: list[Frame], question: str) -> Any:
    _, processor = stock
    content = [{"type": "video"}, {"type": "text", "text": question}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    clip = torch.from_numpy(np.stack([frame.rgb for frame in frames])).permute(0, 3, 1, 2)
    return processor(text=text, videos=[clip], return_tensors="pt")


@pytest.mark.parametrize("chunk_frames", [2, 4])
def test_sliding_window_equals_a_stock_forward_with_the_dropped_tokens_masked(
    stock: tuple[Any, Any], model: VideoModel, chunk_frames: int
) -> None:
    budget, frames = 5 * TOKENS, noise_frames(12)
    engine = engine_for(model, "fifo", budget=budget, chunk_frames=chunk_frames)
    watch(engine, frames)
    inputs = stock_inputs(stock, frames, QUESTION)
    total, prefix, visual = inputs["input_ids"].shape[1], engine.prefix, 12 * TOKENS
    allowed = torch.ones(total, total, dtype=torch.bool).tril()
    chunk = chunk_frames * TOKENS
    for end in range(chunk, visual + 1, chunk):  # after this chunk, everything older than the budget is gone
        allowed[prefix + end :, prefix : prefix + max(0, end - budget)] = False
    mask = torch.where(allowed, 0.0, torch.finfo(torch.float32).min)[None, None]
    with torch.inference_mode():
        inputs["attention_mask"] = mask
        expected = stock[0](**inputs).logits[0, -1]
    torch.testing.assert_close(answer_logits(engine, QUESTION, 1)[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("reindex", ["lazy", "eager"])
@pytest.mark.parametrize("guidance", ["forward", "embedding"])
def test_an_answer_leaves_the_memory_bit_identical(model: VideoModel, policy: str, reindex: str, guidance: str) -> None:
    engine = engine_for(model, policy, reindex=reindex, guidance=guidance)
    watch(engine, noise_frames(11))
    before = memory_of(engine)
    first = answer(engine)
    assert_same_memory(before, memory_of(engine))
    assert answer(engine).text == first.text


def test_a_cancelled_answer_leaves_the_memory_bit_identical(model: VideoModel) -> None:
    engine = engine_for(model)
    watch(engine, noise_frames(11))
    before = memory_of(engine)
    whole = answer(engine).text
    stream = engine.ask(QUESTION)
    assert isinstance(next(stream), AnswerDelta)
    stream.close()
    assert_same_memory(before, memory_of(engine))
    assert answer(engine).text == whole


def test_a_failing_answer_leaves_the_memory_bit_identical(model: VideoModel) -> None:
    engine = engine_for(model)
    watch(engine, noise_frames(6))
    before = memory_of(engine)
    model.model.lm_head.weight[5] = float("inf")
    with pytest.raises(ModelError, match="NaN or infinite"):
        answer(engine)
    assert_same_memory(before, memory_of(engine))


@pytest.mark.parametrize("reindex", ["lazy", "eager"])
def test_answers_do_not_depend_on_questions_asked_before(model: VideoModel, reindex: str) -> None:
    quiet, chatty = engine_for(model, reindex=reindex), engine_for(model, reindex=reindex)
    for frame in noise_frames(13):
        quiet.push(frame)
        chatty.push(frame)
        list(chatty.ask("How many?", Sampling(max_new_tokens=3), remember=False))
    assert_same_memory(memory_of(quiet), memory_of(chatty))
    assert answer(quiet).text == answer(chatty).text


def test_the_last_exchange_colours_what_is_kept(model: VideoModel) -> None:
    plain, coloured = engine_for(model), engine_for(model)
    for engine in (plain, coloured):
        watch(engine, noise_frames(4))
    answer(coloured)
    for engine in (plain, coloured):
        watch(engine, noise_frames(8)[4:])
    kept = [[layer.place[:, : layer.length].clone() for layer in engine.cache.layers] for engine in (plain, coloured)]
    assert any(not torch.equal(left, right) for left, right in zip(*kept, strict=True))


def test_a_restored_snapshot_continues_exactly(model: VideoModel) -> None:
    engine = engine_for(model)
    frames = noise_frames(15)
    watch(engine, frames[:9])
    answer(engine)
    state = engine.snapshot()
    watch(engine, frames[9:])
    expected, memory = answer(engine).text, memory_of(engine)
    engine.restore(state)
    watch(engine, frames[9:])
    assert_same_memory(memory, memory_of(engine))
    assert answer(engine).text == expected


def test_the_memory_never_grows_past_its_budget(model: VideoModel) -> None:
    engine = engine_for(model)
    watch(engine, noise_frames(2))
    allocated = engine.cache.nbytes
    for event in watch(engine, noise_frames(60)[2:]):
        assert max(event.visual_tokens) <= engine.config.budget
        answer(engine, max_new_tokens=2)
    assert engine.cache.nbytes == allocated


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    policy=st.sampled_from(["hermes", "fifo"]),
    reindex=st.sampled_from(["lazy", "eager"]),
    budget_frames=st.integers(1, 8),
    chunk_frames=st.integers(1, 4),
    frames=st.integers(20, 50),
    margin=st.sampled_from([0, 64, 1024]),
)
def test_no_position_ever_passes_the_models_range(
    small_model: Callable[..., VideoModel], policy: str, reindex: str, budget_frames: int, chunk_frames: int,
    frames: int, margin: int,
) -> None:  # fmt: skip
    limit = 400
    model = small_model(layers=3, max_positions=limit)
    seen: list[float] = []
    stage = model._stage

    def watched_stage(cache: SlabCache, *arguments: Any) -> Any:
        angles = stage(cache, *arguments)
        seen.append(cache.top_position - 1)
        return angles

    model._stage = watched_stage  # type: ignore[method-assign, assignment]
    engine = engine_for(
        model, policy, reindex=reindex, budget=budget_frames * TOKENS, chunk_frames=chunk_frames,
        reindex_margin=margin, position_room=100,
    )  # fmt: skip
    for frame in noise_frames(frames):
        engine.push(frame)
    list(engine.ask("?", Sampling(max_new_tokens=3)))
    assert max(seen) <= limit - 1


def test_a_full_memory_refuses_to_pass_the_models_range(small_model: Callable[..., VideoModel]) -> None:
    engine = engine_for(small_model(max_positions=400), "full", position_room=100)
    with pytest.raises(UsageError, match="400 positions") as caught:
        watch(engine, noise_frames(60))
    assert "--policy hermes" in caught.value.hint
    assert answer(engine).text  # what was seen can still be asked about


@pytest.mark.parametrize("broken", ["embed_frames", "forward", "cos_sin"])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError, KeyboardInterrupt])
def test_a_chunk_that_fails_leaves_everything_as_before_and_can_be_pushed_again(
    model: VideoModel, monkeypatch: pytest.MonkeyPatch, broken: str, error: type[BaseException]
) -> None:
    frames = noise_frames(14)
    untouched, engine = engine_for(model), engine_for(model)
    watch(untouched, frames[:7])
    watch(engine, frames[:7])
    before = memory_of(engine)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    layers = model.decoder.layers
    with monkeypatch.context() as patch:  # in the vision tower, in the middle of the decoder, at its start
        if broken == "forward":
            patch.setattr(layers[2].mlp, "forward", fail)
        else:
            patch.setattr(model, broken, fail)
        with pytest.raises(error):
            engine.push(frames[7])
    assert_same_memory(before, memory_of(engine))
    assert engine.now_s == 6.0
    watch(engine, frames[7:])
    watch(untouched, frames[7:])
    assert_same_memory(memory_of(untouched), memory_of(engine))


def test_a_failing_guidance_leaves_everything_as_before(model: VideoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_for(model)
    watch(engine, noise_frames(5))
    before = memory_of(engine)
    with monkeypatch.context() as patch:
        patch.setattr(PromptProbe, "attend", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            engine.push(noise_frames(6)[5])
    assert_same_memory(before, memory_of(engine))


def test_a_memory_interrupted_while_it_forgets_says_so(model: VideoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_for(model)
    watch(engine, noise_frames(5))
    state = engine.snapshot()
    with monkeypatch.context() as patch:
        patch.setattr("hermes.compaction._gather", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            engine.push(noise_frames(6)[5])
    with pytest.raises(ModelError, match="interrupted while it forgot"):
        answer(engine)
    engine.restore(state)
    assert answer(engine).text == answer(restored(model, state)).text


def restored(model: VideoModel, state: EngineState) -> StreamEngine:
    engine = engine_for(model)
    engine.restore(state)
    return engine


def test_while_an_answer_is_under_way_nothing_else_is_done(model: VideoModel) -> None:
    engine = engine_for(model)
    watch(engine, noise_frames(5))
    state, before = engine.snapshot(), memory_of(engine)
    stream = engine.ask(QUESTION)
    next(stream)
    for other in (
        lambda: answer(engine),
        lambda: engine.push(noise_frames(6)[5]),
        engine.snapshot,
        lambda: engine.restore(state),
    ):
        with pytest.raises(UsageError, match="still under way"):
            other()
    stream.close()
    assert_same_memory(before, memory_of(engine))
    assert engine.push(noise_frames(6)[5]) is not None


def test_what_cannot_fit_is_refused_at_the_first_frame(small_model: Callable[..., VideoModel]) -> None:
    model, (frame, *_) = small_model(max_positions=400), noise_frames(1)
    for policy, changes in (("hermes", {"budget": 300}), ("full", {"chunk_frames": 30}), ("hermes", {"budget": 10**9})):
        with pytest.raises(UsageError, match="the model has 400"):
            engine_for(model, policy, **changes).push(frame)


def test_pictures_and_times_that_make_no_sense_are_refused(model: VideoModel) -> None:
    engine = engine_for(model)
    engine.push(noise_frames(2)[1])
    good = noise_frames(1)[0].rgb
    for time_s, rgb in (
        (0.0, good),
        (float("nan"), good),
        (float("inf"), good),
        (2.0, good[:0]),
        (2.0, good[..., 0]),
        (2.0, good / 255),
    ):
        with pytest.raises(UsageError):
            engine.push(Frame(time_s, rgb))  # type: ignore[arg-type]
    assert engine.now_s == 1.0


def test_a_memory_of_another_prompt_or_configuration_is_not_taken_over(model: VideoModel) -> None:
    state = engine_for(model).snapshot()
    others = [engine_for(model, chunk_frames=3), engine_for(model, "fifo")]
    others.append(StreamEngine(model, others[0].config, prompt_style="released"))
    for other in others:
        with pytest.raises(UsageError, match="another model, prompt or memory configuration"):
            other.restore(state)


def test_two_engines_on_one_model_do_not_disturb_each_other_in_threads(model: VideoModel) -> None:
    frames = [noise_frames(12, seed=seed) for seed in (1, 2)]
    alone = [engine_for(model) for _ in frames]
    for engine, film in zip(alone, frames, strict=True):
        watch(engine, film)
    together = [engine_for(model) for _ in frames]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(watch, together, frames))
    for left, right in zip(alone, together, strict=True):
        assert_same_memory(memory_of(left), memory_of(right))


def test_chunks_start_at_fixed_frames_and_report_what_happened(model: VideoModel) -> None:
    engine = engine_for(model, chunk_frames=3)
    events = watch(engine, noise_frames(10))
    assert [(event.first_frame, event.frames, event.tokens) for event in events] == [
        (first, 3, 3 * TOKENS) for first in (0, 3, 6)
    ]
    assert [event.compression is not None for event in events] == [False, True, True]
    assert events[-1].compression is not None
    assert events[-1].compression.dropped == (27, 27, 28, 28)  # the deep layers make room for a summary token
    assert engine.now_s == 9.0
    assert answer(engine).at_s == 9.0


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_longest_answer_fits_at_any_moment(model: VideoModel, policy: str) -> None:
    engine = engine_for(model, policy)
    for count, frame in enumerate(noise_frames(7), start=1):
        engine.push(frame)
        if count in (1, 2, 7):
            result = answer(engine, max_new_tokens=10**6)
            assert result.question_tokens + result.answer_tokens <= engine.config.position_room


def test_questions_that_cannot_be_answered_are_refused(model: VideoModel) -> None:
    engine = engine_for(model)
    for question in ("", "  \n"):
        with pytest.raises(UsageError, match="empty"):
            list(engine.ask(question))
    with pytest.raises(UsageError, match="tokens; there is room for 128"):
        list(engine.ask("why? " * 100))
    with pytest.raises(UsageError, match="not UTF-8"):
        list(engine.ask("what is \udc80?"))


def test_a_question_before_the_first_frame_is_answered_without_video(model: VideoModel) -> None:
    result = answer(engine_for(model))
    assert result.at_s is None
    assert result.answer_tokens > 0
