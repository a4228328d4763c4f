"""The moments that an answer drew on: where its attention went, by time.

What it is: while each token of an answer is chosen, the deep layers look back at the memory; the share of that attention
which falls on a frame, mean over layers and heads, is the frame's weight. Heavy neighbours become a moment.

What it is not: a proof. Attention says where a layer read, not what the answer would have been without it ("Attention is
not Explanation", arXiv 1902.10186), and information moves between tokens on the way up, so that a frame may carry what an
earlier one showed. Summary tokens stand for many moments at once and take no part, though their attention counts in the
whole that shares are taken of.

Chosen on videos of the embedded world with other seeds than those that `hermes eval shapes --evidence` measures: the deep
layers name the right scene more often than all layers do, and subtracting what the question's own tokens attend to made it
worse; the text in front of the video, where attention without a target goes, does not count as seen anyway. Two heads of
that model were trained to look at the scene that holds the answer, so what it measures says little about large models.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from hermes.attention import AnswerProbe
from hermes.cache import TEXT_ORIGIN, SlabCache, SlabLayer
from hermes.events import Moment

MOMENTS = 3  # named at most
EDGE = 0.2  # a frame that weighs less than this share of the heaviest one belongs to no moment


class Watch:
    """Watches one answer come.

    Args:
        cache: holds the memory and the waiting frames, and not yet the question.
        layers: which layers are watched.
        times_s: time of every sampled frame so far.
        joined: how many frames one picture of the vision tower shows.

    Attributes:
        probe: to be handed to every forward that chooses a token.
    """

    def __init__(self, cache: SlabCache, layers: Sequence[int], times_s: Sequence[float], joined: int) -> None:
        self._times_s, self._joined = tuple(times_s), joined
        self._numbers = {layer: _numbers(cache.layers[layer]) for layer in layers}
        slots = {layer: len(numbers) for layer, numbers in self._numbers.items()}
        self.probe = AnswerProbe(slots, [layer.device for layer in cache.layers])

    @torch.inference_mode()
    def moments(self) -> tuple[Moment, ...]:
        """The moments that the answer has drawn on so far."""
        received = [attention.cpu() for attention in self.probe.attention.values()]
        weights = frame_shares(received, list(self._numbers.values()), len(self._times_s), self._joined)
        return moments(weights.tolist(), self._times_s)


def _numbers(layer: SlabLayer) -> Tensor:
    """A copy of the frame numbers of its slots: the memory may have moved on when a cancelled answer is looked at."""
    return layer.place[0, : layer.length].to("cpu", copy=True)


def frame_shares(received: Sequence[Tensor], numbers: Sequence[Tensor], frames: int, joined: int = 1) -> Tensor:
    """How much of the attention to what was seen each frame received.

    Args:
        received: per layer (slots,) float32, attention of each slot.
        numbers: per layer (slots,) int, the frame number of each slot, or TEXT_ORIGIN or SUMMARY_ORIGIN.
        frames: sampled frames so far.
        joined: how many frames each slot shows, from its frame number on.

    Returns: (frames,), float32; they sum to 1 less the share of summary tokens, or are all 0 where nothing was seen.
    """
    by_frame = torch.zeros(frames)
    whole = 0.0
    for attention, number in zip(received, numbers, strict=True):
        whole += float(attention[number != TEXT_ORIGIN].sum())
        shown = number >= 0
        for later in range(joined):
            frame = (number[shown].long() + later).clamp(max=frames - 1)
            by_frame.index_add_(0, frame, attention[shown] / joined)
    return by_frame / whole if whole else by_frame


def moments(shares: Sequence[float], times_s: Sequence[float], count: int = MOMENTS) -> tuple[Moment, ...]:
    """The moments with the largest shares: runs of frames that each weigh at least `EDGE` of the heaviest frame.

    Args:
        shares: of each frame, in [0, 1].
        times_s: of each frame, ascending.

    Returns: disjoint, the largest share first.
    """
    found: list[Moment] = []
    least = EDGE * max(shares, default=0.0)
    for heavy, run in groupby(range(len(shares)), key=lambda frame: shares[frame] >= least > 0):
        if heavy:
            frames = list(run)
            first, last = frames[0], frames[-1]
            end_s = times_s[min(last + 1, len(times_s) - 1)]
            found.append(Moment(times_s[first], end_s, min(1.0, sum(shares[first : last + 1]))))
    return tuple(sorted(found, key=lambda moment: -moment.share)[:count])
