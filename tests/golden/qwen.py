"""Qwen2.5-VL runs end to end (`q2e*`): the language model, fed with the recorded output of a vision tower."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLVideoProcessor

from hermes.cache import Origin
from hermes.models import wrap_model
from hermes.models.base import Tokens, VideoModel
from tests.golden.recording import END_TO_END_TOLERANCES
from tests.golden.replay import Replay, read_weights
from tests.golden.words import WordTokenizer

TOKENS_PER_SECOND, FRAMES_PER_PATCH, MERGE = 2, 2, 2


class QwenReplay(Replay):
    """A run of the authors' Qwen2.5-VL path."""

    preset = "qwen-code"
    tolerances: ClassVar[dict[str, float]] = {**END_TO_END_TOLERANCES, "pooled": 2e-5}
    half_precision_guidance = True

    def chunks_before_questions(self) -> int:
        return len(self.recording.meta["grids"])

    def chunk(self, name: str) -> tuple[Tokens, int]:
        patches, rows, columns = (int(size) for size in self.recording[f"{name}grid"])
        rows, columns = rows // MERGE, columns // MERGE
        times = torch.arange(patches) * (FRAMES_PER_PATCH / self.recording.meta["fps"] * TOKENS_PER_SECOND)
        axes = (times, torch.arange(rows).float(), torch.arange(columns).float())
        positions = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
        first = len(self.engine.frame_times_s)
        origin = Origin.grid([first + FRAMES_PER_PATCH * patch for patch in range(patches)], rows, columns)
        embeds = self.recording[f"{name}embeds"]
        return Tokens(embeds, positions, origin, in_video=True), FRAMES_PER_PATCH * patches

    def build_model(self) -> VideoModel:
        text = dict(self.recording.meta["text_config"], max_position_embeddings=self.recording.meta["max_pos"])
        rope = {"rope_type": "default", "rope_theta": text.pop("rope_theta"), "mrope_section": self.recording.meta["mrope"]}
        config = Qwen2_5_VLConfig(
            text_config={**text, "rope_parameters": rope, "eos_token_id": None},
            vision_config={"depth": 1, "hidden_size": 32, "num_heads": 2, "out_hidden_size": text["hidden_size"]},
            tie_word_embeddings=False,
        )
        model = Qwen2_5_VLForConditionalGeneration(config).eval()
        tower = {f"model.visual.{name}": tensor for name, tensor in model.model.visual.state_dict().items()}
        model.load_state_dict({**read_weights(self.recording, "q2e"), **tower}, strict=True)
        model.generation_config.eos_token_id = []  # the recorded answers run to their length
        tokenizer = WordTokenizer(self.recording.meta["vocab"])
        processor = SimpleNamespace(tokenizer=tokenizer, video_processor=Qwen2VLVideoProcessor())
        return wrap_model(model, processor, "golden")
