"""The memory that a machine says it has."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

from hermes import machine
from hermes.machine import Accelerator, accelerators, host_memory

GIB = 2**30


def control_group(root: Path, folder: str, files: dict[str, str]) -> None:
    (root / folder).mkdir(exist_ok=True)
    for name, text in files.items():
        (root / folder / name).write_text(f"{text}\n")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the kernel's control groups."""
    monkeypatch.setattr(machine, "_CGROUP_ROOT", tmp_path)
    return tmp_path


def test_without_a_limit_the_host_memory_is_the_machines(groups: Path) -> None:
    control_group(groups, "", {"memory.max": "max", "memory.current": "5", "memory.stat": "inactive_file 1"})
    memory = host_memory()
    assert memory.total_bytes == psutil.virtual_memory().total
    assert 0 < memory.available_bytes <= memory.total_bytes


@pytest.mark.parametrize(
    ("folder", "limit", "usage", "reclaimable"),
    [
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
    ids=["version 2", "version 1"],
)
def test_a_containers_limit_holds_and_files_that_can_be_dropped_do_not_count(
    groups: Path, folder: str, limit: str, usage: str, reclaimable: str
) -> None:
    statistics = f"anon 7\n{reclaimable} {3 * 2**20}"
    control_group(groups, folder, {limit: str(8 * 2**20), usage: str(5 * 2**20), "memory.stat": statistics})
    memory = host_memory()
    assert (memory.total_bytes, memory.available_bytes) == (8 * 2**20, 6 * 2**20)


def test_a_limit_beyond_the_machine_changes_nothing(groups: Path) -> None:
    unlimited = 2**63 - 4096
    control_group(
        groups,
        "memory",
        {"memory.limit_in_bytes": str(unlimited), "memory.usage_in_bytes": "0", "memory.stat": "total_inactive_file 0"},
    )
    assert host_memory().total_bytes == psutil.virtual_memory().total


def test_no_accelerator_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert accelerators() == ()


def test_a_gpu_that_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def memory(index: int) -> tuple[int, int]:
        if index == 0:
            raise torch.AcceleratorError("CUDA-capable device(s) is/are busy or unavailable")
        return 3 * GIB, 24 * GIB

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", memory)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU number {index}")
    assert accelerators() == (Accelerator("cuda:1", "GPU number 1", 24 * GIB, 3 * GIB),)
