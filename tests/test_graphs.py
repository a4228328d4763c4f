"""Steps of fixed shapes and CUDA graphs against the usual forward. On a CPU the steps run as they are; graphs need a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from hermes import static_step
from hermes.config import MemoryConfig
from hermes.engine import StreamEngine
from hermes.events import Answer
from hermes.graphs import BUCKETS, StepRunner, extent_for, graphs_run
from hermes.models import VideoModel, wrap_model
from hermes.static_step import StaticStep
from hermes.tiny.clip import write_clip
from hermes.tiny.world import RandomSource, make_video
from hermes_cli.app import main
from tests import make_tiny
from tests.conftest import noise_frames
from tests.test_engine import answer, answer_logits, assert_same_memory, memory_of, watch
from tests.test_evidence import Uneven, watched_answer
from tests.test_families import FAMILIES, QUESTION, engine_for, tiny

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
families = pytest.mark.parametrize("family", FAMILIES)
QUESTIONS = ["What?", QUESTION, QUESTION * 2, QUESTION * 4]  # of different buckets


def film() -> list[Any]:
    return noise_frames(9, width=40, height=32)  # the last one waits for its chunk


def pair(family: str, policy: str = "hermes", **changes: Any) -> tuple[StreamEngine, StreamEngine]:
    """Two engines that have seen the same: one reads as usual, one in steps of fixed shapes."""
    usual, stepping = engine_for(tiny(family), policy, **changes), engine_for(tiny(family), policy, **changes)
    stepping.runner.mode = "static"
    for engine in (usual, stepping):
        watch(engine, film())
    return usual, stepping


@torch.inference_mode()
def hidden_states(engine: StreamEngine, lengths: list[int]) -> tuple[Tensor, list[Tensor]]:
    """The last hidden states of made-up texts, one behind the other in one scratch, and what the cache notes of them."""
    generator = torch.Generator().manual_seed(3)
    with engine.cache.scratch():
        engine.cache.reserve(sum(lengths) + BUCKETS[-1])
        states = [
            engine.runner.read(torch.randn(length, engine.model.text_config.hidden_size, generator=generator))
            for length in lengths
        ]
        notes = [
            note[..., : layer.length].clone()
            for layer in engine.cache.layers
            for note in (layer.positions, layer.place, layer.count, torch.tensor([layer.next_position]))
        ]
    return torch.stack(states), notes


def assert_same_evidence(left: Answer, right: Answer) -> None:
    for ours, theirs in zip(left.evidence, right.evidence, strict=True):
        assert (ours.start_s, ours.end_s) == (theirs.start_s, theirs.end_s)
        assert ours.share == pytest.approx(theirs.share, abs=1e-5)


@families
def test_answers_equal_those_of_the_usual_forward(family: str) -> None:
    usual, stepping = pair(family)
    for question in [*QUESTIONS, *QUESTIONS]:  # the second time all steps are there
        expected, found = (answer_logits(engine, question, 12) for engine in (usual, stepping))
        torch.testing.assert_close(found, expected, atol=5e-5, rtol=0)
    assert {capture.tokens for capture in stepping.runner.captures} == {1, 32, 64, 128}
    assert not stepping.runner.failures


@families
def test_tokens_and_evidence_stay_equal_over_a_long_answer_and_the_memory_stays_as_it_was(family: str) -> None:
    usual, stepping = pair(family, position_room=256)
    for engine in (usual, stepping):
        engine.model.stop_ids = frozenset()
    before = memory_of(stepping)
    answer(stepping, max_new_tokens=2)  # makes the steps
    found, expected = (answer(engine, max_new_tokens=120) for engine in (stepping, usual))
    assert (found.text, found.answer_tokens) == (expected.text, 120)
    assert found.evidence
    assert_same_evidence(found, expected)
    assert_same_memory(memory_of(stepping), before)


@families
def test_a_text_of_any_length_is_filled_up_without_a_trace(family: str) -> None:
    usual, stepping = pair(family)
    lengths = [length for bucket in BUCKETS[1:4] for length in (bucket, bucket - 1, bucket + 1)]
    lengths = [*lengths, 1, 2, 1, 1, *lengths]
    (found, noted), (expected, notes) = (hidden_states(engine, lengths) for engine in (stepping, usual))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert all(map(torch.equal, noted, notes))
    assert len(stepping.runner.captures) < len(lengths)


def test_layers_may_hold_different_numbers_of_tokens(model: VideoModel) -> None:
    config = MemoryConfig(budget=40, chunk_frames=2)
    engine = StreamEngine(model, config, Uneven(config))
    watch(engine, noise_frames(12))
    expected, tokens, eye = watched_answer(engine, 6)
    engine.runner.mode = "static"
    watched_answer(engine, 6)
    found, same_tokens, other_eye = watched_answer(engine, 6)
    assert len(set(engine.cache.lengths)) == model.layers
    assert engine.runner.captures
    assert same_tokens == tokens
    torch.testing.assert_close(found, expected, atol=5e-5, rtol=0)
    for layer, attention in eye.probe.attention.items():
        torch.testing.assert_close(other_eye.probe.attention[layer], attention, atol=1e-5, rtol=0)


def test_evidence_of_an_older_answer_does_not_change_with_newer_ones() -> None:
    _, stepping = pair("llava_onevision")
    _, _, first = watched_answer(stepping, 4)
    sums = {layer: attention.clone() for layer, attention in first.probe.attention.items()}
    watched_answer(stepping, 9)
    for layer, attention in first.probe.attention.items():
        torch.testing.assert_close(attention, sums[layer], atol=1e-6, rtol=0)


def test_a_slab_that_grows_gets_new_steps() -> None:
    usual, stepping = pair("llava_onevision", "full")
    answer(stepping, evidence=False)
    outdated = list(stepping.runner._steps.values())
    for engine in (usual, stepping):
        capacity = engine.cache.slabs[0].capacity
        watch(engine, [frame for frame in noise_frames(60, width=40, height=32) if frame.time_s > 8])
        assert engine.cache.slabs[0].capacity > capacity
    assert answer(stepping).text == answer(usual).text
    assert answer(stepping).text == answer(usual).text
    assert outdated
    assert not any(ready is old for ready in stepping.runner._steps.values() for old in outdated)


def test_numbers_that_overflowed_in_one_answer_do_not_spoil_the_next() -> None:
    usual, stepping = pair("llava_onevision")
    answer(stepping)
    for layer in stepping.cache.layers:
        with torch.inference_mode():
            layer.keys[:, :, layer.length :] = layer.values[:, :, layer.length :] = float("nan")
    assert answer(stepping).text == answer(usual).text


def test_a_text_that_no_step_takes_is_read_as_usual() -> None:
    usual, stepping = pair("llava_onevision")
    capacity, longest = stepping.cache.slabs[0].capacity, max(stepping.cache.lengths)
    lengths = [capacity - longest - 1]  # filled up, it would not fit
    generator = torch.Generator().manual_seed(3)
    embeds = torch.randn(lengths[0], stepping.model.text_config.hidden_size, generator=generator)
    states = []
    for engine in (usual, stepping):
        with torch.inference_mode(), engine.cache.scratch():
            states.append(engine.runner.read(embeds))
    assert torch.equal(*states)
    assert not stepping.runner.captures
    assert not stepping.runner.failures


@pytest.mark.parametrize("broken", ["raises", "differs", "looks elsewhere"])
def test_a_step_that_fails_is_given_up_and_the_answer_comes_as_usual(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, stepping = pair("llava_onevision")
    run = StaticStep.run

    def failing(step: StaticStep) -> None:
        if broken == "raises":
            raise RuntimeError("operation not permitted when stream is capturing")
        run(step)
        step.output.add_(0.01 if broken == "differs" else 0)
        step._seen[:, :9].add_(0.01 if broken == "looks elsewhere" else 0)

    monkeypatch.setattr(StaticStep, "run", failing)
    with pytest.warns(RuntimeWarning, match="without CUDA graphs"):
        found = answer(stepping)
    expected = answer(usual)
    assert (found.text, found.evidence) == (expected.text, expected.evidence)
    assert not stepping.model.cuda_graphs
    assert not stepping.runner.captures
    assert "without CUDA graphs" in (stepping.runner.trouble() or "")
    assert stepping.runner.trouble() is None
    assert answer(stepping).text == expected.text


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.filterwarnings("ignore:answers come without CUDA graphs")
def test_whoever_looks_on_is_told(
    broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = StepRunner.__init__

    def stepping(self: StepRunner, *arguments: Any) -> None:
        runner(self, *arguments)
        self.mode = "static"

    monkeypatch.setattr(StepRunner, "__init__", stepping)
    monkeypatch.setattr(sys, "stdin", None)
    if broken:
        monkeypatch.setattr(StaticStep, "run", lambda step: 1 / 0)
    write_clip(make_video(4, RandomSource(7)), tmp_path / "film.mp4", size=96)
    film = ["watch", str(tmp_path / "film.mp4"), "-m", "tiny", "--device", "cpu", "--no-save", "-v"]
    asks = ["--ask", "end What is on screen?", "--ask", "end What is on screen?"]
    answers = []
    for switch in ["--cuda-graphs", "--no-cuda-graphs"]:
        assert main([*film, *asks, switch]) == 0
        told = capsys.readouterr()
        answers.append(told.out)
        used = switch == "--cuda-graphs"
        assert told.err.count("captured 2 CUDA graphs in ") == (used and not broken)
        assert told.err.count("warning: answers come without CUDA graphs") == (used and broken)
    assert len(set(answers)) == 1


def test_graphs_are_for_one_gpu_and_wanted_or_not(model: VideoModel) -> None:
    assert not graphs_run(model)  # a CPU
    assert StepRunner(model, model.new_cache(8)).mode == "eager"
    usual, stepping = pair("llava_onevision")
    stepping.model.cuda_graphs = False
    assert answer(stepping).text == answer(usual).text
    assert not stepping.runner.captures


@pytest.mark.parametrize(("needed", "extent"), [(1, 25), (25, 25), (26, 50), (75, 75), (76, 97), (97, 97)])
def test_a_step_looks_at_as_many_quarters_as_hold_something(needed: int, extent: int) -> None:
    assert extent_for(needed, 97) == extent


@pytest.mark.parametrize("slots", [7, 96, 512])  # in one, 4 and 32 blocks
def test_values_are_weighted_in_blocks(slots: int) -> None:
    weights, value = torch.rand(2, 3, slots), torch.randn(1, 2, slots, 8)
    torch.testing.assert_close(static_step._weighted(weights, value), weights @ value[0], atol=1e-4, rtol=0)


class Elsewhere(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises for whatever would make the host wait for the device: data that travels, or is asked for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        devices = {tensor.device.type for tensor in tensors((args, kwargs, result)) if tensor.dim()}
        assert devices <= {"cuda"}, f"{func} touches {devices}"
        return result


def tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            yield from tensors(part)
    elif isinstance(tree, dict):
        yield from tensors(list(tree.values()))


def imaginary(model: Any, processor: Any) -> VideoModel:
    """The same in 16 bits on a GPU that need not be there, inside a `FakeTensorMode`."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                empty = torch.empty(weight.shape, dtype=torch.bfloat16, device="cuda:0")
                module._parameters[name] = nn.Parameter(empty, requires_grad=False)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device="cuda:0")
    return wrap_model(model, processor, "imaginary")


