"""Frames to measure with: noise that a seed names, or a film that starts again when it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

import numpy as np

from hermes.errors import UsageError
from hermes.frames import Frame
from hermes.sources import Source

WIDTH, HEIGHT = 640, 480
"""Of synthetic frames, in pixels: a pair of them is 391 tokens of Qwen2.5-VL, nearly the 392 that are allowed."""


def noise(seed: int) -> Iterator[Frame]:
    """Frames of noise without end, one a second; the same seed gives the same ones."""
    number = 0
    while True:
        rgb = np.random.default_rng((seed, number)).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        yield Frame(float(number), rgb)
        number += 1


class Foreseen(Iterator[Frame]):
    """Frames without end, of which more and more of those to come are known.

    Args:
        ahead: how many of them, once as many have been taken.
    """

    def __init__(self, frames: Iterator[Frame], ahead: int) -> None:
        self._frames, self._ahead = frames, ahead
        self._known: deque[Frame] = deque()

    def __next__(self) -> Frame:
        for _ in range(min(2, self._ahead + 1 - len(self._known))):
            self._known.append(next(self._frames))
        return self._known.popleft()

    def coming(self, count: int) -> list[Frame]:
        """So many of those to come, if they are known."""
        return list(islice(self._known, count))


def check_repeatable(source: Source) -> None:
    """Raises `UsageError` where a source is live, and so gives other frames every time."""
    if source.info.is_live:
        raise UsageError(f"{source.info.name} is live: no two passes would see the same", "give --source a video file")


def looped(source: Source, fps: float = 1.0) -> Iterator[Frame]:
    """The sampled frames of a film, without end, their times going on."""
    number = 0
    while True:
        for frame in source.frames(fps):
            yield Frame(number / fps, frame.rgb)
            number += 1
