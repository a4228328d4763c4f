"""Measuring one arm: passes over the same frames, and questions at the same numbers of them."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from hermes.bench.arms import AnswerCost, Arm, ChunkCost
from hermes.bench.peak import PeakMemory
from hermes.bench.pictures import Foreseen
from hermes.bench.spread import Spread
from hermes.errors import HermesError, UsageError, out_of_memory
from hermes.frames import Frame

CHUNK_FIGURES = (
    "encode_fps", "encode_ms", "vision_ms", "prefill_ms", "guidance_ms", "score_ms", "compact_ms", "compress_ms",
    "compress_share",
)  # fmt: skip
ANSWER_FIGURES = ("ttft_ms", "ttft_plus_step_ms", "tpot_ms")
"""Attributes of `ChunkCost` and `AnswerCost`."""

Status = str  # "ok", "out of memory" or "failed"


@dataclass(frozen=True)
class Plan:
    """How often is measured what.

    Attributes:
        marks: numbers of frames after which figures are taken, rising.
        repetitions: passes that count.
        warmup: passes before them that do not, so that first uses of kernels, graphs and allocators are not measured.
        soak: one long pass instead, in which each mark has `repetitions` questions and chunks; the warm-up goes to the first
            mark.
    """

    marks: tuple[int, ...]
    repetitions: int = 5
    warmup: int = 1
    soak: bool = False

    def __post_init__(self) -> None:
        if not self.marks or min(self.marks) < 1:
            raise UsageError("there are no frames to measure", "give --frames 16,64 or so")
        if self.repetitions < 1:
            raise UsageError(f"{self.repetitions} repetitions measure nothing", "use at least 1")

    @property
    def passes(self) -> tuple[bool, ...]:
        """Whether each pass counts."""
        return (False,) * self.warmup + (True,) * (1 if self.soak else self.repetitions)

    @property
    def at_once(self) -> int:
        """Questions, and newest chunks, that a pass measures at a mark."""
        return self.repetitions if self.soak else 1

    def check_chunks(self, chunk_frames: int) -> None:
        """Raises `UsageError` where a mark is inside a chunk: a question would have to read its frames itself."""
        for mark in self.marks:
            if mark % chunk_frames:
                reason = f"{mark} frames are not whole chunks of {chunk_frames}"
                raise UsageError(reason, "give --frames in multiples of --chunk, or another --chunk")


@dataclass
class Samples:
    """What was measured at one number of frames.

    Attributes:
        held: tokens in the cache, of the layer that holds most.
        kv_mib: keys and values of all layers' tokens.
        peak_mib: peak memory of the first pass up to there, or None before it.
    """

    chunks: list[ChunkCost] = field(default_factory=list)
    answers: list[AnswerCost] = field(default_factory=list)
    held: int = 0
    kv_mib: float = 0.0
    peak_mib: float | None = None


@dataclass(frozen=True)
class Row:
    """One arm after one number of frames.

    Attributes:
        status: "ok", "out of memory", or "failed".
        message: why not ok; empty otherwise.
        figures: of each of `CHUNK_FIGURES` and `ANSWER_FIGURES` the samples, None where there is nothing of that kind. The
            chunks are those that end there.
        samples: the rest; None where nothing was measured.
    """

    arm: str
    frames: int
    status: Status
    message: str
    figures: dict[str, Spread | None]
    samples: Samples | None


class ArmRun:
    """Measures one arm; what is finished stays when it is interrupted.

    Args:
        name: of the rows.
        make: makes the arm, with an empty memory.
        plan: what is measured.
        frames: the same frames for every pass.
        peak: of the devices that are used.
        tell: is told what happens, a line at a time.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Arm],
        plan: Plan,
        frames: Callable[[], Iterator[Frame]],
        peak: PeakMemory,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.name, self.plan = name, plan
        self._make, self._frames, self._peak, self._tell = make, frames, peak, tell
        self._marks = plan.marks
        self._samples: dict[int, Samples] = {}
        self._failed: tuple[Status, str] | None = None
        self._reached = 0  # marks of the pass under way

    def run(self) -> None:
        """Measure. Where memory or positions do not last, the marks from there on are given up, and the rest begins anew.

        Raises:
            Exception: anything that is neither a lack of memory nor a `HermesError`.
        """
        while self._marks:
            self._samples = {mark: Samples() for mark in self._marks}
            if self._all_passes():
                return
            self._marks = self._marks[: self._reached]
            self._samples = {}
            free_memory()

    def rows(self) -> list[Row]:
        """A row for every number of frames with something to say, also after an interruption."""
        measured = [self._row(mark, samples) for mark, samples in self._samples.items() if samples.answers]
        if self._failed is None:
            return measured
        return measured + [
            Row(self.name, mark, *self._failed, {}, None) for mark in self.plan.marks if mark not in self._marks
        ]

    def _all_passes(self) -> bool:
        """Whether they came to their end. Nothing is left of the arm but its samples."""
        self._reached = 0
        try:
            self._peak.restart()
            arm = self._make()
            for number, counts in enumerate(self.plan.passes, start=1):
                marks = self._marks if counts or not self.plan.soak else self._marks[:1]
                self._tell(f"{self.name}: pass {number} of {len(self.plan.passes)}{'' if counts else ' (warm-up)'}")
                self._reached = 0
                arm.restart()
                self._one_pass(arm, marks, counts)
        except (HermesError, MemoryError, RuntimeError) as error:  # torch's own is a RuntimeError, on a CPU a plain one
            self._failed = describe(error)
            self._tell(f"{self.name}: {self._failed[0]}")
            return False
        return True

    def _one_pass(self, arm: Arm, marks: Sequence[int], counts: bool) -> None:
        newest: deque[ChunkCost] = deque(maxlen=self.plan.at_once)
        frames = Foreseen(self._frames(), arm.task.config.chunk_frames)
        for seen, mark in pairwise((0, *marks)):
            for _ in range(mark - seen):
                if cost := arm.push(next(frames), frames.coming):
                    newest.append(cost)
            answers = [arm.ask() for _ in range(self.plan.at_once)]
            self._take(arm, self._samples[mark], list(newest) if counts else [], answers if counts else [])
            self._reached += 1

    def _take(self, arm: Arm, samples: Samples, chunks: Sequence[ChunkCost], answers: Sequence[AnswerCost]) -> None:
        samples.chunks += chunks
        samples.answers += answers
        samples.held, samples.kv_mib = max(arm.kv_tokens), arm.kv_mib
        if samples.peak_mib is None:
            samples.peak_mib = self._peak.mib()

    def _row(self, mark: int, samples: Samples) -> Row:
        figures = {name: Spread.of([getattr(cost, name) for cost in samples.chunks]) for name in CHUNK_FIGURES} | {
            name: Spread.of([getattr(cost, name) for cost in samples.answers]) for name in ANSWER_FIGURES
        }
        return Row(self.name, mark, "ok", "", figures, samples)


def describe(error: Exception) -> tuple[Status, str]:
    """Status and message of a row that could not be measured; raises the error again where it is none of those expected."""
    if (lacking := out_of_memory(error)) is not None:
        return "out of memory", lacking
    if isinstance(error, HermesError):
        return "failed", error.message
    raise error


def free_memory() -> None:
    """Give back what the last arm held, so that the next one has all of it."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
