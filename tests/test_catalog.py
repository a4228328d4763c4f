"""The catalogue's numbers are those of the architectures, and its memory that of real weights and a real cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForImageTextToText

from hermes.catalog import CATALOG, TEXT_TOKENS, TINY, KnownModel, find
from hermes.config import MemoryConfig
from hermes.engine import StreamEngine
from hermes.models import load_model
from hermes.tiny import checkpoint_folder
from tests.conftest import noise_frames


def llava_onevision(hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool) -> Any:
    """As config.json of the llava-hf checkpoints has it, which keep 26 of the 27 layers of SigLIP so400m."""
    text = {
        "model_type": "qwen2", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "tie_word_embeddings": tied,
    }  # fmt: skip
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26,
        "num_attention_heads": 16, "image_size": 384, "patch_size": 14, "vision_use_head": False,
    }  # fmt: skip
    return CONFIG_MAPPING["llava_onevision"](text_config=text, vision_config=vision, tie_word_embeddings=tied)


def qwen2_5_vl(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool, vision_inner: int = 3420
) -> Any:
    """As config.json of the Qwen2.5-VL checkpoints has it; the 32B model's tower has wider MLPs."""
    text = {
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "tie_word_embeddings": tied,
    }  # fmt: skip
    vision = {
        "depth": 32, "hidden_size": 1280, "intermediate_size": vision_inner, "num_heads": 16, "out_hidden_size": hidden,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    return CONFIG_MAPPING["qwen2_5_vl"](text_config=text, vision_config=vision, tie_word_embeddings=tied)


def qwen3_vl(hidden: int, inner: int, tied: bool, depth: int, vision_hidden: int, vision_inner: int, deep: list[int]) -> Any:
    """As config.json of the Qwen3-VL checkpoints has it."""
    text = {
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": tied,
    }  # fmt: skip
    vision = {
        "depth": depth, "hidden_size": vision_hidden, "intermediate_size": vision_inner, "num_heads": 16,
        "out_hidden_size": hidden, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "num_position_embeddings": 2304, "deepstack_visual_indexes": deep,
    }  # fmt: skip
    return CONFIG_MAPPING["qwen3_vl"](text_config=text, vision_config=vision, tie_word_embeddings=tied)


CONFIGS = {
    "ov-0.5b": llava_onevision(896, 4864, 24, 14, 2, 152000, tied=True),
    "ov-7b": llava_onevision(3584, 18944, 28, 28, 4, 152128, tied=False),
    "ov-72b": llava_onevision(8192, 29568, 80, 64, 8, 152128, tied=False),
    "qwen2.5vl-3b": qwen2_5_vl(2048, 11008, 36, 16, 2, 151936, tied=True),
    "qwen2.5vl-7b": qwen2_5_vl(3584, 18944, 28, 28, 4, 152064, tied=False),
    "qwen2.5vl-32b": qwen2_5_vl(5120, 27648, 64, 40, 8, 152064, tied=False, vision_inner=3456),
    "qwen3vl-4b": qwen3_vl(2560, 9728, tied=True, depth=24, vision_hidden=1024, vision_inner=4096, deep=[5, 11, 17]),
    "qwen3vl-8b": qwen3_vl(4096, 12288, tied=False, depth=27, vision_hidden=1152, vision_inner=4304, deep=[8, 16, 24]),
    "tiny": AutoConfig.from_pretrained(checkpoint_folder()),
}


@pytest.mark.parametrize("known", CATALOG, ids=lambda known: known.alias)
def test_every_number_is_that_of_the_architecture(known: KnownModel) -> None:
    config = CONFIGS[known.alias]
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    model.tie_weights()
    text = config.get_text_config()
    linear = [module for module in model.get_decoder().layers.modules() if isinstance(module, nn.Linear)]
    assert known.parameters == sum(weight.numel() for weight in model.parameters())
    assert known.quantisable == sum(module.weight.numel() for module in linear)
    assert (known.layers, known.kv_heads, known.hidden_size, known.vocabulary) == (
        text.num_hidden_layers, text.num_key_value_heads, text.hidden_size, text.vocab_size,
    )  # fmt: skip
    assert known.head_dim == (getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)
    if config.model_type == "llava_onevision":
        side = -(-(config.vision_config.image_size // config.vision_config.patch_size) // 2)
        assert (known.frame_tokens, known.frame_tokens_vary) == (side**2, False)
    else:
        assert (known.frame_tokens, known.frame_tokens_vary) == (196, True)


def test_the_published_sizes_are_the_published_ones() -> None:
    total_size = {  # bytes of all the tensors that are published
        "qwen2.5vl-3b": 7509245952, "qwen2.5vl-7b": 16584333312, "qwen2.5vl-32b": 66905436672, "qwen3vl-8b": 17534247392,
    }  # fmt: skip
    assert {alias: known.disk_bytes for alias in total_size if (known := find(alias))} == total_size


def test_aliases_and_ids_name_one_model_each() -> None:
    assert len({known.alias for known in CATALOG}) == len({known.hub_id for known in CATALOG}) == len(CATALOG)
    assert find("ov-7b") is not None
    assert find("OV-7b") is None


@pytest.mark.parametrize("quant", ["8bit", "4bit"])
def test_quantised_weights_take_what_bitsandbytes_makes_of_them(quant: str) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    rows, columns = 512, 1024
    known = KnownModel("x", None, rows * columns, rows * columns, 1, 1, 1, 1, 1)
    weight = torch.randn(rows, columns)
    if quant == "8bit":
        numbers, scales, _ = bitsandbytes.functional.int8_vectorwise_quant(weight.half())
        assert known.weight_bytes("8bit") == numbers.nbytes
        assert scales.nbytes < numbers.nbytes / 200  # one number a row, which is not counted
        return
    packed, state = bitsandbytes.functional.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=True)
    assert known.weight_bytes("4bit") == packed.nbytes + state.absmax.nbytes + state.state2.absmax.nbytes


def test_what_is_not_quantised_stays_in_16_bits() -> None:
    known = KnownModel("x", None, 1000, 0, 1, 1, 1, 1, 1)
    assert {known.weight_bytes(precision) for precision in ("bf16", "8bit", "4bit")} == {2000}
    assert known.weight_bytes("fp32") == 4000


def test_the_cache_takes_what_a_real_one_does() -> None:
    engine = StreamEngine(load_model(checkpoint_folder(), device="cpu"), MemoryConfig())
    for frame in noise_frames(16):
        engine.push(frame)
    slots = engine.cache.layers[0].capacity
    bytes_held = sum(
        slab.nbytes for layer in engine.cache.layers for slab in (layer.keys, layer.raw_keys, layer.values)
    )  # fmt: skip
    counted = MemoryConfig().budget + 16 * TINY.frame_tokens
    assert slots <= counted + TEXT_TOKENS
    assert bytes_held == TINY.cache_bytes(4) * slots // (counted + TEXT_TOKENS)
    assert TINY.memory_bytes("fp32") > TINY.cache_bytes(4) + 4 * TINY.parameters


def test_each_device_needs_room_to_work_in() -> None:
    known = CATALOG[0]
    assert known.memory_bytes("bf16", devices=2) - known.memory_bytes("bf16") == 2 * 2**30
    assert known.memory_bytes("4bit") < known.memory_bytes("8bit") < known.memory_bytes("bf16") < known.memory_bytes("fp32")
