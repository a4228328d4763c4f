"""Where the time of a chunk and an answer goes: stages by the engine's report, and operators by torch's profiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from hermes.bench.arms import AnswerCost, Arm, ChunkCost
from hermes.frames import Frame

STAGES = ("vision", "prefill", "guidance", "score", "compact", "rest of the chunk", "question", "decode")


@dataclass(frozen=True)
class Operator:
    """An operator of torch, over all its calls.

    Attributes:
        calls: how many.
        self_ms: time in itself and not in those it calls, on the GPU where there is one.
    """

    name: str
    calls: int
    self_ms: float


@dataclass(frozen=True)
class Profile:
    """One chunk and one answer.

    Attributes:
        frames: after which they came.
        stages_ms: of each of `STAGES`.
        operators: those that took longest, the longest first.
    """

    frames: int
    stages_ms: dict[str, float]
    operators: tuple[Operator, ...]


def profile_arm(arm: Arm, frames: Iterator[Frame], count: int, trace: Path, top: int = 15) -> Profile:
    """Play `count` frames: the stages are those of the chunk that ends with the last one, and of an answer after it. The
    operators and the trace are of the next chunk and answer, since the profiler slows everything down.

    Args:
        trace: where to write what Chrome's tracing and Perfetto read; it is overwritten.
        top: operators to name.

    Raises: as `StreamEngine.push`, and OSError for the file.
    """
    costs = [arm.push(next(frames)) for _ in range(count)]
    arm.ask()  # the first one also pays for first uses
    answer, chunk = arm.ask(), costs[-1]
    assert chunk is not None  # `count` is a multiple of the chunk
    on_gpu = any(device.type == "cuda" for device in arm.model.layer_devices)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    following = [next(frames) for _ in range(arm.task.config.chunk_frames)]
    with profile(activities=activities) as profiler:
        with record_function("chunk"):
            for frame in following:
                arm.push(frame)
        with record_function("answer"):
            arm.ask()
    profiler.export_chrome_trace(str(trace))
    return Profile(count, stages(chunk, answer), _operators(profiler, on_gpu, top))


def stages(chunk: ChunkCost, answer: AnswerCost) -> dict[str, float]:
    """Milliseconds of each stage; those of a chunk add up to the chunk, question and decode to the answer."""
    parts = [chunk.vision_ms, chunk.prefill_ms, chunk.guidance_ms or 0.0, chunk.score_ms or 0.0, chunk.compact_ms or 0.0]
    rest = max(chunk.encode_ms - sum(parts), 0.0)
    decode = (answer.tpot_ms or 0.0) * (answer.answer_tokens - 1)
    return dict(zip(STAGES, [*parts, rest, answer.ttft_ms, decode], strict=True))


def _operators(profiler: Any, on_gpu: bool, top: int) -> tuple[Operator, ...]:
    key = "self_device_time_total" if on_gpu else "self_cpu_time_total"  # microseconds
    events = [event for event in profiler.key_averages() if event.key not in {"chunk", "answer"}]
    longest = sorted(events, key=lambda event: -getattr(event, key))[:top]
    return tuple(Operator(event.key, event.count, getattr(event, key) / 1000) for event in longest)
