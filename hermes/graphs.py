"""Reading text token by token or question by question at the speed of the device: CUDA graphs over the slabs of a cache.

Launching the kernels of a step one by one takes longer than running them when there is one token to read. A graph is
launched at once. It is captured when a number of tokens is first read, checked against the usual forward there and then, and
given up for good when anything about it is not right; the answer is then read the usual way.
"""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from hermes.attention import AnswerProbe
from hermes.cache import SlabCache
from hermes.models.base import VideoModel
from hermes.static_step import StaticStep, fused_attention_runs

BUCKETS = (1, 16, 32, 64, 128, 256, 512)
"""How many tokens a graph reads; a text is filled up to the next one. Longer texts keep the device busy without graphs."""

_EXTENTS = 4  # parts of a slab, of which a graph for several tokens looks at as many as hold something
_WARM_UPS = 2  # runs before a capture, in which libraries allocate what they keep
_TOLERANCES = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.2}
"""By dtype, how far a hidden state may be from the usual forward's, as a share of its length, and attention three times as
far. Other kernels round differently, and layers add that up; what is really wrong is off by as much as there is."""
_STEADY_ROTATION = {"default", "linear", "yarn", "llama3"}  # rotary embeddings that do not depend on the longest position

Mode = Literal["eager", "static", "graphs"]
"""How a runner reads: one layer after another as they come, in steps of fixed shapes (for tests on a CPU), or in graphs."""


@dataclass(frozen=True)
class Capture:
    """A graph was captured.

    Attributes:
        tokens: that it reads.
        extent: slots of each layer that it looks at.
        watched: whether it adds up where attention goes.
        fused: whether it uses the library's kernel (`hermes.static_step.fused_attention_runs`).
        seconds: that capturing and checking it took.
    """

    tokens: int
    extent: int
    watched: bool
    fused: bool
    seconds: float


@dataclass(frozen=True)
class _Shape:
    tokens: int
    extent: int
    watched: tuple[int, ...]  # layers


@dataclass(frozen=True)
class _Ready:
    """A step and what makes it run.

    Attributes:
        looked: what its first run added to the probe's sums of attention.
    """

    step: StaticStep
    launch: Callable[[], None]
    looked: Tensor


