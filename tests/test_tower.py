"""The vision tower of the next chunk beside the language model: nothing but the time it takes may change."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from hermes import tower as tower_module
from hermes.engine import StreamEngine
from hermes.events import ChunkEncoded
from hermes.frames import Frame
from hermes.models import VideoModel
from hermes.models.base import Tokens
from hermes.tower import Tower, runs_beside
from tests.conftest import noise_frames
from tests.test_engine import answer, assert_same_memory, engine_for, memory_of, watch
from tests.test_graphs import needs_gpu, on_gpu

AHEAD = "vision tower"
CHUNK = 2  # frames, of `engine_for`


class Threads:
    """Notes in which thread each chunk is embedded, by the number of its first frame."""

    def __init__(self, model: VideoModel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[int, str] = {}
        self._embed = model.embed_frames
        monkeypatch.setattr(model, "embed_frames", self._noted)

    def _noted(self, frames: Sequence[Frame], first_frame: int, elapsed_s: Sequence[float]) -> Tokens:
        self.of[first_frame] = threading.current_thread().name
        return self._embed(frames, first_frame, elapsed_s)


def looking_ahead(model: VideoModel, **changes: Any) -> StreamEngine:
    engine = engine_for(model, **changes)
    engine.tower.looks_ahead = True  # whatever this machine is like
    return engine


def watch_knowing(engine: StreamEngine, frames: list[Frame]) -> list[ChunkEncoded]:
    """As `watch`, with the frames to come known."""
    left, events = list(frames), list[ChunkEncoded]()
    while left:
        event = engine.push(left.pop(0), lambda count: left[:count])
        events += [event] if event else []
    return events


@pytest.mark.parametrize("policy", ["hermes", "full"])
def test_the_memory_is_the_same_bit_for_bit(model: VideoModel, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = noise_frames(11)
    usual = engine_for(model, policy)
    watch(usual, frames)
    expected = answer(usual).text
    threads = Threads(model, monkeypatch)
    engine = looking_ahead(model, policy=policy)
    events = watch_knowing(engine, frames)
    assert {first: name.startswith(AHEAD) for first, name in threads.of.items()} == {0: False} | dict.fromkeys(
        (2, 4, 6, 8), True
    )
    assert_same_memory(memory_of(engine), memory_of(usual))
    assert answer(engine).text == expected
    assert events[0].hidden_ms == 0
    assert all(0 <= event.hidden_ms <= event.vision_ms for event in events)


def test_the_tower_begins_while_the_language_model_works(model: VideoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, begun = noise_frames(2 * CHUNK), threading.Event()
    embed, forward = model.embed_frames, model.forward

    def beginning(frames: Sequence[Frame], first_frame: int, elapsed_s: Sequence[float]) -> Tokens:
        if first_frame:
            begun.set()
        return embed(frames, first_frame, elapsed_s)

    def waiting(*args: Any, **keywords: Any) -> torch.Tensor:
        assert begun.wait(60)
        return forward(*args, **keywords)

    engine = looking_ahead(model)
    monkeypatch.setattr(model, "embed_frames", beginning)
    monkeypatch.setattr(model, "forward", waiting)
    assert len(watch_knowing(engine, frames)) == 2


def test_other_frames_than_those_foreseen_are_read_as_they_come(model: VideoModel) -> None:
    frames, others = noise_frames(6), noise_frames(6, seed=1)
    usual = engine_for(model)
    watch(usual, [*frames[:2], *others[2:]])
    engine = looking_ahead(model)
    engine.push(frames[0])
    engine.push(frames[1], lambda count: frames[2 : 2 + count])
    watch(engine, others[2:])
    assert_same_memory(memory_of(engine), memory_of(usual))


def test_the_same_pictures_at_another_moment_are_read_again(model: VideoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(model, monkeypatch)
    engine = looking_ahead(model)
    frames = noise_frames(4)
    empty = engine.snapshot()
    engine.push(frames[0])
    engine.push(frames[1], lambda count: frames[2 : 2 + count])
    engine.restore(empty)
    engine.tower.settle()
    watch(engine, frames[2:])
    assert not threads.of[0].startswith(AHEAD)
    usual = engine_for(model)
    watch(usual, frames[2:])
    assert_same_memory(memory_of(engine), memory_of(usual))


def test_too_few_frames_to_come_are_no_chunk(model: VideoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(model, monkeypatch)
    watch_knowing(looking_ahead(model), noise_frames(2 * CHUNK - 1))
    assert list(threads.of) == [0]


def test_a_tower_that_fails_beside_other_work_is_used_alone(model: VideoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = noise_frames(4 * CHUNK)
    usual = engine_for(model)
    watch(usual, frames)
    embed, tried = model.embed_frames, list[int]()

    def failing(frames: Sequence[Frame], first_frame: int, elapsed_s: Sequence[float]) -> Tokens:
        if threading.current_thread().name.startswith(AHEAD):
            tried.append(first_frame)
            raise torch.OutOfMemoryError("no room for two")
        return embed(frames, first_frame, elapsed_s)

    engine = looking_ahead(model)
    monkeypatch.setattr(model, "embed_frames", failing)
    watch_knowing(engine, frames)
    assert_same_memory(memory_of(engine), memory_of(usual))
    assert tried == [CHUNK]
    assert engine.frames_ahead == 0


def test_a_cpu_looks_ahead_where_a_core_is_left(model: VideoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads, expected in ((2, 1, True), (1, 1, False), (4, 2, False)):
        monkeypatch.setattr(tower_module, "cpus", lambda cores=cores: cores)
        torch.set_num_threads(threads)
        assert runs_beside(model) is expected
        assert engine_for(model).frames_ahead == (CHUNK if expected else 0)
    torch.set_num_threads(1)
    monkeypatch.setattr(tower_module, "cpus", lambda: 2)
    model.layer_devices = (torch.device("cpu"), torch.device("meta"))
    assert not runs_beside(model)


def test_nothing_is_begun_where_it_does_not_pay(model: VideoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(model, monkeypatch)
    tower = Tower(model)
    tower.looks_ahead = False
    frames = noise_frames(CHUNK)
    tower.begin(frames, 0, [0.0, 1.0])
    tower.settle()
    assert not threads.of
    assert tower.embed(frames, 0, [0.0, 1.0]).hidden_ms == 0


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_the_memory_is_the_same_bit_for_bit_too(dtype: torch.dtype) -> None:
    model, frames = on_gpu("llava_onevision", dtype), noise_frames(40, width=40, height=32)
    usual, engine = engine_for(model), engine_for(model)
    assert engine.tower.looks_ahead
    watch(usual, frames)
    watch_knowing(engine, frames)
    assert_same_memory(memory_of(engine), memory_of(usual))
    assert answer(engine).text == answer(usual).text
