"""The vision tower of the next chunk, beside the language model's work on the current one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from hermes.frames import Frame
from hermes.laps import Laps
from hermes.machine import cpus
from hermes.models.base import Tokens, VideoModel


@dataclass(frozen=True)
class Embedded:
    """A chunk as the decoder reads it, and how long it took to be made.

    Attributes:
        laps: one lap, the tower's.
        waited_ms: how much of that somebody waited; None for all of it.
    """

    tokens: Tokens
    laps: Laps
    waited_ms: float | None = None

    @property
    def vision_ms(self) -> float:
        """What it took; waits until it is over."""
        return self.laps.ms()[0]

    @property
    def hidden_ms(self) -> float:
        """How much of that passed beside other work."""
        return 0.0 if self.waited_ms is None else max(0.0, self.vision_ms - self.waited_ms)


@dataclass(frozen=True)
class _Chunk:
    """Equal to another of the very same pictures at the same place."""

    frames: tuple[Frame, ...]
    first_frame: int
    elapsed_s: tuple[float, ...]


class Tower:
    """Runs a model's vision tower over chunks, at once or ahead of time; either way it computes the same.

    Ahead of time it works in a thread and, on a GPU, in a queue of its own. Where that fails, for example since two chunks
    at once need more memory than there is, it does nothing ahead of time any more.

    Args:
        model: whose tower.

    Attributes:
        looks_ahead: whether `begin` does anything.
    """

    def __init__(self, model: VideoModel) -> None:
        self.looks_ahead = runs_beside(model)
        self._model = model
        self._begun: tuple[_Chunk, Future[Embedded]] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._stream: Any = None

    def begin(self, frames: Sequence[Frame], first_frame: int, elapsed_s: Sequence[float]) -> None:
        """Begin with a chunk for which `embed` will ask next; arguments as `VideoModel.embed_frames`."""
        if not self.looks_ahead:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="vision tower")
        chunk = _Chunk(tuple(frames), first_frame, tuple(elapsed_s))
        self._begun = chunk, self._thread.submit(self._beside, chunk)

    def embed(self, frames: Sequence[Frame], first_frame: int, elapsed_s: Sequence[float]) -> Embedded:
        """A chunk, as far as `begin` was told of it already begun; arguments and errors as `VideoModel.embed_frames`."""
        chunk = _Chunk(tuple(frames), first_frame, tuple(elapsed_s))
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == chunk:
            start_s = time.perf_counter()
            try:
                embedded = begun[1].result()
            except Exception:  # whatever it was: where it matters it comes again now
                self.looks_ahead = False
            else:
                _keep_for_this_queue(embedded.tokens)
                return replace(embedded, waited_ms=(time.perf_counter() - start_s) * 1000)
        return self._embed(chunk)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        if self._begun is not None:
            wait([self._begun[1]])

    @torch.inference_mode()
    def _embed(self, chunk: _Chunk) -> Embedded:
        laps = Laps(self._model.layer_devices)
        tokens = self._model.embed_frames(chunk.frames, chunk.first_frame, chunk.elapsed_s)
        laps.mark()
        return Embedded(tokens, laps)

    def _beside(self, chunk: _Chunk) -> Embedded:
        with self._own_queue():
            embedded = self._embed(chunk)
        embedded.laps.ms()  # only what is finished is handed over, so that no queue has to wait for another
        return embedded

    def _own_queue(self) -> AbstractContextManager[Any]:
        if self._model.device.type != "cuda":
            return nullcontext()
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._model.device)  # type: ignore[no-untyped-call]
        return torch.cuda.stream(self._stream)


def runs_beside(model: VideoModel) -> bool:
    """Whether the tower takes little from the language model beside it: on one GPU, and on a CPU with cores to spare.

    Threads of two parallel computations on the same cores wait for each other, which costs more than it gains.
    """
    if len(set(model.layer_devices)) > 1:
        return False
    return model.device.type == "cuda" or (model.device.type == "cpu" and torch.get_num_threads() == 1 < cpus())


def _keep_for_this_queue(tokens: Tokens) -> None:
    """Memory that was taken in one queue of a GPU is given back only after this one, which reads it, has come so far."""
    for content in (tokens.embeds, tokens.deepstack):
        if content is not None and content.is_cuda:
            content.record_stream(torch.cuda.current_stream(content.device))
