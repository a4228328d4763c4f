"""The catalogue's numbers are those of the architectures, and its memory that of real weights and a real cache."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoModelForImageTextToText

from hermes.catalog import CATALOG, TEXT_TOKENS, TINY, KnownModel, find
from hermes.config import MemoryConfig
from hermes.engine import StreamEngine
from hermes.models import load_model
from hermes.models.random_weights import architecture
from hermes.tiny import checkpoint_folder
from tests.conftest import noise_frames


@pytest.mark.parametrize("known", CATALOG, ids=lambda known: known.alias)
def test_every_number_is_that_of_the_architecture(known: KnownModel) -> None:
    config = architecture(known.alias)
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
