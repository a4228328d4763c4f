"""Loading: what is read and refused, quantised weights, and models that several devices share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bitsandbytes
import pytest
import torch
from accelerate import dispatch_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForImageTextToText, BitsAndBytesConfig

from hermes.catalog import KnownModel, Precision, find
from hermes.config import MemoryConfig, Sampling
from hermes.engine import StreamEngine
from hermes.errors import ModelError, UsageError
from hermes.models import VideoModel, linear_layers, load_model, wrap_model
from hermes.models.placement import choose_gpus, device_map, named_devices, size_of, split
from hermes.models.quantisation import check_quantised
from tests import make_tiny
from tests.conftest import noise_frames

GIB = 1024**3
KINDS = {"8bit": "8-bit", "4bit": "4-bit"}
MEMORY = MemoryConfig(budget=40, chunk_frames=4, position_room=160, history_tokens=8)

families = pytest.mark.parametrize("family", make_tiny.FAMILIES)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A random checkpoint of a family, written once."""
    root = tmp_path_factory.mktemp("checkpoints")

    def folder(family: str) -> Path:
        if not (root / family).exists():
            make_tiny.write(family, root / family)
        return root / family

    return folder


def skeleton(family: str) -> Any:
    """A model without weights, as loading makes it before it reads any."""
    config = make_tiny.FAMILIES[family]()[0].config
    text = config.get_text_config()  # wider, so that layers count for more than the vocabulary
    text.hidden_size = text.intermediate_size = 128
    text.num_attention_heads, text.num_key_value_heads = 8, 4
    if hasattr(config.vision_config, "out_hidden_size"):
        config.vision_config.out_hidden_size = 128
    with torch.device("meta"):
        return AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)


def halves(model: Any) -> dict[str, int]:
    """The parts of a model that two GPUs share, each with room for hardly more than all of it."""
    whole = size_of(model).memory_bytes("fp32", devices=1)
    return split(model, "none", {0: whole, 1: whole})


def stream(model: VideoModel) -> tuple[str, dict[str, Tensor]]:
    """The answer to a question after a compression, and the memory, which must be the same before and after it."""
    engine = StreamEngine(model, MEMORY)
    compressed = [event.compression for frame in noise_frames(18) if (event := engine.push(frame))]
    assert any(compressed)
    before = engine.snapshot().cache
    answer = list(engine.ask("What is on screen now?", Sampling(max_new_tokens=6), remember=False))[-1]
    after = engine.snapshot().cache
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert all(slab.isfinite().all() for slab in after.values())
    return answer.text, after


def test_a_saved_checkpoint_loads_and_an_unknown_one_says_why(tmp_path: Path) -> None:
    make_tiny.write("llava_onevision", tmp_path / "model")
    loaded = load_model(tmp_path / "model", device="cpu")
    assert (loaded.layers, loaded.max_positions, loaded.chunk_size(2, 640, 480).tokens) == (4, 32768, 18)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"not a usable checkpoint folder"):
        load_model(tmp_path / "empty", device="cpu")
    with pytest.raises(ModelError, match="'cuda:99' is not available"):
        load_model(tmp_path / "model", device="cuda:99")
    with pytest.raises(ModelError, match="unknown device"):
        load_model(tmp_path / "model", device="tpu?")


def test_models_of_other_families_are_refused_with_the_known_ones_named() -> None:
    model, processor = make_tiny.llava_onevision()
    model.config.model_type = "mystery"
    with pytest.raises(ModelError, match="'mystery' are not supported") as caught:
        wrap_model(model, processor, "x")
    assert "llava_onevision" in caught.value.hint


def changed(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    """A saved checkpoint with its weights changed."""
    make_tiny.write("llava_onevision", folder)
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda weights: weights.pop(next(name for name in weights if "layers.2.mlp.up_proj" in name)), "1 missing"),
        (lambda weights: weights.update({"model.language_model.layers.9.norm": torch.zeros(1)}), "1 unexpected"),
    ],
)
def test_weights_that_do_not_fit_are_an_error_and_not_random_numbers(tmp_path: Path, change: Any, kind: str) -> None:
    with pytest.raises(ModelError, match=f"do not fit its config.json: {kind}"):
        load_model(changed(tmp_path / "model", change), device="cpu")


