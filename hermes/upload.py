"""From the host to a device without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor


def upload(content: Tensor, device: torch.device) -> Tensor:
    """The content on a device. What comes from the host goes to a GPU through page-locked memory, behind whatever is in its
    queue; a plain copy would make the host wait until the queue is empty. The content may be thrown away at once."""
    if content.device.type == "cpu" and device.type == "cuda":
        return (
            content.contiguous().pin_memory().to(device, non_blocking=True)
        )  # the allocator keeps it until it has been copied
    return content.to(device)
