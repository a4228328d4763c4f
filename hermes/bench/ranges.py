"""Numbers as llama-bench writes them: lists of numbers and of ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hermes.errors import UsageError

_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?:([+*])(\d{1,7}))?)?")


def numbers(written: str) -> tuple[int, ...]:
    """`16,64,256`; `16-64+16` is 16, 32, 48, 64; `16-256*2` is 16, 32, 64, 128, 256; `1-3` is 1, 2, 3. Rising, each once.

    Raises:
        UsageError: it is nothing of that kind, or comes to no end.
    """
    return tuple(sorted({number for part in written.split(",") for number in _expanded(part.strip(), written)}))


def _expanded(part: str, written: str) -> Iterator[int]:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise UsageError(f"{written!r} is not a list of numbers", "write it as 16,64,256 or 16-256*2 or 16-64+16")
    first, last = int(found[1]), int(found[2] or found[1])
    by, step = found[3] or "+", int(found[4] or 1)
    stands_still = step == 0 if by == "+" else step < 2 or first == 0
    if first > last or (first < last and stands_still):
        raise UsageError(f"the range {part!r} comes to no end", "write it as 16-256*2 or 16-64+16")
    while first <= last:
        yield first
        first = first + step if by == "+" else first * step
        if stands_still:
            return
