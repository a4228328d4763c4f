"""How many a second."""

from __future__ import annotations

import time
from collections import deque

_WINDOW_S = 5.0


class Rate:
    """Counts things as they come; one thread notes them, any may look."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=600)

    def note(self) -> None:
        """One has come."""
        self._times.append(time.monotonic())

    @property
    def newest_s(self) -> float | None:
        """When the last one came, by the monotonic clock."""
        return self._times[-1] if self._times else None

    @property
    def per_s(self) -> float | None:
        """How many came a second in the last seconds; None when that cannot be said."""
        now = time.monotonic()
        recent = [moment for moment in self._times.copy() if now - moment < _WINDOW_S]
        return (len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 1 and recent[-1] > recent[0] else None
