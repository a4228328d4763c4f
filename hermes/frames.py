"""A frame of a video, and the grouping of frames into chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One picture as a viewer would see it: turned, unmirrored and with square pixels.

    Attributes:
        time_s: seconds since the first shown frame of its source, from the container's timestamps.
        rgb: the picture, (height, width, 3), uint8.
    """

    time_s: float
    rgb: NDArray[np.uint8]  # (height, width, 3)


def chunked(frames: Iterable[Frame], size: int) -> Iterator[tuple[Frame, ...]]:
    """Group frames into tuples of `size`, the last one possibly shorter."""
    chunk: list[Frame] = []
    for frame in frames:
        chunk.append(frame)
        if len(chunk) == size:
            yield tuple(chunk)
            chunk.clear()
    if chunk:
        yield tuple(chunk)
