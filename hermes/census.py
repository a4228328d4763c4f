"""What the layers of a memory hold, for screens and logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hermes.cache import SUMMARY_ORIGIN, Run, SlabCache


@dataclass(frozen=True)
class Census:
    """What the layers hold behind the prefix, per layer.

    Attributes:
        summaries: summary tokens.
        positions: smallest and largest position over all axes.
        oldest, median: numbers of the frames that the first and the middle one of its tokens come from, in the order of
            frames and without summary tokens; negative where there are no others.
    """

    summaries: tuple[int, ...]
    positions: tuple[tuple[float, float], ...]
    oldest: tuple[int, ...]
    median: tuple[int, ...]


def census(cache: SlabCache, prefix: int) -> Census:
    """Look into every layer; the host waits for the devices once, at the end."""
    home = cache.layers[-1].device
    facts = torch.cat([_facts(run, prefix).to(home) for run in cache.runs()])  # (layers, 5)
    oldest, median, summaries, low, high = facts.T.tolist()
    positions = tuple(zip(low, high, strict=True))
    return Census(_whole(summaries), positions, _whole(oldest), _whole(median))


def _whole(numbers: Sequence[float]) -> tuple[int, ...]:
    return tuple(int(number) for number in numbers)


def _facts(run: Run, prefix: int) -> Tensor:
    """Oldest and median frame, summary tokens, smallest and largest position of each layer, (layers, 5), float64."""
    seen = slice(min(prefix, run.length - 1), run.length)  # a layer that kept nothing ends with its prefix
    frames = run.slab.place[run.rows, 0, seen].sort(dim=1).values
    unseen = (frames < 0).sum(dim=1, keepdim=True)
    last = frames.shape[1] - 1
    picked = frames.gather(1, torch.cat((unseen.clamp(max=last), unseen + (last - unseen) // 2), dim=1))
    summaries = (frames == SUMMARY_ORIGIN).sum(dim=1, keepdim=True)
    low, high = run.slab.positions[run.rows, :, seen].flatten(1).aminmax(dim=1, keepdim=True)
    return torch.cat([column.double() for column in (picked, summaries, low, high)], dim=1)
