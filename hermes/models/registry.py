"""The known model families, and putting a loaded model behind the adapter of its own."""

from __future__ import annotations

import importlib
from typing import Any

from hermes.errors import ModelError
from hermes.models.base import VideoModel

FAMILIES = {
    "llava_onevision": "hermes.models.llava_onevision:LlavaOnevision",
    "qwen2_5_vl": "hermes.models.qwen_vl:Qwen25VL",
    "qwen3_vl": "hermes.models.qwen_vl:Qwen3VL",
}
"""Hugging Face `model_type` to the adapter, imported by name when it is needed."""


def adapter_for(model_type: str) -> type[VideoModel]:
    """The adapter of a family; raises `ModelError` naming the known ones."""
    if model_type not in FAMILIES:
        raise ModelError(f"models of family {model_type!r} are not supported", f"known families: {', '.join(FAMILIES)}")
    module, _, name = FAMILIES[model_type].partition(":")
    adapter: type[VideoModel] = getattr(importlib.import_module(module), name)
    return adapter


def wrap_model(model: Any, processor: Any, name: str) -> VideoModel:
    """Put a loaded transformers model behind the adapter of its family; raises `ModelError` for an unknown one."""
    adapter = adapter_for(model.config.model_type)
    return adapter(model.requires_grad_(False), processor, name, getattr(model.config, "_commit_hash", None))
