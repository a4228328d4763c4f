"""Which checkpoints of a session stay: many of late, few of long ago."""

from __future__ import annotations

from collections.abc import Sequence

_GIB = 2**30


def thinned(times_s: Sequence[float], sizes: Sequence[int], max_bytes: int) -> list[int]:
    """Indices of the checkpoints to keep within a number of bytes, in order.

    While there are too many, the one goes whose neighbours are nearest to each other, measured by their age: two moments a
    minute apart are far apart if that is now, and one moment if it was yesterday. What stays is spaced geometrically by age,
    so that k checkpoints of n equal steps leave no gap, other than a single step, of more than n ** (2 / (k - 2)) - 1 times
    the age of its newer end.

    The first and the newest always stay, even where those two alone are too large.

    Args:
        times_s: of each checkpoint's newest frame, in rising order.
        sizes: of each, in bytes.
    """
    kept = list(range(len(times_s)))
    total = sum(sizes)
    while total > max_bytes and len(kept) > 2:
        place = min(range(1, len(kept) - 1), key=lambda place: _loss(times_s, kept, place))
        total -= sizes[kept.pop(place)]
    return kept


def _loss(times_s: Sequence[float], kept: Sequence[int], place: int) -> float:
    """The gap that a checkpoint would leave, as a share of the age of its older end: 0 to 1."""
    before, after, now = times_s[kept[place - 1]], times_s[kept[place + 1]], times_s[kept[-1]]
    return (after - before) / (now - before) if now > before else 0.0


def default_cap(checkpoint_bytes: int) -> int:
    """How many bytes the checkpoints of a session may take where nobody says: 24 of them, but 256 MiB to 8 GiB.

    With 24, going back in a film of an hour reads a few minutes again at most; 7B shapes (0.23 GB) take 5.5 GB for that.
    Small ones cost little, so a small model keeps many more. Beyond 8 GiB a few sessions would fill a disk. Two always fit.
    """
    return max(min(max(24 * checkpoint_bytes, _GIB // 4), 8 * _GIB), 2 * checkpoint_bytes)
