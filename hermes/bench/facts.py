"""What a measurement was made on: the machine, the versions, the commit."""

from __future__ import annotations

import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import torch

from hermes import __version__
from hermes.machine import host_memory

_PACKAGES = ("torch", "transformers")


def machine(device: torch.device) -> dict[str, str | int | None]:
    """The hardware: processor and GPU by name, cores, threads of torch, memory in MiB."""
    facts: dict[str, str | int | None] = {
        "cpu": _cpu(),
        "cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_mib": host_memory().total_bytes // 2**20,
        "system": platform.platform(),
        "device": str(device),
        "gpu": None,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {"gpu": properties.name, "gpu_memory_mib": properties.total_memory // 2**20}
        facts |= {"cuda": torch.version.cuda, "driver": _driver()}
    elif device.type == "mps":
        facts["gpu"] = "Apple GPU"
    return facts


def versions() -> dict[str, str | None]:
    """Of Python, of what computes and of this package, with its commit where it runs from a checkout."""
    return {"hermes": __version__, "commit": _commit(), "python": platform.python_version()} | {
        package: _version(package) for package in _PACKAGES
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _driver() -> str | None:
    """Version of NVIDIA's driver, where Linux tells it."""
    try:
        told = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"\b\d{3,}\.[\d.]+\b", told)
    return found[0] if found else None


def _commit() -> str | None:
    """The commit of the checkout this file is in, with a + where files have been changed since."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    head, changes = _git(folder, "rev-parse", "--short=12", "HEAD"), _git(folder, "status", "--porcelain", "-uno")
    return head + ("+" if changes else "") if head else None


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
