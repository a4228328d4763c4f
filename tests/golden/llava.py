"""Replaying LLaVA-OneVision runs end to end (`e2e*`): the engine, fed with the recorded pixels and questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2Config,
    SiglipVisionConfig,
)

from hermes.cache import SlabCache
from hermes.compaction import KeepPlan
from hermes.config import Sampling
from hermes.engine import StreamEngine
from hermes.events import Answer
from hermes.generate import decode
from hermes.models import wrap_model
from hermes.models.llava_onevision import LlavaOnevision
from hermes.policies import Hermes, MemoryView
from tests.golden.recording import END_TO_END_TOLERANCES, Differences, Recording
from tests.golden.words import WordTokenizer


@dataclass(frozen=True)
class Watched(Hermes):
    """The policy itself, letting an observer see each view and plan."""

    observer: Callable[[MemoryView, KeepPlan], None] = field(default=lambda view, plan: None)

    def plan(self, view: MemoryView) -> KeepPlan:
        plan = super().plan(view)
        self.observer(view, plan)
        return plan


class Replay:
    """One recorded run."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.differences = Differences(END_TO_END_TOLERANCES)
        self.step = 0
        guidance = "forward" if recording.meta["attn"] == "eager" else "embedding"
        config = recording.config("llava-code", guidance=guidance)
        self.model = _model(recording)
        self.policy = Watched(config, observer=self._check_plan)
        self.engine = StreamEngine(self.model, config, self.policy, prompt_style="released")

    def run(self) -> Differences:
        """Feed and ask as recorded."""
        self.differences.compare("tokens", self.engine.prompt.prefix_ids(), self.recording["system_ids"])
        self._check_cache("s0_")
        chunks = len(self.recording.meta["chunks"])
        for self.step in range(1, chunks + 1):
            self._feed()
        self._ask("qa10", 1.0)
        self._ask("qa11", 1.1)
        self.step = chunks + 1
        if f"s{self.step}_pixels" in self.recording:
            self._feed()
        return self.differences

    def _feed(self) -> None:
        name = f"s{self.step}_"
        starts = [layer.next_position for layer in self.engine.cache.layers]
        self.differences.compare("positions", starts, self.recording[f"{name}start"])
        with torch.inference_mode():
            visual = self.model.embed_pixels(self.recording[f"{name}pixels"], len(self.engine.frame_times_s))
        self.differences.compare("embeds", visual.embeds, self.recording[f"{name}embeds"])
        visual = replace(visual, embeds=self.recording[f"{name}embeds"])  # the tower's rounding stays out of the decoder's
        event = self.engine.feed_tokens(visual, [float(self.step)] * len(self.recording[f"{name}pixels"]))
        self.differences.compare("flags", event.compression is not None, f"{name}keep_00" in self.recording)
        self._check_cache(name)
        nexts = [layer.next_position for layer in self.engine.cache.layers]
        self.differences.compare("positions", nexts, self.recording[f"{name}next"])

    def _check_plan(self, view: MemoryView, plan: KeepPlan) -> None:
        name = f"s{self.step}_"
        new = self.recording[f"{name}new_k"].shape[2]
        for quantity, slab in (("keys", "keys"), ("values", "values")):
            appended = [getattr(layer, slab)[0, :, layer.length - new : layer.length] for layer in self.engine.cache.layers]
            self.differences.compare(quantity, torch.stack(appended), self.recording[f"{name}new_{quantity[0]}"])
        pooled = self.recording.per_layer(f"{name}pooled")
        attention = [None if ours is None else recorded for ours, recorded in zip(view.attention, pooled, strict=True)]
        for ours, recorded in zip(view.attention, attention, strict=True):
            if ours is not None:
                self.differences.compare("pooled", ours, recorded)
        # Scores divide by the spread of the attention, which magnifies the rounding of either forward (a float64 forward
        # is 3e-6 away too), so they are compared from the recorded attention; the plan is compared from our own.
        view = replace(view, attention=attention)
        for quantity, scores in (("raw", self.policy.raw_scores(view)), ("smooth", self.policy.scores(view))):
            self.differences.compare(quantity, torch.stack(scores), self.recording[f"{name}{quantity}"])
        for ours, recorded in zip(plan.keep, self.recording.per_layer(f"{name}keep"), strict=True):
            self.differences.compare("keep", ours, recorded)

    def _check_cache(self, name: str) -> None:
        layers = self.engine.cache.layers
        self.differences.compare("keys", _alive(self.engine.cache, "keys"), self.recording[f"{name}k"])
        self.differences.compare("values", _alive(self.engine.cache, "values"), self.recording[f"{name}v"])
        positions = torch.stack([layer.positions[0, : layer.length] for layer in layers])
        self.differences.compare("positions", positions, self.recording[f"{name}pos"])

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
            return list(
                decode(self.model, self.engine.cache, self.engine._read_question(ids, sampling.max_new_tokens), sampling)
            )


def check_llava(recording: Recording) -> Differences:
    """One recorded run, end to end."""
    return Replay(recording).run()


def _alive(cache: SlabCache, slab: str) -> Tensor:
    return torch.stack([getattr(layer, slab)[0, :, : layer.length] for layer in cache.layers])


def _model(recording: Recording) -> LlavaOnevision:
    vision = SiglipVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        image_size=28, patch_size=7, vision_use_head=False,
    )  # fmt: skip
    text = dict(recording.meta["text_config"], max_position_embeddings=recording.meta["max_pos"])
    rope = {"rope_type": "default", "rope_theta": text.pop("rope_theta")}
    config = LlavaOnevisionConfig(
        vision_config=vision,
        text_config=Qwen2Config(**text, rope_parameters=rope, eos_token_id=None, tie_word_embeddings=False),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        image_token_index=254,
        video_token_index=255,
        tie_word_embeddings=False,
    )
    model = LlavaOnevisionForConditionalGeneration(config).eval()
    _load(model, recording.path.parent)
    model.generation_config.eos_token_id = []  # the recorded answers run to their length
    processor = SimpleNamespace(tokenizer=WordTokenizer(recording.meta["vocab"]))
    adapter = wrap_model(model, processor, "golden")
    assert isinstance(adapter, LlavaOnevision)
    return adapter


def _load(model: Any, folder: Path) -> None:
    """The recorded weights carry the names of transformers 4.45."""
    (weights,) = folder.glob("*e2e_model.safetensors")
    nested = any("vision_model" in name for name in model.state_dict())  # how the tower is named differs by version
    state = {}
    for recorded, tensor in load_file(weights).items():
        name = recorded.replace("language_model.lm_head", "lm_head")
        name = name.replace("language_model.model", "model.language_model")
        name = name if nested else name.replace("vision_tower.vision_model", "vision_tower")
        state[name if name.startswith(("lm_head", "model.")) else f"model.{name}"] = tensor
    model.load_state_dict(state, strict=True)
