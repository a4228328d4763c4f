"""The most memory that was in use since a moment."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

_RESET_PEAK = "5"  # what /proc/PID/clear_refs takes to begin a new peak of the resident set (man 5 proc)


class PeakMemory:
    """Peak memory since `restart`: what torch has allocated on GPUs, or the resident set of this process.

    Attributes:
        key: what it is called, so that the two are never compared: `peak_cuda_mib` or `peak_rss_mib`.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._gpus = sorted({device for device in devices if device.type == "cuda"}, key=str)
        self.key = "peak_cuda_mib" if self._gpus else "peak_rss_mib"

    def restart(self) -> None:
        """Begin anew. Where the system cannot (other than Linux), the peak is that of the whole process."""
        for gpu in self._gpus:
            torch.cuda.reset_peak_memory_stats(gpu)
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")

    def mib(self) -> float:
        """The peak, over all GPUs together."""
        if self._gpus:
            return sum(torch.cuda.max_memory_allocated(gpu) for gpu in self._gpus) / 2**20
        with contextlib.suppress(OSError, StopIteration):
            lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**10
        unit = 1 if sys.platform == "darwin" else 2**10  # of ru_maxrss: bytes there, KiB elsewhere
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