def test_weights_left_over_outside_the_language_model_do_no_harm(tmp_path: Path) -> None:
    folder = changed(tmp_path / "model", lambda weights: weights.update({"vision_tower.head.weight": torch.zeros(1)}))
    assert load_model(folder, device="cpu").layers == 4


def test_unreadable_weights_and_templates_are_a_models_fault(tmp_path: Path) -> None:
    make_tiny.write("llava_onevision", tmp_path)
    template = (tmp_path / "chat_template.jinja").read_text()
    (tmp_path / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(ModelError, match="template is missing or broken"):
        load_model(tmp_path, device="cpu").prompt("template")
    (tmp_path / "chat_template.jinja").write_text(template)
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ModelError, match=r"do not fit its config.json: 43 bytes"):
        load_model(tmp_path, device="cpu")
    (tmp_path / "model.safetensors").write_bytes(b"x" * 10**6)
    with pytest.raises(ModelError, match="not a usable checkpoint folder"):
        load_model(tmp_path, device="cpu")


def test_code_that_comes_with_a_checkpoint_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mystery", "auto_map": {"AutoConfig": "code.Config"}}')
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')")
    monkeypatch.setattr("builtins.input", lambda *args: "y")
    with pytest.raises(ModelError, match="'mystery' are not supported") as caught:
        load_model(tmp_path, device="cpu")
    assert "llava_onevision" in caught.value.hint
    assert not (tmp_path / "was_run").exists()


@families
@pytest.mark.parametrize("quant", KINDS)
def test_quantised_are_the_language_models_layers_and_nothing_else(
    folders: Callable[[str], Path], family: str, quant: str
) -> None:
    whole = linear_layers(load_model(folders(family), device="cpu", dtype="bf16").model)
    model = load_model(folders(family), device="cpu", dtype="bf16", quant=quant)
    layers = linear_layers(model.model)
    assert whole.language == {"bf16": 7 * model.layers}
    assert layers.language == {KINDS[quant]: 7 * model.layers}
    assert layers.other == whole.other
    assert sum(whole.other.values()) > 4
    assert str(layers) == f"{KINDS[quant]}: {7 * model.layers} language layers; vision and output bf16"


@families
@pytest.mark.parametrize("quant", KINDS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_quantised_model_streams_and_its_cache_has_the_dtype_of_its_activations(
    folders: Callable[[str], Path], family: str, quant: str, dtype: str
) -> None:
    model = load_model(folders(family), device="cpu", dtype=dtype, quant=quant)
    expected = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    assert model.dtype == expected
    _, memory = stream(model)
    assert {memory["0.keys"].dtype, memory["0.values"].dtype} == {expected}


def test_names_that_do_not_match_are_found_out_after_loading(folders: Callable[[str], Path]) -> None:
    config = BitsAndBytesConfig(load_in_4bit=True, llm_int8_skip_modules=["vision_tower", "multi_modal_projector"])
    model = AutoModelForImageTextToText.from_pretrained(folders("llava_onevision"), quantization_config=config)
    with pytest.raises(ModelError, match=r"not held as asked \(4bit\): 4-bit: 28 language layers; vision and output 4-bit"):
        check_quantised(model, "4bit")
    with pytest.raises(ModelError, match=r"not held as asked \(4bit\): fp32: 28 language layers"):
        check_quantised(make_tiny.llava_onevision()[0], "4bit")


def test_bitsandbytes_that_is_missing_or_cannot_compute_here_is_named(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bitsandbytes, "supported_torch_devices", {"cuda"})
    with pytest.raises(ModelError, match="4-bit weights need a bitsandbytes that computes on 'cpu'"):
        load_model(folders("llava_onevision"), device="cpu", quant="4bit")
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ModelError, match="8-bit weights need bitsandbytes, which cannot be loaded") as caught:
        load_model(folders("llava_onevision"), device="cpu", quant="8bit")
    assert "pip install bitsandbytes" in caught.value.hint


def test_layers_too_narrow_for_4_bits_on_a_cpu_are_named(tmp_path: Path) -> None:
    make_tiny.write("llava_onevision", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["text_config"]["intermediate_size"] = 48
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"multiples of 64 x 32; model.language_model.layers.0.mlp.down_proj has 48 x 64"):
        load_model(tmp_path, device="cpu", quant="4bit")


def test_a_checkpoint_that_is_stored_quantised_is_refused(tmp_path: Path) -> None:
    make_tiny.write("llava_onevision", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "awq"}}))
    with pytest.raises(ModelError, match="are stored quantised"):
        load_model(tmp_path, device="cpu")


