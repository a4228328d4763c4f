"""Moving whole records of tensors to a device."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

Record = TypeVar("Record", bound="OnDevice")


class OnDevice:
    """Base of frozen dataclasses that hold tensors, or other such records, among other things."""

    __slots__ = ()

    def to(self: Record, device: torch.device) -> Record:
        """The same record with its tensors on `device`."""
        assert is_dataclass(self)
        moved: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            moved[entry.name] = value.to(device) if isinstance(value, (Tensor, OnDevice)) else value
        return replace(self, **moved)
