"""How long the steps of a chunk take, without making the host wait between them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch


class Laps:
    """Marks the ends of steps; their lengths are read when the last one is over.

    One GPU tells its time in its own queue. Several have no common queue, so each mark waits for all; a CPU has none.

    Args:
        devices: that work.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._queues = list(dict.fromkeys(device for device in devices if device.type == "cuda"))
        self._marks: list[Any] = []  # events of the one queue, or seconds on the wall
        self.mark()

    def mark(self) -> None:
        """A step ends here and the next one begins."""
        if len(self._queues) == 1:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._queues[0]))
            self._marks.append(event)
        else:
            for device in self._queues:
                torch.cuda.synchronize(device)
            self._marks.append(time.perf_counter())

    def ms(self) -> list[float]:
        """Milliseconds of each step so far."""
        if len(self._queues) != 1:
            return [(later - earlier) * 1000 for earlier, later in pairwise(self._marks)]
        self._marks[-1].synchronize()
        return [earlier.elapsed_time(later) for earlier, later in pairwise(self._marks)]
