"""Replaying whole runs (`e2e*`, `q2e*`): the engine, fed with the recorded chunks and questions, compared at every step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from torch import Tensor

from hermes.cache import SlabCache
from hermes.compaction import KeepPlan
from hermes.config import Sampling
from hermes.engine import StreamEngine
from hermes.events import Answer
from hermes.generate import decode
from hermes.models.base import Tokens, VideoModel
from hermes.policies import Hermes, MemoryView
from tests.golden.recording import Differences, Recording


@dataclass(frozen=True)
class Watched(Hermes):
    """The policy itself, letting an observer see each view first; the plan is made from what it returns."""

    observer: Callable[[MemoryView], MemoryView] = field(default=lambda view: view)

    def plan(self, view: MemoryView) -> KeepPlan:
        return super().plan(self.observer(view))


class Replay(ABC):
    """One recorded run of a family of models.

    Attributes:
        preset: the path of the released code that was recorded.
        tolerances: largest differences allowed.
        half_precision_guidance: the released code took the attention in half precision there, which is coarser than the
            differences between the last token kept and the first one dropped; so plans are made from the recorded attention.
    """

    preset: ClassVar[str]
    half_precision_guidance: ClassVar[bool] = False
    tolerances: ClassVar[dict[str, float]]

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.differences = Differences(self.tolerances)
        self.step = 0
        guidance = "forward" if recording.meta["attn"] == "eager" else "embedding"
        config = recording.config(self.preset, guidance=guidance)
        self.model = self.build_model()
        self.policy = Watched(config, observer=self._check_view)
        self.engine = StreamEngine(self.model, config, self.policy, prompt_style="released")

    @abstractmethod
    def build_model(self) -> VideoModel:
        """The recorded model behind its adapter."""

    @abstractmethod
    def chunk(self, name: str) -> tuple[Tokens, int]:
        """The recorded chunk of the step called `name`, and its number of frames."""

    @abstractmethod
    def chunks_before_questions(self) -> int:
        """How many chunks were fed before the two questions; one more may follow."""

    def run(self) -> Differences:
        """Feed and ask as recorded."""
        self.differences.compare("tokens", self.engine.prompt.prefix_ids(), self.recording["system_ids"])
        self._check_cache("s0_")
        chunks = self.chunks_before_questions()
        for self.step in range(1, chunks + 1):
            self._feed()
        self._ask("qa10", 1.0)
        self._ask("qa11", 1.1)
        self.step = chunks + 1
        if f"s{self.step}_embeds" in self.recording:
            self._feed()
        return self.differences

    def _feed(self) -> None:
        name = f"s{self.step}_"
        self.differences.compare("positions", self._next_positions(), self.recording[f"{name}start"])
        with torch.inference_mode():
            visual, frames = self.chunk(name)
        self.differences.compare("embeds", visual.embeds, self.recording[f"{name}embeds"])
        visual = replace(visual, embeds=self.recording[f"{name}embeds"])  # the tower's rounding stays out of the decoder's
        event = self.engine.feed_tokens(visual, [float(self.step)] * frames)
        self.differences.compare("flags", event.compression is not None, f"{name}keep_00" in self.recording)
        self._check_cache(name)
        self.differences.compare("positions", self._next_positions(), self.recording[f"{name}next"])

    def _next_positions(self) -> list[float]:
        return [layer.next_position for layer in self.engine.cache.layers]

    def _check_view(self, view: MemoryView) -> MemoryView:
        name = f"s{self.step}_"
        new = self.recording[f"{name}new_k"].shape[2]
        for quantity, slab, axis in (("keys", "keys", -2), ("values", "values", -2), ("positions", "positions", -1)):
            newest = [getattr(layer, slab).narrow(axis, layer.length - new, new) for layer in self.engine.cache.layers]
            recorded = self.recording[f"{name}new_{'pos' if slab == 'positions' else slab[0]}"]
            self.differences.compare(quantity, torch.stack(newest).reshape(recorded.shape), recorded)
        pooled = self.recording.per_layer(f"{name}pooled")
        attention = [None if ours is None else recorded for ours, recorded in zip(view.attention, pooled, strict=True)]
        for ours, theirs in zip(view.attention, attention, strict=True):
            if ours is not None:
                self.differences.compare("pooled", ours, theirs)
        # Scores divide by the spread of the attention, which magnifies the rounding of either forward (a float64 forward
        # is 3e-6 away too), so they are compared from the recorded attention; the plan is compared from our own.
        recorded_view = replace(view, attention=attention)
        for quantity, scores in (
            ("raw", self.policy.raw_scores(recorded_view)),
            ("smooth", self.policy.scores(recorded_view)),
        ):
            self.differences.compare(quantity, torch.stack(scores), self.recording[f"{name}{quantity}"])
        seen = recorded_view if self.half_precision_guidance else view
        plan = Hermes(self.policy.config).plan(seen)
        for ours, recorded in zip(plan.keep, self.recording.per_layer(f"{name}keep"), strict=True):
            self.differences.compare("keep", ours, recorded)
        return seen

    def _check_cache(self, name: str) -> None:
        cache = self.engine.cache
        self.differences.compare("keys", _alive(cache, "keys"), self.recording[f"{name}k"])
        self.differences.compare("values", _alive(cache, "values"), self.recording[f"{name}v"])
        recorded = self.recording[f"{name}pos"]  # (layers, tokens), or (layers, axes, tokens)
        positions = torch.stack([layer.positions[:, : layer.length] for layer in cache.layers])
        self.differences.compare("positions", positions.reshape(recorded.shape), recorded)

    def _ask(self, name: str, penalty: float) -> None:
        question = self.recording.meta["question"]
        recorded = self.recording[f"{name}_tokens"]
        sampling = Sampling(max_new_tokens=len(recorded), repetition_penalty=penalty)
        ids = self.engine.prompt.question_ids(question)
        self.differences.compare("tokens", ids, self.recording[f"{name}_prompt_ids"])
        steps = self._decode(ids, sampling)
        self.differences.compare("tokens", [step.token for step in steps], recorded)
        logits = torch.stack([step.logits for step in steps])
        self.differences.compare("logits", logits, self.recording[f"{name}_logits"][: len(steps)])
        *_, answer = self.engine.ask(question, sampling)
        assert isinstance(answer, Answer)
        self.differences.compare("tokens", self.model.tokenize(answer.text), recorded)

    @torch.inference_mode()
    def _decode(self, ids: list[int], sampling: Sampling) -> list[Any]:
        with self.engine.cache.scratch():
            hidden = self.engine._read_question(ids, sampling.max_new_tokens)
            return list(decode(self.engine.runner, hidden, sampling))


def read_weights(recording: Recording, kind: str) -> dict[str, Tensor]:
    """The weights that lie beside the recorded runs of a kind, by their recorded names."""
    (file,) = recording.path.parent.glob(f"*{kind}_model.safetensors")
    return load_file(file)


def _alive(cache: SlabCache, slab: str) -> Tensor:
    return torch.stack([getattr(layer, slab)[0, :, : layer.length] for layer in cache.layers])
