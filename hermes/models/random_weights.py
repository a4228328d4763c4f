"""Models of the catalogue's architectures with random weights, so that their speed can be measured without a download."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForImageTextToText,
    AutoTokenizer,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from hermes.catalog import CATALOG
from hermes.errors import UsageError
from hermes.models.base import VideoModel
from hermes.models.loading import DTYPES
from hermes.models.placement import named_devices
from hermes.models.registry import wrap_model
from hermes.tiny import checkpoint_folder

_QWEN_MARKS = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]


def _llava_onevision(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool = False
) -> dict[str, Any]:
    """config.json of llava-hf/llava-onevision-qwen2-*-ov-hf, which keep 26 of the 27 layers of SigLIP so400m."""
    text = {
        "model_type": "qwen2", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "tie_word_embeddings": tied,
        "max_position_embeddings": 32768, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    }  # fmt: skip
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26,
        "num_attention_heads": 16, "image_size": 384, "patch_size": 14, "vision_use_head": False,
    }  # fmt: skip
    return {"model_type": "llava_onevision", "text_config": text, "vision_config": vision, "tie_word_embeddings": tied}


def _qwen2_5_vl(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool = False, tower: int = 3420
) -> dict[str, Any]:
    """config.json of Qwen/Qwen2.5-VL-*-Instruct; `tower` is the width of the MLPs of the vision tower."""
    rope = {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [16, 24, 24]}
    text = {
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "tie_word_embeddings": tied, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 128000, "rope_parameters": rope,
    }  # fmt: skip
    vision = {
        "depth": 32, "hidden_size": 1280, "intermediate_size": tower, "num_heads": 16, "out_hidden_size": hidden,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "tokens_per_second": 2, "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    }  # fmt: skip
    return {"model_type": "qwen2_5_vl", "text_config": text, "vision_config": vision, "tie_word_embeddings": tied}


def _qwen3_vl(
    hidden: int, inner: int, depth: int, vision_hidden: int, vision_inner: int, deep: list[int], tied: bool = False
) -> dict[str, Any]:
    """config.json of Qwen/Qwen3-VL-*-Instruct; `deep` are the blocks of the tower that feed DeepStack."""
    rope = {"rope_type": "default", "rope_theta": 5000000.0, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    text = {
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": tied,
        "max_position_embeddings": 262144, "rope_parameters": rope,
    }  # fmt: skip
    vision = {
        "depth": depth, "hidden_size": vision_hidden, "intermediate_size": vision_inner, "num_heads": 16,
        "out_hidden_size": hidden, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "num_position_embeddings": 2304, "deepstack_visual_indexes": deep,
    }  # fmt: skip
    return {"model_type": "qwen3_vl", "text_config": text, "vision_config": vision, "tie_word_embeddings": tied}


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "ov-0.5b": _llava_onevision(896, 4864, 24, 14, 2, 152000, tied=True),
    "ov-7b": _llava_onevision(3584, 18944, 28, 28, 4, 152128),
    "ov-72b": _llava_onevision(8192, 29568, 80, 64, 8, 152128),
    "qwen2.5vl-3b": _qwen2_5_vl(2048, 11008, 36, 16, 2, 151936, tied=True),
    "qwen2.5vl-7b": _qwen2_5_vl(3584, 18944, 28, 28, 4, 152064),
    "qwen2.5vl-32b": _qwen2_5_vl(5120, 27648, 64, 40, 8, 152064, tower=3456),
    "qwen3vl-4b": _qwen3_vl(2560, 9728, 24, 1024, 4096, [5, 11, 17], tied=True),
    "qwen3vl-8b": _qwen3_vl(4096, 12288, 27, 1152, 4304, [8, 16, 24]),
}
"""Alias of the catalogue to what its published config.json says, apart from the embedded model, which has one here. The
configurations are public; `tests/test_catalog.py` compares sizes with the catalogue, and that with the published ones."""


def architecture(alias: str) -> Any:
    """The transformers configuration of a model of the catalogue.

    Raises:
        UsageError: the catalogue has no model of that name.
    """
    if alias == "tiny":
        return AutoConfig.from_pretrained(checkpoint_folder())
    if alias not in ARCHITECTURES:
        known = ", ".join(model.alias for model in CATALOG)
        raise UsageError(f"no architecture is known for {alias!r}", f"choose one of: {known}")
    described = dict(ARCHITECTURES[alias])
    return CONFIG_MAPPING[described.pop("model_type")](**described)


def random_model(alias: str, device: str = "auto", dtype: str = "auto", seed: int = 0) -> VideoModel:
    """A model of the catalogue with random weights, made on its device.

    Its tokenizer is the embedded model's, whose ids all lie within the embedding table; what it answers is noise.

    Args:
        alias: of the catalogue (`hermes.catalog`).
        device, dtype: as `hermes.models.load_model`; one device.
        seed: the same one gives the same weights on the same kind of device.

    Raises:
        UsageError: the catalogue has no model of that name, or several devices are named.
        ModelError: the device is not there.
    """
    return from_architecture(architecture(alias), f"{alias} with random weights", device, dtype, seed)


def from_architecture(config: Any, name: str, device: str = "auto", dtype: str = "auto", seed: int = 0) -> VideoModel:
    """A model of any configuration of a known family; arguments and errors as `random_model`."""
    devices = named_devices(device)
    if "," in device:
        raise UsageError("random weights are made on one device", "name one of them, such as --device cuda:0")
    place = devices[0]
    precision = getattr(torch, DTYPES.get(dtype, "float32" if place.type == "cpu" else "bfloat16"))
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder())
    processor = _PROCESSORS[config.model_type](config, tokenizer)
    with torch.random.fork_rng([place] if place.type == "cuda" else []), place:
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(config, dtype=precision, trust_remote_code=False)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return wrap_model(model.eval(), processor, name)


def _llava_processor(config: Any, tokenizer: Any) -> Any:
    config.image_token_index, config.video_token_index = tokenizer.convert_tokens_to_ids(["<image>", "<video>"])
    side = config.vision_config.image_size
    pixels = {"size": {"height": side, "width": side}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    return LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(image_grid_pinpoints=config.image_grid_pinpoints, **pixels),
        tokenizer=tokenizer,
        video_processor=LlavaOnevisionVideoProcessor(**pixels),
        num_image_tokens=(side // config.vision_config.patch_size) ** 2,
        vision_feature_select_strategy="full",
        chat_template=tokenizer.chat_template,
    )


def _qwen_processor(config: Any, tokenizer: Any, processor: Any, video: Any, least_tokens: int) -> Any:
    """`least_tokens`: the size below which the checkpoint's processor scales pictures up."""
    tokenizer.add_special_tokens({"additional_special_tokens": [*tokenizer.all_special_tokens, *_QWEN_MARKS]})
    image_id, video_id, start_id, end_id = tokenizer.convert_tokens_to_ids(_QWEN_MARKS)
    config.image_token_id, config.video_token_id = image_id, video_id
    config.vision_start_token_id, config.vision_end_token_id = start_id, end_id
    vision = config.vision_config
    patches = {"patch_size": vision.patch_size, "merge_size": vision.spatial_merge_size, "temporal_patch_size": 2}
    token = (vision.patch_size * vision.spatial_merge_size) ** 2  # pixels
    size = {"shortest_edge": least_tokens * token, "longest_edge": 16384 * token}
    return processor(
        image_processor=Qwen2VLImageProcessor(**patches),
        tokenizer=tokenizer,
        video_processor=video(**patches, size=size),
        chat_template=tokenizer.chat_template.replace("<video>\n", "<|vision_start|><|video_pad|><|vision_end|>"),
    )


_PROCESSORS: dict[str, Callable[[Any, Any], Any]] = {
    "llava_onevision": _llava_processor,
    "qwen2_5_vl": lambda config, tokenizer: _qwen_processor(
        config, tokenizer, Qwen2_5_VLProcessor, Qwen2VLVideoProcessor, least_tokens=4
    ),
    "qwen3_vl": lambda config, tokenizer: _qwen_processor(
        config, tokenizer, Qwen3VLProcessor, Qwen3VLVideoProcessor, least_tokens=4
    ),
}