def test_an_overflow_in_a_chunk_stops_the_answer_that_comes_after_it(tmp_path: Path) -> None:
    name = "multi_modal_projector.linear_2.weight"  # only visual tokens pass here; in fp32 there is room enough
    folder = changed(
        tmp_path / "model", lambda weights: weights.update({key: weights[key] * 1e5 for key in [full_name(weights, name)]})
    )
    stream(load_model(folder, device="cpu", dtype="fp32"))
    engine = StreamEngine(load_model(folder, device="cpu", dtype="fp16"), MEMORY)
    for frame in noise_frames(18):
        engine.push(frame)
    with pytest.raises(ModelError, match="NaN or infinite") as caught:
        list(engine.ask("What is on screen now?", Sampling(max_new_tokens=6)))
    assert "--dtype bf16" in caught.value.hint


def full_name(weights: dict[str, Tensor], end: str) -> str:
    """The full name of a weight."""
    return next(name for name in weights if name.endswith(end))


@pytest.mark.parametrize(
    ("alias", "precision", "free", "gpus"),
    [
        ("ov-7b", "bf16", {0: 24}, (0,)),
        ("ov-7b", "bf16", {0: 24, 1: 24}, (0,)),
        ("ov-7b", "bf16", {0: 10, 1: 24}, (1,)),  # the emptier one
        ("ov-7b", "bf16", {0: 12, 1: 12}, (0, 1)),
        ("ov-7b", "fp32", {0: 24, 1: 24}, (0, 1)),
        ("qwen2.5vl-32b", "bf16", {0: 24, 1: 24, 2: 24, 3: 24}, (0, 1, 2)),
        ("qwen2.5vl-32b", "bf16", {0: 80, 1: 24}, (0,)),
        ("qwen2.5vl-32b", "4bit", {0: 24, 1: 24}, (0, 1)),
        ("qwen2.5vl-32b", "4bit", {0: 32}, (0,)),
        ("ov-72b", "bf16", {0: 80, 1: 80}, (0, 1)),
        ("ov-72b", "4bit", {0: 80, 1: 80}, (0,)),
    ],
)
def test_one_gpu_when_the_model_fits_and_as_few_as_hold_it_otherwise(
    alias: str, precision: Precision, free: dict[int, int], gpus: tuple[int, ...]
) -> None:
    assert choose_gpus(known(alias), precision, {gpu: size * GIB for gpu, size in free.items()}) == gpus


def test_all_gpus_that_are_named_share_the_model() -> None:
    assert choose_gpus(known("ov-0.5b"), "bf16", {0: 24 * GIB, 1: 20 * GIB}, share=True) == (0, 1)


def test_a_model_that_fits_nowhere_says_what_it_needs_what_is_there_and_what_would_fit() -> None:
    with pytest.raises(ModelError, match=r"needs 69.5 GiB of GPU memory; 16.0 \+ 14.0 GiB are free") as caught:
        choose_gpus(known("qwen2.5vl-32b"), "bf16", {0: 16 * GIB, 1: 14 * GIB})
    assert caught.value.hint == "use --quant 4bit, a smaller model, or --device cpu"
    with pytest.raises(ModelError) as caught:
        choose_gpus(known("qwen2.5vl-32b"), "4bit", {0: 4 * GIB})
    assert caught.value.hint == "use a smaller model, or --device cpu"


def known(alias: str) -> KnownModel:
    """A model of the catalogue."""
    model = find(alias)
    assert model
    return model


