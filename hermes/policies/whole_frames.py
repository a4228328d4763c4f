"""Policies that keep frames as wholes: the newest ones, or some spaced evenly over everything seen so far."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hermes.compaction import KeepPlan
from hermes.policies.base import MemoryView, Policy, behind_prefix

FEWEST_FRAMES = 4  # that share the budget of `Uniform` where fewer would fill it: with less there is no spacing to speak of


class _WholeFrames(Policy):
    def plan(self, view: MemoryView) -> KeepPlan:
        keep = tuple(behind_prefix(self._kept(place), view.prefix) for place in view.places)
        return KeepPlan(keep, (0,) * len(keep))

    def _kept(self, place: Tensor) -> Tensor:
        """Visual tokens of a layer to keep, from their places."""
        slots = _slots_by_frame(place)
        shares = self.shares({frame: len(own) for frame, own in slots.items()})
        return torch.cat([_spread(slots[frame], share) for frame, share in shares.items()])

    @abstractmethod
    def shares(self, sizes: dict[int, int]) -> dict[int, int]:
        """How many tokens of each frame stay.

        Args:
            sizes: how many there are, by frame number, rising.
        """


@dataclass(frozen=True)
class Recent(_WholeFrames):
    """The newest frames as the only memory (SimpleStream, arXiv 2604.02317): as many whole ones as the budget takes.

    Of a frame larger than the budget, as many tokens stay as it takes, evenly spaced.
    """

    def shares(self, sizes: dict[int, int]) -> dict[int, int]:
        left, shares = self.config.budget, {}
        for frame in reversed(sizes):
            if sizes[frame] > left:
                break
            shares[frame] = sizes[frame]
            left -= sizes[frame]
        return shares or {max(sizes): left}


@dataclass(frozen=True)
class Uniform(_WholeFrames):
    """Frames spaced evenly over everything seen so far: uniform sampling, the usual input of offline video models (among
    them LLaVA-OneVision, arXiv 2408.03326), for a stream whose length nobody knows.

    A regular grid that coarsens. The newest frame always stays, and with it the frames of the coarsest grids: those whose
    distance to the first frame has most factors of two, newer ones first among equals. What is kept of n equal frames is
    therefore the same however they came in chunks. All gaps but the one in front of the newest frame are s or 2 s for one
    s, a power of two times the stream's own step, longer ones first, so none is more than twice another; the last gap is
    at most 2 s.

    The budget is always filled: the frame that fits no longer keeps some evenly spaced tokens. Where fewer than
    `FEWEST_FRAMES` would fill it, so many share it.
    """

    def shares(self, sizes: dict[int, int]) -> dict[int, int]:
        left, shares = self.config.budget, dict.fromkeys(sizes, 0)
        for limit in (max(left // FEWEST_FRAMES, 1), left):
            for frame in coarse_first(list(sizes)):
                more = min(max(min(sizes[frame], limit) - shares[frame], 0), left)
                shares[frame] += more
                left -= more
        return shares


def coarse_first(frames: Sequence[int]) -> list[int]:
    """Frame numbers, given in rising order, as `Uniform` ranks them: the newest, the first, then coarser grids first."""
    first, newest = frames[0], frames[-1]

    def rank(frame: int) -> tuple[bool, bool, int, int]:
        step = frame - first
        return frame != newest, step != 0, -(step & -step), -frame  # step & -step: the largest power of two that divides it

    return sorted(frames, key=rank)


def _slots_by_frame(place: Tensor) -> dict[int, Tensor]:
    """Visual tokens of each frame, ascending, on the CPU; frames rising."""
    frames, inverse, counts = torch.unique(place[0].cpu(), return_inverse=True, return_counts=True)
    slots = inverse.argsort(stable=True).split(counts.tolist())
    return dict(zip(frames.tolist(), slots, strict=True))


def _spread(slots: Tensor, count: int) -> Tensor:
    """As many of the slots, evenly spaced."""
    middles = (2 * torch.arange(count) + 1) * len(slots) // max(2 * count, 1)
    return slots[middles]
