"""The keyboard of a terminal: whatever is typed, and whenever, reaches the next prompt."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TextIO

from prompt_toolkit.input.vt100 import Vt100Input

_INPUT, _LOCAL, _KEYS = 0, 3, 6  # places in the modes of a terminal
_TO_PROMPTS = (termios.VQUIT, termios.VSUSP)  # keys that mean there what they do, and elsewhere stop or end the program


class Keyboard(Vt100Input):
    """A keyboard of which no key is lost while no prompt is there, or while lines are written above one.

    Args:
        terminal: standard input.
    """

    def __init__(self, terminal: TextIO) -> None:
        super().__init__(terminal)
        self._found = termios.tcgetattr(terminal)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Between prompts, for example during an answer, what is typed waits unseen for the next one; only Ctrl-C does what
        it always does. In the end the terminal is as it was found."""
        modes: list[Any] = [*self._found]
        modes[_INPUT] &= ~(termios.ICRNL | termios.IXON)
        modes[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
        off = bytes([os.fpathconf(self.fileno(), "PC_VDISABLE")])
        modes[_KEYS] = [off if place in _TO_PROMPTS else key for place, key in enumerate(modes[_KEYS])]
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or what ends us in the background would stop us there
        self._set(modes)
        try:
            yield
        finally:
            self._set(self._found)
            signal.signal(signal.SIGTTOU, before)

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Nothing changes: in its line mode the terminal would keep an end of file (Ctrl-D), and show what is typed."""
        return nullcontext()

    def suspend(self) -> None:
        """Stop the program until the shell lets it go on; there are shells that keep the terminal as they find it."""
        modes = termios.tcgetattr(self.fileno())
        self._set(self._found)
        os.kill(0, signal.SIGTSTP)
        self._set(modes)

    def _set(self, modes: list[Any]) -> None:
        termios.tcsetattr(self.fileno(), termios.TCSANOW, modes)