@pytest.mark.parametrize("fused", [False, *([True] if static_step.KERNEL_KNOWN else [])])
@families
def test_a_step_never_waits_for_the_device(family: str, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of a GPU in 16 bits, on tensors without contents: asking one for its contents raises."""
    monkeypatch.setattr(static_step, "upload", lambda content, device: content.to(device))
    parts = make_tiny.FAMILIES[family]()
    with torch.no_grad(), FakeTensorMode():
        model = imaginary(*parts)
        cache = model.new_cache(500)
        assert cache.slabs[0].capacity == 512
        for tokens in BUCKETS:
            extent = 512 if tokens == 1 or fused else 256
            seen = torch.zeros(2, 512, device="cuda:0")
            step = StaticStep(model, cache, tokens, extent, seen, {1: 0, 2: 1}, fused)
            step.load(torch.zeros(tokens, model.text_config.hidden_size, dtype=model.dtype, device="cuda:0"))
            with Elsewhere():  # type: ignore[no-untyped-call]
                step.run()
            assert (step.output.device.type, step.output.dtype) == ("cuda", torch.bfloat16)


def documented_attention(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int, **options: Any
) -> Tensor:
    """`torch.nn.attention.varlen.varlen_attn` as it is documented, for one causal sequence."""
    assert (options.pop("window_size"), options.pop("enable_gqa")) == ((-1, 0), True)
    used, scale = int(options.pop("seqused_k")), options.pop("scale")
    assert not options
    assert (cu_seq_q.tolist(), cu_seq_k.tolist()) == ([0, len(query)], [0, len(key)])
    assert (max_q, max_k) == (len(query), len(key))
    group = query.shape[1] // key.shape[1]
    keys, values = (part[:used].repeat_interleave(group, dim=1) for part in (key, value))
    mask = torch.ones(len(query), used, dtype=torch.bool).tril(used - len(query))
    scores = torch.einsum("qhd,khd->hqk", query, keys) * scale
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~mask, float("-inf")).softmax(dim=-1), values)


@families
def test_the_librarys_kernel_is_told_what_to_read(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_step, "_VARLEN", documented_attention)
    usual, stepping = pair(family)
    stepping.runner._fused = True
    for question in [*QUESTIONS, *QUESTIONS]:
        expected, found = (answer_logits(engine, question, 6) for engine in (usual, stepping))
        torch.testing.assert_close(found, expected, atol=5e-5, rtol=0)
    assert all(capture.fused for capture in stepping.runner.captures)
    assert_same_evidence(answer(stepping), answer(usual))


def test_without_the_librarys_kernel_steps_do_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: Any, **options: Any) -> Tensor:
        raise RuntimeError("no kernel image is available for execution on the device")

    monkeypatch.setattr(static_step, "_VARLEN", missing)
    usual, stepping = pair("llava_onevision")
    stepping.runner._fused = True
    assert answer(stepping).text == answer(usual).text
    assert answer(stepping).text == answer(usual).text
    assert len(stepping.runner.failures) == 1
    assert {capture.fused for capture in stepping.runner.captures} == {False}
    assert stepping.model.cuda_graphs


def on_gpu(family: str, dtype: torch.dtype) -> VideoModel:
    model, processor = make_tiny.FAMILIES[family]()
    return wrap_model(model.to("cuda", dtype), processor, f"tiny {family}")


@needs_gpu
@families
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_graphs_give_the_answers_of_the_usual_forward(family: str, dtype: torch.dtype) -> None:
    engines = [engine_for(on_gpu(family, dtype), position_room=256) for _ in range(2)]
    engines[0].runner.mode = "eager"
    for engine in engines:
        engine.model.stop_ids = frozenset()
        watch(engine, film())
    usual, graphed = engines
    before = memory_of(graphed)
    answer(graphed, max_new_tokens=2)
    assert graphed.runner.captures, graphed.runner.failures
    assert graphed.model.cuda_graphs, graphed.runner.failures
    expected, found = (answer_logits(engine, QUESTION, 8) for engine in engines)
    tolerance = 1e-3 if dtype == torch.float32 else 0.2
    assert float((found[0] - expected[0]).norm() / expected[0].norm()) < tolerance
    if dtype == torch.float32:
        assert answer(graphed, max_new_tokens=100).text == answer(usual, max_new_tokens=100).text
    assert_same_memory(memory_of(graphed), before)
    watch(graphed, [frame for frame in noise_frames(30, width=40, height=32) if frame.time_s > 8])
    assert answer(graphed).answer_tokens == 8


@needs_gpu
def test_neither_a_graph_nor_a_chunk_makes_the_host_wait() -> None:
    engine = engine_for(on_gpu("llava_onevision", torch.bfloat16))
    watch(engine, film())
    answer(engine)
    with torch.inference_mode(), engine.cache.scratch():
        embeds = engine.model.embed_text([7])
        chunk = engine._placed(engine.tower.embed(noise_frames(2, width=40, height=32), 30, [30.0, 31.0]).tokens)
        engine.runner.read(embeds)
        torch.cuda.set_sync_debug_mode("error")
        try:
            engine.runner.read(engine.model.embed_text([9]))
            engine._append(chunk)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert engine.runner.captures, engine.runner.failures


@needs_gpu
def test_a_capture_that_fails_leaves_the_device_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_for(on_gpu("llava_onevision", torch.float32))
    engine.runner.mode = "eager"
    watch(engine, film())
    expected = answer(engine).text
    engine.runner.mode = "graphs"
    run = StaticStep.run

    def asking(step: StaticStep) -> None:
        run(step)
        step.output.sum().item()  # no capture allows that

    monkeypatch.setattr(StaticStep, "run", asking)
    with pytest.warns(RuntimeWarning, match="without CUDA graphs"):
        assert answer(engine).text == expected
    assert answer(engine).text == expected
