"""A frame of a video."""

from __future__ import annotations

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
