"""Loading a checkpoint: reading and checking it, in a precision, on the devices that hold it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, PreTrainedConfig

from hermes.errors import HermesError, ModelError, UsageError
from hermes.models.base import VideoModel
from hermes.models.placement import device_map, named_devices
from hermes.models.quantisation import QUANTS, bitsandbytes_config, check_quantised
from hermes.models.registry import adapter_for, wrap_model

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def load_model(source: str | Path, device: str = "auto", dtype: str = "auto", quant: str = "none") -> VideoModel:
    """Load a checkpoint of a known family from the Hugging Face hub's cache, the hub or a local folder.

    Args:
        source: hub id or folder.
        device: `auto` (one GPU when the model fits there, else as few as hold it; without any MPS, then the CPU), `cpu`,
            `cuda`, `cuda:N`, `mps`, or several GPUs that share the model, such as `cuda:0,cuda:1`.
        dtype: of activations, cache and whatever is not quantised: `auto` (bf16 on a GPU, fp32 on a CPU), `bf16`, `fp16` or
            `fp32`.
        quant: how the language model's layers are held (`hermes.models.quantisation.QUANTS`).

    Raises:
        ModelError: the checkpoint cannot be found or read, its family is unknown, the device is not there, or the GPUs are
            too small for it; bitsandbytes is missing where it is needed.
        UsageError: dtype or quant is none of these.
    """
    for setting, value, known in (("dtype", dtype, ("auto", *DTYPES)), ("quant", quant, QUANTS)):
        if value not in known:
            raise UsageError(f"unknown {setting} {value!r}", f"choose one of: {', '.join(known)}")
    devices = named_devices(device)
    precision = getattr(torch, DTYPES[dtype]) if dtype != "auto" else _default_dtype(devices[0])
    try:
        config, processor = _read_description(source)
        skeleton = _without_weights(config, precision)
        _check_size(source, skeleton)
        quantisation = bitsandbytes_config(skeleton, quant, devices[0], precision)
        placed = device_map(skeleton, devices, quant, share=device != "auto")
        model, loading = _read_weights(source, dtype=precision, device_map=placed, quantization_config=quantisation)
    except (HermesError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a checkpoint is foreign input, and its readers fail in many ways
        raise _unreadable(source, error) from error
    _check_weights(source, loading)
    check_quantised(model, quant)
    return wrap_model(model.eval(), processor, str(source))


def _read_description(source: str | Path) -> tuple[Any, Any]:
    """The checkpoint's configuration and its processor. Code that comes with a checkpoint is never run."""
    raw, _ = PreTrainedConfig.get_config_dict(source)
    if "model_type" not in raw:
        raise OSError("there is no config.json that names a model_type")
    adapter_for(raw["model_type"])
    if "quantization_config" in raw:
        raise ModelError(
            f"the weights of {str(source)!r} are stored quantised", "use the original checkpoint, with --quant 4bit or 8bit"
        )
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    return config, AutoProcessor.from_pretrained(source, trust_remote_code=False)


def _without_weights(config: Any, precision: torch.dtype) -> Any:
    """The model's modules with nothing in them, to see what it needs before any weight is read."""
    with torch.device("meta"):
        return AutoModelForImageTextToText.from_config(config, dtype=precision, trust_remote_code=False)


def _check_size(source: str | Path, skeleton: Any) -> None:
    """Refuse a configuration that describes a far larger model than there are weights, before memory is filled with it."""
    described = sum(weight.numel() for weight in skeleton.parameters())
    stored = sum(path.stat().st_size for path in Path(source).glob("*.safetensors"))  # 0 where they are still on the hub
    if 0 < stored < described / 4:  # not even 2 bits a weight
        raise ModelError(
            f"the weights of {str(source)!r} do not fit its config.json: {stored} bytes for {described} parameters",
            "download the checkpoint again",
        )


def _read_weights(source: str | Path, **how: Any) -> tuple[Any, dict[str, Any]]:
    """The model, each weight read straight to its device, and what transformers says about the weights."""
    load = AutoModelForImageTextToText.from_pretrained
    model, loading = load(source, output_loading_info=True, trust_remote_code=False, **how)
    return model, loading


def _check_weights(source: str | Path, loading: dict[str, Any]) -> None:
    """transformers fills weights it does not find with random numbers; a model like that answers nonsense. Weights left over
    are one too when they are the language model's; vision towers are often shipped with a head that nobody uses."""
    wrong = {kind: sorted(map(str, loading.get(f"{kind}_keys") or ())) for kind in ("missing", "mismatched", "unexpected")}
    wrong["unexpected"] = [name for name in wrong["unexpected"] if "language_model" in name]
    found = [f"{len(keys)} {kind} (such as {keys[0]})" for kind, keys in wrong.items() if keys]
    if found:
        raise ModelError(
            f"the weights of {str(source)!r} do not fit its config.json: {', '.join(found)}", "download the checkpoint again"
        )


def _default_dtype(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def _unreadable(source: str | Path, error: Exception) -> ModelError:
    if Path(source).is_dir():
        reason, hint = "is not a usable checkpoint folder", "it needs config.json, weights and the processor's files"
    else:
        reason, hint = "is not a folder and could not be fetched from the hub", f"try: hf download {source}"
    told = textwrap.shorten(str(error), 300, placeholder=" ...") or type(error).__name__
    return ModelError(f"model {str(source)!r} {reason}: {told}", hint)