class StepRunner:
    """Reads text into a cache, by graphs where that works and as `VideoModel.forward` does everywhere else.

    Args:
        model: reads.
        cache: is read into. The caller reserves room.
        shared_rotation: see `MemoryConfig.shared_rotation`; such a cache is never read by graphs.

    Attributes:
        mode: how it reads; set it to "static" where steps of fixed shapes are to be tested.
        captures: the graphs so far, dropped ones included.
        failures: what went wrong when graphs were made.
    """

    def __init__(self, model: VideoModel, cache: SlabCache, shared_rotation: bool = False) -> None:
        self.model, self.cache, self._shared_rotation = model, cache, shared_rotation
        self.mode: Mode = "graphs" if not shared_rotation and graphs_run(model) else "eager"
        self.captures: list[Capture] = []
        self.failures: list[str] = []
        self._told = 0  # of the captures
        self._trouble: str | None = None  # why it has stopped using graphs, until somebody is told
        self._fused = self.mode == "graphs" and fused_attention_runs(model.device, model.dtype)
        self._steps: dict[_Shape, _Ready] = {}
        self._pool: Any = None  # device memory that all graphs of this cache share, and the stream they are captured in
        self._stream: Any = None
        self._storage: list[weakref.ref[Tensor]] = []  # of the slab that the steps are bound to
        self._seen = torch.zeros(0)  # (watched layers, capacity), where steps add up attention
        self._probe: AnswerProbe | None = None  # whose sums these are

    def news(self) -> str:
        """The graphs captured since the last call, in words; empty where there are none."""
        new = self.captures[self._told :]
        self._told = len(self.captures)
        seconds = sum(capture.seconds for capture in new)
        return f"captured {len(new)} CUDA graph{'s' * (len(new) != 1)} in {seconds:.1f} s" if new else ""

    def trouble(self) -> str | None:
        """Why it has stopped using graphs, where it has since the last call."""
        trouble, self._trouble = self._trouble, None
        return trouble

    @torch.inference_mode()
    def read(self, embeds: Tensor, probe: AnswerProbe | None = None) -> Tensor:
        """Append text to the cache through the whole decoder.

        Args:
            embeds: (tokens, hidden).
            probe: watches the choice of the next token.

        Returns: the last token's hidden state after the final norm, (hidden,).
        """
        if self.mode == "eager" or not self.model.cuda_graphs:
            return self._forward(embeds, probe)
        self._bind()
        if len(embeds) > 1:
            self._wipe()
        shape = self._shape(len(embeds), probe)
        if shape is None:
            return self._forward(embeds, probe)
        self._watch_for(probe)
        ready = self._steps.get(shape)
        if ready is None:
            return self._first(shape, embeds, probe)
        ready.step.load(embeds)
        ready.launch()
        for layer in self.cache.layers:
            layer.length += len(embeds)
            layer.next_position += len(embeds)
        return ready.step.output.clone()

    def _forward(self, embeds: Tensor, probe: AnswerProbe | None) -> Tensor:
        return self.model.forward(self.model.plain(embeds), self.cache, self._shared_rotation, probe)

    def _bind(self) -> None:
        """Drop everything that points into a slab which has been reallocated."""
        (slab,) = self.cache.slabs
        storage = (slab.keys, slab.values, slab.positions, slab.place, slab.count)
        held = [reference() for reference in self._storage]
        if len(held) < len(storage) or any(new is not old for new, old in zip(storage, held, strict=True)):
            self._drop(lambda shape: True)
            self._storage = [weakref.ref(content) for content in storage]
            self._let_go()
            self._seen = torch.zeros(0)

    def _let_go(self) -> None:
        """Leave its sums to the probe that was watching."""
        if self._probe is not None:
            self._probe.settle()
        self._probe = None

    def _drop(self, outdated: Callable[[_Shape], bool]) -> None:
        self._steps = {shape: ready for shape, ready in self._steps.items() if not outdated(shape)}
        if not self._steps:
            self._pool = None  # one whose graphs are all gone is not to be used again

    def _wipe(self) -> None:
        """Zero what stands behind the tokens alive. Its weight in the attention is 0, but 0 times infinity, left behind by
        an answer that failed, is not a number."""
        for run in self.cache.runs():
            run.slab.keys[run.rows, :, run.length :] = 0
            run.slab.values[run.rows, :, run.length :] = 0

    def _shape(self, count: int, probe: AnswerProbe | None) -> _Shape | None:
        """The smallest step that takes so many tokens; None where there is none, or no room to fill it up."""
        tokens = next((bucket for bucket in BUCKETS if bucket >= count), None)
        capacity, longest = self.cache.slabs[0].capacity, max(self.cache.lengths)
        if tokens is None or longest + tokens > capacity:
            return None
        extent = capacity if tokens == 1 or self._fused else extent_for(longest + tokens, capacity)
        return _Shape(tokens, extent, tuple(probe.attention) if probe else ())

    def _watch_for(self, probe: AnswerProbe | None) -> None:
        """Let the steps add up attention for this probe."""
        if probe is None or probe is self._probe:
            return
        self._let_go()
        (slab,) = self.cache.slabs
        size = (len(probe.attention), slab.capacity)
        if self._seen.shape != size:
            self._drop(lambda shape: bool(shape.watched))
            self._seen = torch.zeros(size, device=slab.device)
        self._seen.zero_()
        probe.move(dict(zip(probe.attention, self._seen, strict=True)))
        self._probe = probe

    def _first(self, shape: _Shape, embeds: Tensor, probe: AnswerProbe | None) -> Tensor:
        """Read the usual way, and make a step for the next time that has to come to the same."""
        start_s = time.perf_counter()
        before = self._seen.clone()
        ready = self._made(shape, embeds, before)
        self._seen.copy_(before)
        hidden = self._forward(embeds, probe)  # last, so that what stays in the cache is certainly right
        if ready is None or not torch.isfinite(hidden).all():
            return hidden
        looked = self._seen - before
        counted = looked > 0  # the usual forward adds up what was there before the question
        apart = max(_apart(ready.step.output, hidden), _apart(ready.looked.where(counted, 0), looked) / 3)
        if apart <= _TOLERANCES.get(hidden.dtype, 0.0):
            self._steps[shape] = ready
            seconds = time.perf_counter() - start_s
            self.captures.append(Capture(shape.tokens, shape.extent, bool(shape.watched), self._fused, seconds))
        else:
            self._distrust(f"a step of {shape.tokens} tokens was {100 * apart:.1f} % off")
        return hidden

    def _made(self, shape: _Shape, embeds: Tensor, before: Tensor) -> _Ready | None:
        """A step that has read the tokens; None where it fails. `before`: the sums of attention so far."""
        watched = {layer: row for row, layer in enumerate(shape.watched)}
        try:
            step = StaticStep(self.model, self.cache, shape.tokens, shape.extent, self._seen, watched, self._fused)
            step.load(embeds)
            launch = step.run if self.mode == "static" else self._captured(step)
            self._seen.copy_(before)
            launch()
            self._wait()  # a failure shows here and not in the forward that follows
        except Exception as error:  # whatever it is, the usual forward still answers
            self._wait()
            self._distrust(f"a step of {shape.tokens} tokens failed: {type(error).__name__}: {error}")
            return None
        return _Ready(step, launch, self._seen - before)

    def _wait(self) -> None:
        if self.mode == "graphs":
            torch.cuda.synchronize(self.model.device)

    def _captured(self, step: StaticStep) -> Callable[[], None]:
        """A step as a graph."""
        with torch.cuda.device(self.model.device):
            if self._pool is None:
                self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream = self._stream  # a pool belongs to the stream of its first capture
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    step.run()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # threads that save or show something may go on meanwhile
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                step.run()
        return graph.replay

    def _distrust(self, reason: str) -> None:
        """Do without the library's kernel, or, where that was not the cause, without graphs from here on."""
        self.failures.append(reason)
        self._drop(lambda shape: True)
        if self._fused:
            self._fused = False
            return
        self._trouble = f"answers come without CUDA graphs from here on, more slowly: {reason}"
        self.model.cuda_graphs = False
        warnings.warn(self._trouble, RuntimeWarning, stacklevel=2)


def _apart(found: Tensor, expected: Tensor) -> float:
    """How far a tensor is from another, as a share of that one's length; 0 where both are 0."""
    length = float(expected.float().norm())
    distance = float((found - expected).float().norm())
    return distance / length if length else distance


def extent_for(needed: int, capacity: int) -> int:
    """How many slots a step looks at that needs some: a few sizes, so that few graphs are captured as a memory fills."""
    part = -(-capacity // _EXTENTS)
    return min(capacity, -(-needed // part) * part)


def graphs_run(model: VideoModel) -> bool:
    """Whether graphs can hold the forward of a model: all of it on one GPU, its weights not quantised,
    nothing hooked in, and a rotary embedding that is the same for every position."""
    if len(set(model.layer_devices)) > 1 or model.device.type != "cuda":
        return False
    hooked = any(hasattr(module, "_hf_hook") for module in model.decoder.modules())
    plain = set(model.weights.language) <= {"bf16", "fp16", "fp32"}
    return plain and not hooked and getattr(model.decoder.rotary_emb, "rope_type", None) in _STEADY_ROTATION
