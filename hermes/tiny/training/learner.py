"""What both stages work on: the model with its read-outs, where they live, and where progress is written."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import LlavaOnevisionForConditionalGeneration

from hermes.tiny.training.processes import Processes
from hermes.tiny.training.readouts import Readouts
from hermes.tiny.training.recipe import Recipe

logger = logging.getLogger("hermes.tiny.training")


@dataclass(frozen=True, slots=True, eq=False)
class Learner:
    """A model in training, in one of the processes.

    Attributes:
        model: in float32.
        readouts: of the same device.
        recipe: every setting.
        device: of the model.
        processes: who else trains it.
        folder: where `log.jsonl` and `state.pt` are written, by process 0.
    """

    model: LlavaOnevisionForConditionalGeneration
    readouts: Readouts
    recipe: Recipe
    device: torch.device
    processes: Processes
    folder: Path

    def report(self, **facts: Any) -> None:
        """Log facts as one line of JSON."""
        if self.processes.rank:
            return
        line = json.dumps(facts)
        logger.info(line)
        with (self.folder / "log.jsonl").open("a") as log:
            log.write(line + "\n")

    def save(self, **progress: Any) -> None:
        """Save weights, read-outs and `progress` to `state.pt`, in one step."""
        if self.processes.rank:
            return
        state = {"model": self.model.state_dict(), "readouts": self.readouts.state_dict(), **progress}
        unfinished = self.folder / "state.tmp"
        torch.save(state, unfinished)
        unfinished.replace(self.folder / "state.pt")

    def restore(self) -> dict[str, Any]:
        """Load weights and read-outs from `state.pt`; returns the whole state."""
        state: dict[str, Any] = torch.load(self.folder / "state.pt", map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.readouts.load_state_dict(state["readouts"])
        return state


@dataclass(slots=True)
class Clock:
    """Time spent on a stage, as progress: from `start` at its beginning to 1 after `minutes`.

    `spent_s` is what earlier runs of the stage have used.
    """

    minutes: float
    start: float = 0.0
    spent_s: float = 0.0
    now: Callable[[], float] = time.monotonic
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.now()

    @property
    def elapsed_s(self) -> float:
        """Seconds spent on the stage, earlier runs included."""
        return self.spent_s + self.now() - self._began

    @property
    def progress(self) -> float:
        """In [start, 1]."""
        if self.minutes <= 0:
            return 1.0
        return min(1.0, self.start + (1 - self.start) * self.elapsed_s / (60 * self.minutes))
