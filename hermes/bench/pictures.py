"""Frames to measure with: noise that a seed names, or a film that starts again when it ends."""

from __future__ import annotations

from collections.abc import Iterator

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
