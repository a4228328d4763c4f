"""Write a trained model as a Hugging Face folder: weights in bfloat16, configuration, tokenizer, processor."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import (
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    PreTrainedTokenizerFast,
)

from hermes.tiny.architecture import FRAME_SIZE, GRID_PINPOINTS, MAX_POSITIONS, PATCHES_PER_SIDE

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]
MAX_NEW_TOKENS = 64
# ChatML, as Qwen2 has it: a system message unless there is one, then images, videos and text of every message.
CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] if c['type'] == 'image' %}<image>\n{% endfor %}"
    "{% for c in m['content'] if c['type'] == 'video' %}<video>\n{% endfor %}"
    "{% for c in m['content'] if c['type'] == 'text' %}{{ c['text'] }}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def export(model: LlavaOnevisionForConditionalGeneration, tokenizer: Tokenizer, folder: Path) -> None:
    """Save the model and its processor to `folder`; the model itself stays as it is."""
    copied = copy.deepcopy(model).to("cpu").to(torch.bfloat16).eval()
    generation = copied.generation_config
    assert generation is not None
    generation.do_sample, generation.max_new_tokens = False, MAX_NEW_TOKENS
    generation.eos_token_id = tokenizer.token_to_id("<|im_end|>")
    generation.pad_token_id = tokenizer.token_to_id("<|endoftext|>")
    copied.save_pretrained(folder)
    build_processor(tokenizer).save_pretrained(folder)


def build_processor(tokenizer: Tokenizer) -> LlavaOnevisionProcessor:
    """Squeezes every picture to FRAME_SIZE squared and maps its values to [-1, 1]."""
    pixels = {
        "size": {"height": FRAME_SIZE, "width": FRAME_SIZE},
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "do_rescale": True,
        "do_normalize": True,
    }
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=SPECIAL_TOKENS,
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
    )
    return LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(image_grid_pinpoints=GRID_PINPOINTS, **pixels),
        tokenizer=wrapped,
        video_processor=LlavaOnevisionVideoProcessor(**pixels),
        num_image_tokens=PATCHES_PER_SIDE**2,
        vision_feature_select_strategy="full",
        chat_template=CHAT_TEMPLATE,
    )
