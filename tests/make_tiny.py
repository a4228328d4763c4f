"""Small random checkpoints of each model family, tokenizer and processor included; nothing is downloaded.

`python -m tests.make_tiny FAMILY DIR` writes one as a Hugging Face folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2Config,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    SiglipVisionConfig,
)

from hermes.guidance import prompt_text
from hermes.policies import Guidance

VOCABULARY = 512
CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPECIAL_TOKENS = [*CONTROL_TOKENS, "<image>", "<video>"]
QWEN_SPECIAL_TOKENS = [*CONTROL_TOKENS, "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}VIDEO{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def small_tokenizer(special_tokens: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that has learned the words of the guidance prompts, and the usual control tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special_tokens, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([prompt_text(guidance, "Question: Answer:") for guidance in Guidance], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=special_tokens,
    )


def llava_onevision(layers: int = 4, max_positions: int = 2048) -> tuple[Any, Any]:
    """A random LLaVA-OneVision: 24 px frames, 9 tokens each (patches 4 px, 6 x 6, pooled to 3 x 3)."""
    vision = SiglipVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        image_size=24, patch_size=4, vision_use_head=False,
    )  # fmt: skip
    text = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=max_positions, eos_token_id=2, bos_token_id=None, pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False,
    )  # fmt: skip
    config = LlavaOnevisionConfig(
        vision_config=vision, text_config=text, vision_feature_layer=-1, vision_feature_select_strategy="full",
        image_token_index=3, video_token_index=4, image_grid_pinpoints=[[24, 24]], tie_word_embeddings=False,
    )  # fmt: skip
    model = _spread_out(LlavaOnevisionForConditionalGeneration(config))
    sizes = {"size": {"height": 24, "width": 24}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    processor = LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(image_grid_pinpoints=[[24, 24]], **sizes),
        tokenizer=small_tokenizer(SPECIAL_TOKENS),
        video_processor=LlavaOnevisionVideoProcessor(**sizes),
        num_image_tokens=36,
        vision_feature_select_strategy="full",
        chat_template=CHAT_TEMPLATE.replace("VIDEO", "<video>\n"),
    )
    return model, processor


def qwen2_5_vl(layers: int = 4, max_positions: int = 2048) -> tuple[Any, Any]:
    """A random Qwen2.5-VL: tokens of 8 x 8 px for every two frames, windows of 2 x 2 tokens in the tower's first block."""
    vision = {**_QWEN_VISION, "window_size": 16, "fullatt_block_indexes": [1], "tokens_per_second": 2}
    text = {**_QWEN_TEXT, "num_hidden_layers": layers, "max_position_embeddings": max_positions}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    config = Qwen2_5_VLConfig(vision_config=vision, text_config={**text, "rope_parameters": rope}, **_QWEN_IDS)
    processor = Qwen2_5_VLProcessor(video_processor=Qwen2VLVideoProcessor(**_QWEN_SIZES), **_qwen_processor_parts())
    return _spread_out(Qwen2_5_VLForConditionalGeneration(config)), processor


def qwen3_vl(layers: int = 4, max_positions: int = 2048) -> tuple[Any, Any]:
    """A random Qwen3-VL: tokens of 8 x 8 px for every two frames, both tower blocks feed DeepStack."""
    vision = {**_QWEN_VISION, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
    text = {**_QWEN_TEXT, "head_dim": 16, "num_hidden_layers": layers, "max_position_embeddings": max_positions}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3], "mrope_interleaved": True}
    config = Qwen3VLConfig(vision_config=vision, text_config={**text, "rope_parameters": rope}, **_QWEN_IDS)
    processor = Qwen3VLProcessor(video_processor=Qwen3VLVideoProcessor(**_QWEN_SIZES), **_qwen_processor_parts())
    return _spread_out(Qwen3VLForConditionalGeneration(config)), processor


_QWEN_VISION = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64,
    "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
_QWEN_TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "eos_token_id": 2, "bos_token_id": None, "pad_token_id": 0,
}  # fmt: skip
_QWEN_IDS = {
    "image_token_id": 3, "video_token_id": 4, "vision_start_token_id": 5, "vision_end_token_id": 6,
    "tie_word_embeddings": False,
}  # fmt: skip
_QWEN_SIZES: dict[str, Any] = {
    "patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "size": {"shortest_edge": 64, "longest_edge": 64 * 3000},
}  # fmt: skip


def _qwen_processor_parts() -> dict[str, Any]:
    return {
        "image_processor": Qwen2VLImageProcessor(patch_size=4, merge_size=2, temporal_patch_size=2),
        "tokenizer": small_tokenizer(QWEN_SPECIAL_TOKENS),
        "chat_template": CHAT_TEMPLATE.replace("VIDEO", "<|vision_start|><|video_pad|><|vision_end|>"),
    }


def _spread_out(model: Any) -> Any:
    """The model with larger random weights than its own, so that differences show."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.normal_(0, 0.25, generator=generator)
    return model.eval()


FAMILIES: dict[str, Callable[..., tuple[Any, Any]]] = {
    "llava_onevision": llava_onevision,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
}


def write(family: str, folder: Path) -> None:
    """Save a random checkpoint of `family` in `folder`, with positions for the default budget."""
    model, processor = FAMILIES[family](max_positions=32768)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in FAMILIES:
        sys.exit(f"usage: python -m tests.make_tiny {{{','.join(FAMILIES)}}} DIR")
    write(sys.argv[1], Path(sys.argv[2]))
