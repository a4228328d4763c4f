"""First come, first served: the order in which threads use an engine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATROL_S = 0.2
"""How often somebody who waits looks whether to go on waiting."""


class Turnstile:
    """A lock that is taken in the order of arrival, so that nobody who waits is overtaken.

    The player passes it for every frame and an asker for every answer: each waits for no more than those who came before it.
    It cannot be passed again from inside.
    """

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self._line: deque[object] = deque()  # the first of them is inside

    @property
    def length(self) -> int:
        """How many are inside or wait."""
        return len(self._line)

    @contextmanager
    def turn(self, check: Callable[[], None] | None = None) -> Iterator[None]:
        """Wait until all who came before are through, and keep the others out for the length of the block.

        Args:
            check: called at arrival, again and again while waiting, and at the end of it; what it raises gives up the place.
        """
        ticket = object()
        try:
            self._wait(ticket, check)
            yield
        finally:
            self._leave(ticket)

    def _wait(self, ticket: object, check: Callable[[], None] | None) -> None:
        with self._moved:
            self._line.append(ticket)
            while True:
                if check:
                    check()
                if self._line[0] is ticket:
                    return
                self._moved.wait(PATROL_S)

    def _leave(self, ticket: object) -> None:
        with self._moved:
            if ticket in self._line:  # not when Ctrl-C came before it stood there
                self._line.remove(ticket)
            self._moved.notify_all()
