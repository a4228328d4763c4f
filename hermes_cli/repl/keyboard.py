"""The keyboard of a terminal: whatever is typed, and whenever, reaches the next prompt."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from prompt_toolkit.input.vt100 import Vt100Input


class Keyboard(Vt100Input):
    """A keyboard of which no key is lost while lines are written above the prompt.

    In the cooked mode that belongs there the terminal would take an end of file (Ctrl-D) for itself, and show what is typed.
    """

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Nothing changes."""
        return nullcontext()

    def suspend(self) -> None:
        """Stop the program until the shell lets it go on; there are shells that keep the terminal as they find it."""
        with super().cooked_mode():
            os.kill(0, signal.SIGTSTP)


@contextmanager
def typed_ahead() -> Iterator[None]:
    """What is typed while no prompt is there, for example during an answer, waits unseen for the next one."""
    before = termios.tcgetattr(sys.stdin)
    keys = [before[0] & ~termios.ICRNL, *before[1:3], before[3] & ~(termios.ECHO | termios.ICANON), *before[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSANOW, keys)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
