"""Numbers as llama-bench writes them: lists of numbers and of ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hermes.errors import UsageError

LARGEST = 9_999_999
"""Frames that are played at most: 115 days at one a second."""

MOST = 1000
"""Numbers in a list; each is measured."""

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+)(?:([+*])([0-9]+))?)?")
_EXAMPLE = "write it as 16,64,256 or 16-256*2 or 16-64+16"


def numbers(written: str) -> tuple[int, ...]:
    """`16,64,256`; `16-64+16` is 16, 32, 48, 64; `16-256*2` is 16, 32, 64, 128, 256; `1-3` is 1, 2, 3. Rising, each once.

    Raises:
        UsageError: it is nothing of that kind, comes to no end, or goes past `LARGEST` or `MOST`.
    """
    found: set[int] = set()
    for part in written.split(","):
        for number in _expanded(part.strip(), written):
            found.add(number)
            if len(found) > MOST:
                raise UsageError(f"{written!r} is more than {MOST} numbers, and each is measured", "take larger steps")
    return tuple(sorted(found))


def _expanded(part: str, written: str) -> Iterator[int]:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise UsageError(f"{written!r} is not a list of numbers", _EXAMPLE)
    first, last = _number(found[1]), _number(found[2] or found[1])
    by, step = found[3] or "+", _number(found[4] or "1")
    stands_still = step == 0 if by == "+" else step < 2 or first == 0
    if first > last or (first < last and stands_still):
        raise UsageError(f"the range {part!r} comes to no end", "write it as 16-256*2 or 16-64+16")
    while first <= last:
        yield first
        first = first + step if by == "+" else first * step
        if stands_still:
            return


def _number(digits: str) -> int:
    if len(digits.lstrip("0")) > len(str(LARGEST)):  # before `int`, which refuses thousands of digits
        what = f"{digits} is too large: at most {LARGEST} frames are played, 115 days at one a second"
        raise UsageError(what, "give fewer, for example 16,64,256")
    return int(digits)
