"""Where a model goes: the device that was named, one GPU when it fits, several when it must; never elsewhere in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate import infer_auto_device_map
from accelerate.utils import CustomDtype, get_balanced_memory

from hermes.catalog import KnownModel, Precision
from hermes.errors import ModelError
from hermes.machine import accelerators
from hermes.models.quantisation import language_weights

_GIB = 1024**3


def size_of(skeleton: Any) -> KnownModel:
    """A model in the terms of the catalogue, so that loading counts as `hermes models` does.

    Args:
        skeleton: the model without weights.
    """
    text = skeleton.config.get_text_config()
    return KnownModel(
        alias=skeleton.config.model_type,
        hub_id=None,
        parameters=sum(weight.numel() for weight in skeleton.parameters()),
        quantisable=sum(weight.numel() for weight in language_weights(skeleton).values()),
        layers=text.num_hidden_layers,
        kv_heads=text.num_key_value_heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        hidden_size=text.hidden_size,
        vocabulary=text.vocab_size,
    )


def named_devices(name: str) -> tuple[torch.device, ...]:
    """The devices that `--device` leaves to choose from: those it names, or for `auto` all GPUs, else MPS, else the CPU.

    Raises:
        ModelError: the name is unknown, or no such device is here.
    """
    if name == "auto":
        found = tuple(torch.device(accelerator.device) for accelerator in accelerators())
        if not found and torch.cuda.is_available():
            raise ModelError("no GPU answers", "free one of them, or use --device cpu")
        return found or (torch.device("cpu"),)
    devices = tuple(_named_device(part.strip()) for part in name.split(","))
    if len(devices) > 1 and any(device.type != "cuda" for device in devices):
        raise ModelError(f"{name!r} is no list of GPUs", "only GPUs share a model: --device cuda:0,cuda:1")
    return devices


def _named_device(name: str) -> torch.device:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    try:
        device = torch.device(f"cuda:{name}" if name.isdigit() else name)
    except RuntimeError as error:
        raise ModelError(f"unknown device {name!r}", "choose auto, cpu, cuda, cuda:N, cuda:N,cuda:M or mps") from error
    usable = available.get(device.type, False)
    if not usable or (device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()):
        raise ModelError(f"device {name!r} is not available here", "use --device cpu, or --device auto to pick one")
    return device


def device_map(skeleton: Any, devices: Sequence[torch.device], quant: str, share: bool) -> dict[str, Any]:
    """Module names to devices, as transformers' `device_map`.

    Args:
        skeleton: the model without weights, in the dtype of whatever is not quantised.
        devices: to choose from (`named_devices`).
        quant: how its weights will be held (`hermes.models.quantisation.QUANTS`).
        share: use all of them; otherwise as few as hold the model.

    Raises:
        ModelError: it does not fit.
    """
    if devices[0].type != "cuda" or (share and len(devices) == 1):
        return {"": devices[0]}
    free = {device.index or 0: torch.cuda.mem_get_info(device)[0] for device in devices}
    gpus = choose_gpus(size_of(skeleton), _precision(skeleton, quant), free, share)
    if len(gpus) == 1:
        return {"": torch.device("cuda", gpus[0])}
    return split(skeleton, quant, {gpu: free[gpu] for gpu in gpus})


def choose_gpus(size: KnownModel, precision: Precision, free: Mapping[int, int], share: bool = False) -> tuple[int, ...]:
    """The GPUs that hold a model: the emptiest one when it fits there, else as few as hold it together.

    Args:
        free: GPU to free bytes.
        share: use all of them.

    Raises:
        ModelError: it does not fit on all of them.
    """
    emptiest = sorted(free, key=lambda gpu: (-free[gpu], gpu))
    for count in range(len(free) if share else 1, len(free) + 1):
        chosen = emptiest[:count]
        if size.memory_bytes(precision, count) <= sum(free[gpu] for gpu in chosen):
            return tuple(sorted(chosen))
    raise _too_large(size, precision, free)


def split(skeleton: Any, quant: str, free: Mapping[int, int]) -> dict[str, Any]:
    """Spread a model evenly over GPUs, whole layers and the whole vision tower at a time.

    The room of each GPU is cut by the allowance for a chunk, and by the share of the cache that comes with its weights.

    Args: as `device_map`; `free` maps each GPU to its free bytes.

    Raises:
        ModelError: rounded to whole layers, it does not fit.
    """
    size, precision = size_of(skeleton), _precision(skeleton, quant)
    held = size.memory_bytes(precision, devices=0)
    allowance = size.memory_bytes(precision, devices=1) - held
    room = {gpu: int((free[gpu] - allowance) * size.weight_bytes(precision) / held) for gpu in free}
    small = {"8bit": torch.int8, "4bit": CustomDtype.INT4}.get(quant)
    sizes: dict[str, Any] = {
        "dtype": skeleton.dtype,
        "special_dtypes": dict.fromkeys(language_weights(skeleton), small) if small else {},
        "no_split_module_classes": _whole_modules(skeleton),
    }
    balanced = get_balanced_memory(skeleton, max_memory=room, **sizes)
    for limits in (balanced, room):  # evenly if whole layers allow it
        placed: dict[str, Any] = infer_auto_device_map(skeleton, max_memory=limits, **sizes)
        if set(placed.values()) <= free.keys():  # what has no room goes to "disk"
            return placed
    raise _too_large(size, precision, free, "free, but not in one piece for each layer")


def _precision(skeleton: Any, quant: str) -> Precision:
    quantised: dict[str, Precision] = {"8bit": "8bit", "4bit": "4bit"}
    return quantised.get(quant, "fp32" if skeleton.dtype == torch.float32 else "bf16")


def _whole_modules(skeleton: Any) -> list[str]:
    """Classes that stay on one GPU: a decoder layer, and whatever stands beside the decoder."""
    decoder = skeleton.get_decoder()
    beside = (module for module in skeleton.model.children() if module is not decoder)
    return sorted({type(module).__name__ for module in (*decoder.layers, *beside)})


def _too_large(size: KnownModel, precision: Precision, free: Mapping[int, int], how: str = "free") -> ModelError:
    needed = {other: size.memory_bytes(other, len(free)) for other in (precision, "8bit", "4bit")}
    fitting = [
        f"--quant {other}" for other in ("8bit", "4bit") if other != precision and needed[other] <= sum(free.values())
    ]
    there = " + ".join(f"{room / _GIB:.1f}" for room in free.values())
    return ModelError(
        f"the model needs {needed[precision] / _GIB:.1f} GiB of GPU memory; {there} GiB are {how}",
        f"use {', '.join([*fitting, 'a smaller model'])}, or --device cpu",
    )
