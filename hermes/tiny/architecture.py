"""The model: a LLaVA-OneVision of two million parameters, its configuration and its initial weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2Config,
    SiglipVisionConfig,
)

from hermes.tiny import checkpoint_folder

FRAME_SIZE = 48  # pixels per side of the picture the vision tower sees
PATCH_SIZE = 12
PATCHES_PER_SIDE = FRAME_SIZE // PATCH_SIZE
TOKENS_PER_FRAME = (PATCHES_PER_SIDE // 2) ** 2  # after the model's own 2 x 2 pooling
MAX_POSITIONS = 8192
GRID_PINPOINTS = [
    [height * FRAME_SIZE, width * FRAME_SIZE] for height, width in ((1, 1), (1, 2), (2, 1), (2, 2))
]  # sizes a single image may be tiled to


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of the shipped model; vision_* of the SigLIP tower, the others of the Qwen2 text model."""

    vision_hidden: int = 96
    vision_layers: int = 4
    vision_heads: int = 3
    hidden: int = 128
    layers: int = 10
    heads: int = 4
    key_value_heads: int = 2
    intermediate: int = 256
    rope_theta: float = 1e6


def load_tokenizer() -> Tokenizer:
    """The byte-level BPE of the shipped checkpoint; token numbers are part of the weights, so it is data, not code."""
    return Tokenizer.from_file(str(checkpoint_folder() / "tokenizer.json"))


def build_config(architecture: Architecture, tokenizer: Tokenizer) -> LlavaOnevisionConfig:
    """The Hugging Face configuration; the vocabulary is padded to a multiple of 64."""
    vision = SiglipVisionConfig(
        hidden_size=architecture.vision_hidden,
        intermediate_size=4 * architecture.vision_hidden,
        num_hidden_layers=architecture.vision_layers,
        num_attention_heads=architecture.vision_heads,
        image_size=FRAME_SIZE,
        patch_size=PATCH_SIZE,
        vision_use_head=False,
    )
    text = Qwen2Config(
        vocab_size=math.ceil(tokenizer.get_vocab_size() / 64) * 64,
        hidden_size=architecture.hidden,
        intermediate_size=architecture.intermediate,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.key_value_heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        pad_token_id=tokenizer.token_to_id("<|endoftext|>"),
        rope_parameters={"rope_type": "default", "rope_theta": architecture.rope_theta},
    )
    return LlavaOnevisionConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.token_to_id("<image>"),
        video_token_index=tokenizer.token_to_id("<video>"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        tie_word_embeddings=True,
        image_grid_pinpoints=GRID_PINPOINTS,
    )


@torch.no_grad()
def build_model(architecture: Architecture, tokenizer: Tokenizer) -> LlavaOnevisionForConditionalGeneration:
    """A new model in float32. Text matrices start at 0.7 / sqrt(fan in), those that write to the residual stream by
    sqrt(2 layers) smaller."""
    model = LlavaOnevisionForConditionalGeneration(build_config(architecture, tokenizer))
    model.tie_weights()
    text = model.model.language_model
    text.embed_tokens.weight.normal_(0, 0.05)
    for layer in text.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for reader in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
            reader.weight.normal_(0, 0.7 / math.sqrt(architecture.hidden))
        for writer in (attention.o_proj, mlp.down_proj):
            deviation = 0.7 / math.sqrt(writer.weight.shape[1]) / math.sqrt(2 * architecture.layers)
            writer.weight.normal_(0, deviation)
    return model
