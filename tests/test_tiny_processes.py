"""Processes that train together. Each one imports this file, so it imports little."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.multiprocessing.spawn import spawn

from hermes.tiny.training.processes import Processes


def average_in_process(rank: int, folder: Path) -> None:
    processes = Processes.join(rank, 2, folder / "meeting")
    parameter = torch.nn.Parameter(torch.zeros(3))
    parameter.grad = torch.full((3,), float(rank))
    processes.average_gradients([parameter])
    everyone = processes.gathered(torch.tensor([rank]))
    number = torch.tensor([10.0 + rank])
    processes.from_first([number])
    torch.save((parameter.grad, everyone, number, processes.agreed(rank + 5.0)), folder / f"{rank}.pt")


def test_two_processes_share_gradients_and_decisions(tmp_path: Path) -> None:
    spawn(average_in_process, (tmp_path,), nprocs=2)  # type: ignore[no-untyped-call]
    for rank in range(2):
        gradient, everyone, number, agreed = torch.load(tmp_path / f"{rank}.pt")
        assert gradient.tolist() == [0.5] * 3
        assert everyone.tolist() == [0, 1]
        assert number.tolist() == [10.0]
        assert agreed == 5.0
