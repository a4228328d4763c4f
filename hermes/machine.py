"""The machine we run on: the memory of its accelerators and its host, and its processors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_CGROUP_FILES = (
    (Path(), "memory.max", "memory.current", "inactive_file"),
    (Path("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Of cgroup version 2 and 1: folder, limit, usage, and the entry of `memory.stat` that counts what can be taken back."""


@dataclass(frozen=True)
class Accelerator:
    """A device with memory of its own, or Apple's share of the host's.

    Attributes:
        device: what torch calls it: `cuda:0`, `mps`.
        label: what its maker calls it.
        total_bytes: of memory.
        free_bytes: of it, that no process holds.
    """

    device: str
    label: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class HostMemory:
    """Memory that programs on the CPU share; inside a container, what its limit leaves.

    Attributes:
        total_bytes: of memory.
        available_bytes: of it, that can be had without swapping.
    """

    total_bytes: int
    available_bytes: int


def cpus() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS and Windows do not tell


def accelerators() -> tuple[Accelerator, ...]:
    """Every accelerator that answers; empty where there is none. Loads torch, and starts CUDA where there is one."""
    import torch  # noqa: PLC0415 - slow to load, and nothing else here needs it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver that is too old; `hermes doctor` says it in our words
        if torch.cuda.is_available():
            found = (_cuda_device(index) for index in range(torch.cuda.device_count()))
            return tuple(device for device in found if device)
    if torch.backends.mps.is_available():
        total = torch.mps.recommended_max_memory()
        return (Accelerator("mps", "Apple GPU", total, max(total - torch.mps.driver_allocated_memory(), 0)),)
    return ()


def _cuda_device(index: int) -> Accelerator | None:
    import torch  # noqa: PLC0415 - as above

    try:
        free, total = torch.cuda.mem_get_info(index)
        return Accelerator(f"cuda:{index}", torch.cuda.get_device_name(index), total, free)
    except RuntimeError:  # another process has it for itself, or it is broken: no use to us
        return None


def host_memory() -> HostMemory:
    """The host's memory, within the limit of the container that we may be in."""
    memory = psutil.virtual_memory()
    total, available = memory.total, memory.available
    for limit, left in _container_limits():
        total, available = min(total, limit), min(available, left)
    return HostMemory(total, available)


def _container_limits() -> Iterator[tuple[int, int]]:
    """Bytes allowed and bytes left of each limit that a container finds at the root of its control groups."""
    for folder, limit_name, usage_name, reclaimable_name in _CGROUP_FILES:
        group = _CGROUP_ROOT / folder
        try:
            limit = int((group / limit_name).read_text())
            usage = int((group / usage_name).read_text())
            statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # no such version, or no limit: "max"
            continue
        held = usage - int(statistics.get(reclaimable_name, 0))
        yield limit, max(limit - held, 0)