@families
def test_a_models_size_is_that_of_its_tensors(folders: Callable[[str], Path], family: str) -> None:
    size = size_of(make_tiny.FAMILIES[family]()[0])
    whole = load_model(folders(family), device="cpu", dtype="bf16")
    assert size.weight_bytes("bf16") == sum(weight.numel() * 2 for weight in whole.model.parameters())
    eight = load_model(folders(family), device="cpu", dtype="bf16", quant="8bit").model
    assert size.weight_bytes("8bit") == sum(weight.numel() * weight.element_size() for weight in eight.parameters())
    assert size.cache_bytes() == whole.new_cache(size.cache_bytes() // whole.new_cache(1).nbytes).nbytes


@families
@pytest.mark.parametrize("quant", ["none", "4bit"])
def test_gpus_share_a_model_by_whole_layers_and_never_with_the_cpu(family: str, quant: str) -> None:
    model = skeleton(family)
    whole = size_of(model).memory_bytes("bf16" if quant == "none" else "4bit", devices=1)
    placed = split(model, quant, {0: whole, 3: whole})
    assert set(placed.values()) == {0, 3}
    decoder = model.get_decoder()
    undivided = {*decoder.layers, *model.model.children()} - {decoder}
    parts = placed.keys() - dict(model.named_parameters()).keys()
    inside = {module for part in parts for module in model.get_submodule(part).modules()}
    assert undivided <= inside  # each within one part, so on one GPU
    with pytest.raises(ModelError, match="GiB are free, but not in one piece for each layer") as caught:
        split(model, quant, dict.fromkeys(range(20), whole // 10))
    assert ("--quant 4bit" in caught.value.hint) == (quant != "4bit")


@pytest.mark.parametrize("setting", [{"dtype": "fp8"}, {"quant": "4-bit"}])
def test_a_precision_that_is_not_known_is_refused_with_the_known_ones_named(setting: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"unknown (dtype|quant)") as caught:
        load_model("nowhere", device="cpu", **setting)
    assert "bf16" in caught.value.hint or "4bit" in caught.value.hint


def test_devices_are_one_name_or_a_list_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert named_devices("0") == (torch.device("cuda:0"),)
    assert named_devices("cuda:0, 1") == (torch.device("cuda:0"), torch.device("cuda:1"))
    with pytest.raises(ModelError, match="no list of GPUs"):
        named_devices("cuda:0,cpu")
    with pytest.raises(ModelError, match="'cuda:2' is not available"):
        named_devices("cuda:0,cuda:2")


def test_a_gpu_that_is_named_is_taken_and_auto_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    model = skeleton("llava_onevision")
    room = 2 * size_of(model).memory_bytes("bf16")
    free = {0: room, 1: 2 * room}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[device.index], 0))
    both = [torch.device("cuda:0"), torch.device("cuda:1")]
    assert device_map(model, both, "none", share=False) == {"": both[1]}
    assert device_map(model, both[:1], "none", share=True) == {"": both[0]}
    assert set(device_map(model, both, "none", share=True).values()) == {0, 1}


@families
@pytest.mark.filterwarnings("ignore:The following device_map keys")
def test_a_model_spread_by_accelerate_streams_exactly_as_the_whole_one(family: str) -> None:
    model, processor = make_tiny.FAMILIES[family]()
    dispatch_model(model, device_map=dict.fromkeys(halves(model), "cpu"), main_device="cpu", force_hooks=True)
    spread = wrap_model(model, processor, "tiny random")
    assert all(hasattr(layer, "_hf_hook") for layer in spread.decoder.layers)
    text, memory = stream(spread)
    whole_text, whole_memory = stream(wrap_model(*make_tiny.FAMILIES[family](), "tiny random"))
    assert text == whole_text
    assert all(torch.equal(memory[name], whole_memory[name]) for name in memory)


def test_every_slab_lies_with_its_layer(model: VideoModel) -> None:
    for index in (0, 2):
        model.decoder.layers[index].to("meta")
    assert [layer.keys.device.type for layer in model.new_cache(8).layers] == ["meta", "cpu", "meta", "cpu"]
    assert model.device.type == "meta"


@needs_gpu
@families
def test_a_model_that_cpu_and_gpu_share_streams_as_on_one_device(family: str) -> None:
    model, processor = make_tiny.FAMILIES[family]()
    places = {name: ["cpu", "cuda:0"][half] for name, half in halves(model).items()}
    dispatch_model(model, device_map=places, main_device="cpu")
    spread = wrap_model(model, processor, "tiny random")
    assert {layer.keys.device.type for layer in spread.new_cache(8).layers} == {"cpu", "cuda"}
    text, _ = stream(spread)
    assert text == stream(wrap_model(*make_tiny.FAMILIES[family](), "tiny random"))[0]


@needs_gpu
@families
@pytest.mark.parametrize("quant", ["none", *KINDS])
def test_weights_go_straight_to_the_gpu(folders: Callable[[str], Path], family: str, quant: str) -> None:
    model = load_model(folders(family), quant=quant)
    assert (model.device.type, model.dtype) == ("cuda", torch.bfloat16)
    stream(model)
