"""Several processes on one computer, one thread each, that train one model by averaging their gradients."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, distributed, nn


@dataclass(frozen=True, slots=True)
class Processes:
    """One process, number `rank`, among `count`; where it is alone every method is a no-op."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls, rank: int, count: int, meeting_point: Path) -> Processes:
        """Meet the others; `meeting_point` is a file that does not exist yet, the same for all."""
        if count > 1:
            distributed.init_process_group("gloo", f"file://{meeting_point}", rank=rank, world_size=count)
            atexit.register(distributed.destroy_process_group)  # its threads must not outlive the interpreter
        return cls(rank, count)

    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the processes."""
        if self.count == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= self.count
        means = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))

    def from_first(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite tensors with those of process 0."""
        if self.count > 1:
            for tensor in tensors:
                distributed.broadcast(tensor, 0)

    def agreed(self, value: float) -> float:
        """Process 0's number, in every process."""
        number = torch.tensor(value, dtype=torch.float64)
        self.from_first([number])
        return number.item()

    def gathered(self, part: Tensor) -> Tensor:
        """The parts of all processes, which have the same shape, one after the other."""
        if self.count == 1:
            return part
        parts = [torch.empty_like(part) for _ in range(self.count)]
        distributed.all_gather(parts, part)
        return torch.cat(parts)
