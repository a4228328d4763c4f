"""Weights in 8 or 4 bits (bitsandbytes): the language model's layers, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BitsAndBytesConfig

from hermes.errors import ModelError

QUANTS = ("none", "8bit", "4bit")

_KINDS = {
    "Linear8bitLt": "8-bit", "Linear4bit": "4-bit",
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32",
}  # fmt: skip
_KIND_OF = {"8bit": "8-bit", "4bit": "4-bit"}
_BLOCK = (64, 32)  # inputs and outputs that bitsandbytes packs together


@dataclass(frozen=True)
class LinearLayers:
    """How the linear layers of a model are held: how many of each kind (`4-bit`, `8-bit`, `bf16`, `fp16`, `fp32`).

    Attributes:
        language: those inside the language model's layers.
        other: the rest: vision tower, projector or merger, output head.
    """

    language: Mapping[str, int]
    other: Mapping[str, int]

    def __str__(self) -> str:
        language = " and ".join(f"{kind}: {count} language layers" for kind, count in self.language.items())
        return f"{language}; vision and output {' and '.join(self.other)}"


def linear_layers(model: Any) -> LinearLayers:
    """Count the linear layers of a transformers model by kind."""
    inside = _language_names(model)
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for name, module in _linears(model).items():
        counts[name in inside][_kind(module)] += 1
    return LinearLayers(counts[True], counts[False])


def bitsandbytes_config(skeleton: Any, quant: str, device: torch.device, compute: torch.dtype) -> BitsAndBytesConfig | None:
    """What tells transformers to quantise while it loads; None for `none`.

    Every linear layer that stays as it is is named in full. A name that does not match from its start is ignored without a
    word, and any list given here replaces the built-in exception for the output head.

    Args:
        skeleton: the model without weights.
        device: where the quantised layers will compute.
        compute: dtype of the activations.

    Raises:
        ModelError: bitsandbytes is missing, or cannot compute there or with layers of these sizes.
    """
    if quant == "none":
        return None
    _check_backend(quant, device)
    kept = sorted(_linears(skeleton).keys() - _language_names(skeleton))
    if quant == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=kept)
    if device.type == "cpu":
        _check_blocks(skeleton)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute,
        llm_int8_skip_modules=kept,
    )


def check_quantised(model: Any, quant: str) -> None:
    """Raise `ModelError` unless exactly the linear layers that `quant` names are quantised, all in the same way."""
    layers = linear_layers(model)
    quantised = set(_KIND_OF.values())
    wanted = {_KIND_OF[quant]} if quant in _KIND_OF else layers.language.keys() - quantised
    if set(layers.language) != wanted or quantised & layers.other.keys():
        raise ModelError(
            f"the weights are not held as asked ({quant}): {layers}", "this is a bug in hermes or transformers: report it"
        )


def language_weights(model: Any) -> dict[str, Tensor]:
    """The weights that are quantised when any are, by name."""
    linears = _linears(model)
    return {f"{name}.weight": linears[name].weight for name in sorted(_language_names(model))}


def _linears(model: Any) -> dict[str, nn.Linear]:
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


def _language_names(model: Any) -> set[str]:
    """Names of the linear layers inside the language model's layers."""
    inside = set(model.get_decoder().layers.modules())
    return {name for name, module in _linears(model).items() if module in inside}


def _kind(module: nn.Linear) -> str:
    dtype = str(module.weight.dtype).removeprefix("torch.")
    return _KINDS.get(type(module).__name__) or _KINDS.get(dtype, dtype)


def _check_backend(quant: str, device: torch.device) -> None:
    try:
        import bitsandbytes  # noqa: PLC0415 - slow to load, and only needed here
    except ImportError as error:
        reason = f"{_KIND_OF[quant]} weights need bitsandbytes, which cannot be loaded: {error}"
        raise ModelError(reason, "run: pip install bitsandbytes") from error
    if device.type not in bitsandbytes.supported_torch_devices:
        reason = f"{_KIND_OF[quant]} weights need a bitsandbytes that computes on {device.type!r}"
        raise ModelError(reason, "use --quant none, another --device, or: pip install -U bitsandbytes")


def _check_blocks(skeleton: Any) -> None:
    """On a CPU with bf16 instructions bitsandbytes repacks 4-bit weights at the first forward, in whole blocks."""
    linears = _linears(skeleton)
    for name in sorted(_language_names(skeleton)):
        inputs, outputs = linears[name].in_features, linears[name].out_features
        if inputs % _BLOCK[0] or outputs % _BLOCK[1]:
            multiple = " x ".join(map(str, _BLOCK))
            raise ModelError(
                f"4-bit weights on a CPU need layers in multiples of {multiple}; {name} has {inputs} x {outputs}",
                "use --quant 8bit, or a GPU",
            )
