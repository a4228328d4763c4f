"""LLaVA-OneVision runs end to end (`e2e*`), fed with the recorded pixels."""

from __future__ import annotations

from types import SimpleNamespace

from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2Config,
    SiglipVisionConfig,
)

from hermes.models import wrap_model
from hermes.models.base import Tokens, VideoModel
from hermes.models.llava_onevision import LlavaOnevision
from tests.golden.recording import END_TO_END_TOLERANCES
from tests.golden.replay import Replay, read_weights
from tests.golden.words import WordTokenizer


class LlavaReplay(Replay):
    """A run of the authors' LLaVA path."""

    preset = "llava-code"
    tolerances = END_TO_END_TOLERANCES

    def chunks_before_questions(self) -> int:
        return len(self.recording.meta["chunks"])

    def chunk(self, name: str) -> tuple[Tokens, int]:
        assert isinstance(self.model, LlavaOnevision)
        pixels = self.recording[f"{name}pixels"]
        return self.model.embed_pixels(pixels, len(self.engine.frame_times_s)), len(pixels)

    def build_model(self) -> VideoModel:
        vision = SiglipVisionConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
            image_size=28, patch_size=7, vision_use_head=False,
        )  # fmt: skip
        text = dict(self.recording.meta["text_config"], max_position_embeddings=self.recording.meta["max_pos"])
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
        nested = any("vision_model" in name for name in model.state_dict())  # how the tower is named differs by version

        def rename(recorded: str) -> str:  # from the names of transformers 4.45
            name = recorded.replace("language_model.lm_head", "lm_head")
            name = name.replace("language_model.model", "model.language_model")
            name = name if nested else name.replace("vision_tower.vision_model", "vision_tower")
            return name if name.startswith(("lm_head", "model.")) else f"model.{name}"

        weights = {rename(name): tensor for name, tensor in read_weights(self.recording, "e2e").items()}
        model.load_state_dict(weights, strict=True)
        model.generation_config.eos_token_id = []  # the recorded answers run to their length
        processor = SimpleNamespace(tokenizer=WordTokenizer(self.recording.meta["vocab"]))
        return wrap_model(model, processor, "golden")
