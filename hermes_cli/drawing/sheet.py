"""A memory map with all that is written around it, whatever it is drawn with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np

from hermes.config import Role
from hermes.events import Moment
from hermes.sources.opening import printable
from hermes_cli.clock import clock, moment_text

if TYPE_CHECKING:
    from hermes.memory_map import MemoryMap

MEASURE = "share of each moment's tokens still held"

_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200)
_DAY_S = 86400
_QUESTION_LENGTH = 60


@dataclass(frozen=True)
class Answered:
    """An answer and where it looked.

    Attributes:
        at_s: the moment it was given for.
    """

    question: str
    at_s: float
    evidence: tuple[Moment, ...]


@dataclass(frozen=True, eq=False)
class Sheet:
    """What is drawn.

    Attributes:
        heading: whose memory it is, on one line that is safe to show.
        settings: policy, budget and moment, likewise.
        answered: the answer whose evidence is laid over the map.
    """

    memory: MemoryMap
    heading: str
    settings: str
    answered: Answered | None = None

    @property
    def notes(self) -> list[str]:
        """What stands below the map, one sentence each."""
        roles = [_role_note(self.memory, role, layers) for role, layers in spans([x.role for x in self.memory.layers])]
        return [_size_note(self.memory), *roles, *([_evidence_note(self.answered)] if self.answered else [])]

    def marked(self, bins: int) -> list[bool]:
        """Which of that many equal parts of the time the evidence falls on."""
        start_s, end_s = self.memory.start_s, self.memory.end_s
        width_s = (end_s - start_s) / bins
        edges_s = start_s + width_s * np.arange(bins)
        marked = np.zeros(bins, dtype=bool)
        for moment in self.answered.evidence if self.answered else ():
            marked |= (edges_s + width_s > moment.start_s) & (edges_s < max(moment.end_s, moment.start_s + width_s))
        return [bool(mark) for mark in marked]


def spans(roles: Sequence[Role]) -> Iterator[tuple[Role, range]]:
    """Each role with its layers, which are neighbours."""
    for role, layers in groupby(range(len(roles)), key=lambda layer: roles[layer]):
        first, *rest = layers
        yield role, range(first, first + 1 + len(rest))


def grouped_layers(roles: Sequence[Role], most: int) -> list[range]:
    """Neighbouring layers of one role, joined evenly until there are at most `most` groups, but one of each role."""
    runs = [layers for _, layers in spans(roles)]
    size = next(size for size in range(1, len(roles) + 1) if _groups(runs, size) <= max(most, len(runs)))
    return [
        range(int(part[0]), int(part[-1]) + 1) for run in runs for part in np.array_split(run, math.ceil(len(run) / size))
    ]


def _groups(runs: Sequence[range], size: int) -> int:
    return sum(math.ceil(len(run) / size) for run in runs)


def ticks(start_s: float, end_s: float, most: int) -> list[float]:
    """Round times from start to end, at most that many, in seconds."""
    least = (end_s - start_s) / max(1, most)
    step = next((step for step in _STEPS_S if step >= least), math.ceil(least / _DAY_S) * _DAY_S)
    return [float(tick) for tick in range(math.ceil(start_s / step) * step, math.ceil(end_s), step)]


def named(layers: range) -> str:
    """`3` or `3-5`."""
    return str(layers[0]) if len(layers) == 1 else f"{layers[0]}-{layers[-1]}"


def holding(memory: MemoryMap, layers: range) -> str:
    """What a layer of a group holds on average: `96`, or `95 + 1 for 161` with a summary token that stands for 161."""
    group = [memory.layers[layer] for layer in layers]
    tokens, summaries, folded = (
        round(sum(numbers) / len(group))
        for numbers in zip(*((layer.tokens, layer.summary_tokens, layer.folded) for layer in group), strict=True)
    )
    return f"{tokens} + {summaries} for {folded}" if summaries else str(tokens)


def _size_note(memory: MemoryMap) -> str:
    sizes = sorted({(int(rows) * int(columns), int(rows), int(columns)) for rows, columns in _grids(memory)})
    (least, *_), (most, rows, columns) = sizes[0], sizes[-1]
    whole = f"{rows} x {columns}" if len(sizes) == 1 else f"{least} to {most}"
    if memory.counted:
        return f"a whole picture has {whole} tokens"
    return f"a whole picture is taken to have {whole} tokens, like the largest of which something is left"


def _grids(memory: MemoryMap) -> Iterator[tuple[int, int]]:
    return zip(memory.pictures.rows.tolist(), memory.pictures.columns.tolist(), strict=True)


def _role_note(memory: MemoryMap, role: Role, layers: range) -> str:
    oldest_s = memory.oldest_s(role)
    back = "hold no moment" if oldest_s is None else f"remember back to {clock(oldest_s)}"
    group = [memory.layers[layer] for layer in layers]
    summaries, folded = sum(layer.summary_tokens for layer in group), sum(layer.folded for layer in group)
    more = f"; summary tokens: {summaries}, for {folded} tokens" if summaries else ""
    return f"{role.value} layers {back}{more}"


def _evidence_note(answered: Answered) -> str:
    moments = ", ".join(map(moment_text, answered.evidence))
    question = printable(shorten(answered.question, _QUESTION_LENGTH, placeholder="..."))
    return f'evidence: "{question}" at {clock(answered.at_s)} drew on {moments}'
