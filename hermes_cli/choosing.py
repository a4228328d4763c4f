"""Which model: the one that the user names, or the best one that is here and fits this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from hermes.catalog import CATALOG, SMALLEST, TINY, KnownModel, Precision, find
from hermes.errors import ModelError
from hermes.machine import Accelerator, accelerators, host_memory
from hermes.tiny import checkpoint_folder
from hermes_cli.hub import cached

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Choice:
    """A model that was chosen.

    Attributes:
        source: its Hugging Face id, or its folder.
        alias: its short name, if it has one.
        reason: why this one, in words.
        note: what the user should know about it, one line; empty when they named it.
    """

    source: str
    alias: str | None
    reason: str
    note: str = ""


@dataclass(frozen=True)
class Room:
    """Where a model would have to fit.

    Attributes:
        accelerators: those that may be used, all together; without one the host's memory counts.
        host_bytes: memory of the host.
    """

    accelerators: Sequence[Accelerator]
    host_bytes: int

    @classmethod
    def here(cls, device: str = "auto") -> Room:
        """The room on a device of this machine, or all of it. Loads torch, except for the CPU."""
        found = () if device == "cpu" else accelerators()
        wanted = {_full_name(name.strip()) for name in device.split(",")}
        named = [accelerator for accelerator in found if accelerator.device in wanted]
        return cls(named or found, host_memory().total_bytes)

    def precisions(self, model: KnownModel) -> tuple[Precision, ...]:
        """How a model fits, the most exact first. `--quant` needs CUDA; a CPU runs only the two smallest, in float32."""
        usable: tuple[Precision, ...] = ("fp32",) if model in (SMALLEST, TINY) else ()
        room = self.host_bytes
        if self.accelerators:
            on_cuda = all(accelerator.device.startswith("cuda") for accelerator in self.accelerators)
            usable = ("bf16", "8bit", "4bit") if on_cuda else ("bf16",)
            room = sum(accelerator.total_bytes for accelerator in self.accelerators)
        devices = max(1, len(self.accelerators))
        return tuple(precision for precision in usable if model.memory_bytes(precision, devices) <= room)

    def recommended(self) -> KnownModel:
        """The best model for real videos that fits without `--quant`; the smallest where none does."""
        full: Precision = "bf16" if self.accelerators else "fp32"
        fitting = (model for model in CATALOG if model is not TINY and full in self.precisions(model))
        return next(fitting, SMALLEST)


def embedded() -> Choice:
    """The model of this package, whatever lies in the current folder."""
    return Choice(str(checkpoint_folder()), TINY.alias, "what it knows is asked about")


def choose(named: str | None = None, device: str = "auto", quant: str = "none") -> Choice:
    """The model that `named` means; without it, the best known one that is cached and fits, else the embedded one.

    Args:
        named: alias, Hugging Face id or folder.
        device: where it would run, as `--device`.
        quant: how its weights would be, as `--quant`.

    Raises:
        ModelError: the name means nothing.
    """
    return _named(named) if named is not None else _best(Room.here(device), quant)


def is_folder(name: str) -> bool:
    """Whether there is a folder of this name; False also for what cannot be looked at."""
    return os.path.isdir(name)  # noqa: PTH112 - Path.is_dir raises for some names


def _full_name(device: str) -> str:
    """What `--device` takes for a GPU, as torch names it."""
    return "cuda:0" if device == "cuda" else f"cuda:{device}" if device.isdigit() else device


def _best(room: Room, quant: str) -> Choice:
    wanted = quant if quant != "none" else "bf16" if room.accelerators else "fp32"
    for model in CATALOG:
        if model.hub_id and wanted in room.precisions(model) and cached(model.hub_id):
            reason = f"the best cached model that fits this machine in {wanted}"
            return Choice(model.hub_id, model.alias, reason, f"using {model.alias}, {reason}; -m takes another")
    return Choice(
        str(checkpoint_folder()),
        TINY.alias,
        "no model for real videos is cached that fits this machine",
        "using the small model of this package, which knows coloured shapes only; for real videos: "
        f"-m {room.recommended().alias} (hermes models lists them)",
    )


def _named(named: str) -> Choice:
    """A folder with a checkpoint wins over an alias, and any folder over a Hugging Face id."""
    reason = "named by -m or HERMES_MODEL"
    known = find(named)
    if is_folder(named) and (known is None or (Path(named) / "config.json").is_file()):
        return Choice(named, None, reason)
    if known:
        return Choice(known.hub_id or str(checkpoint_folder()), known.alias, reason)
    if _HUB_ID.fullmatch(named):
        return Choice(named, next((model.alias for model in CATALOG if model.hub_id == named), None), reason)
    if "/" in named:
        raise ModelError(
            f"there is no folder {named!r}", "give a folder, a Hugging Face id, or an alias that hermes models lists"
        )
    close = get_close_matches(named.lower(), [model.alias for model in CATALOG], cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise ModelError(f"unknown model {named!r}", f"{hint}hermes models lists the known ones")
