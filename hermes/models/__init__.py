"""Loading a checkpoint into the adapter of its family."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedConfig

from hermes.errors import HermesError, ModelError
from hermes.models.base import VideoModel, VisualTokens

FAMILIES = {"llava_onevision": "hermes.models.llava_onevision:LlavaOnevision"}
"""Hugging Face `model_type` to the adapter, imported by name when it is needed."""

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}

__all__ = ["DTYPES", "FAMILIES", "VideoModel", "VisualTokens", "load_model", "wrap_model"]


def load_model(source: str | Path, device: str = "auto", dtype: str = "auto") -> VideoModel:
    """Load a checkpoint of a known family from the Hugging Face hub's cache, the hub or a local folder.

    Args:
        source: hub id or folder.
        device: `auto` (CUDA, else MPS, else CPU), `cpu`, `cuda`, `cuda:N` or `mps`.
        dtype: `auto` (bf16 on a GPU, fp32 on a CPU), `bf16`, `fp16` or `fp32`.

    Raises:
        ModelError: the checkpoint cannot be found or read, its family is unknown, or the device is not there.
    """
    where = _pick_device(device)
    precision = getattr(torch, DTYPES[dtype]) if dtype != "auto" else _default_dtype(where)
    try:
        model, processor, loading = _read_checkpoint(source, precision)
    except (HermesError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a checkpoint is foreign input, and its readers fail in many ways
        raise _unreadable(source, error) from error
    _check_weights(source, loading)
    return wrap_model(model.to(where).eval(), processor, str(source))


def _read_checkpoint(source: str | Path, precision: torch.dtype) -> tuple[Any, Any, dict[str, Any]]:
    """Model, processor and what transformers says about the weights. Code that comes with a checkpoint is never run."""
    local: dict[str, Any] = {"trust_remote_code": False}
    config, _ = PreTrainedConfig.get_config_dict(source)
    if "model_type" not in config:
        raise OSError("there is no config.json that names a model_type")
    _adapter(config["model_type"])
    processor = AutoProcessor.from_pretrained(source, **local)
    load = AutoModelForImageTextToText.from_pretrained
    model, loading = load(source, dtype=precision, output_loading_info=True, **local)
    return model, processor, loading


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


def wrap_model(model: Any, processor: Any, name: str) -> VideoModel:
    """Put a loaded transformers model behind the adapter of its family; raises `ModelError` for an unknown one."""
    adapter = _adapter(model.config.model_type)
    return adapter(model.requires_grad_(False), processor, name, getattr(model.config, "_commit_hash", None))


def _adapter(model_type: str) -> type[VideoModel]:
    if model_type not in FAMILIES:
        raise ModelError(f"models of family {model_type!r} are not supported", f"known families: {', '.join(FAMILIES)}")
    module, _, name = FAMILIES[model_type].partition(":")
    adapter: type[VideoModel] = getattr(importlib.import_module(module), name)
    return adapter


def _pick_device(name: str) -> torch.device:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind in available if available[kind]))
    try:
        device = torch.device(f"cuda:{name}" if name.isdigit() else name)
    except RuntimeError as error:
        raise ModelError(f"unknown device {name!r}", "choose auto, cpu, cuda, cuda:N or mps") from error
    usable = available.get(device.type, False)
    if not usable or (device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()):
        raise ModelError(f"device {name!r} is not available here", "use --device cpu, or --device auto to pick one")
    return device


def _default_dtype(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def _unreadable(source: str | Path, error: Exception) -> ModelError:
    if Path(source).is_dir():
        reason, hint = "is not a usable checkpoint folder", "it needs config.json, weights and the processor's files"
    else:
        reason, hint = "is not a folder and could not be fetched from the hub", f"try: hf download {source}"
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ModelError(f"model {str(source)!r} {reason}: {first_line}", hint)
