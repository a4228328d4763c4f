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
    Qwen2Config,
    SiglipVisionConfig,
)

from hermes.guidance import prompt_text
from hermes.policies import Guidance

VOCABULARY = 512
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}<video>\n{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def small_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that has learned the words of the guidance prompts, and the usual control tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL_TOKENS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([prompt_text(guidance, "Question: Answer:") for guidance in Guidance], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=SPECIAL_TOKENS,
    )


def llava_onevision(layers: int = 4, max_positions: int = 2048) -> tuple[Any, Any]:
    """A random LLaVA-OneVision: 24 px frames, 9 tokens each (patches 4 px, 6 x 6, pooled to 3 x 3)."""
    vision = SiglipVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        image_size=24, patch_size=4, vision_use_head=False,
    )  # fmt: skip
    text = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=max_positions, eos_token_id=2, bos_token_id=None, pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False,
    )  # fmt: skip
    config = LlavaOnevisionConfig(
        vision_config=vision, text_config=text, vision_feature_layer=-1, vision_feature_select_strategy="full",
        image_token_index=3, video_token_index=4, image_grid_pinpoints=[[24, 24]], tie_word_embeddings=False,
    )  # fmt: skip
    model = LlavaOnevisionForConditionalGeneration(config).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # spread out, so that differences show
            if "norm" not in name:
                parameter.normal_(0, 0.25, generator=generator)
    sizes = {"size": {"height": 24, "width": 24}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    processor = LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(image_grid_pinpoints=[[24, 24]], **sizes),
        tokenizer=small_tokenizer(),
        video_processor=LlavaOnevisionVideoProcessor(**sizes),
        num_image_tokens=36,
        vision_feature_select_strategy="full",
        chat_template=CHAT_TEMPLATE,
    )
    return model, processor


FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {"llava_onevision": llava_onevision}


def write(family: str, folder: Path) -> None:
    """Save a random checkpoint of `family` in `folder`."""
    model, processor = FAMILIES[family]()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in FAMILIES:
        sys.exit(f"usage: python -m tests.make_tiny {{{','.join(FAMILIES)}}} DIR")
    write(sys.argv[1], Path(sys.argv[2]))
