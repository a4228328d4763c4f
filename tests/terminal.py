"""A real program in a real pseudo terminal, whose screen can be read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType

import pyte

DEADLINE_S = 120.0
DEVICE = Path("/dev/tty")
CURSOR_POSITION_REQUEST, ANSWER = b"\x1b[6n", b"\x1b[1;1R"


class Terminal:
    """`hermes` with these arguments in a terminal of its own.

    Args:
        output: the file that standard output goes to.

    Attributes:
        screen: what a user sees, with what has scrolled away.
        written: every byte that came.
    """

    def __init__(
        self, *arguments: str | Path, columns: int = 100, rows: int = 30, output: Path = DEVICE, **environment: str
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        self._controller, self._device = pty.openpty()
        self.resize(columns, rows)
        self.modes_before = termios.tcgetattr(self._device)
        inherited = {
            name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}
        }  # we have our own
        with output.open("wb") if output != DEVICE else nullcontext(self._device) as stdout:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hermes_cli", *map(str, arguments)], stdin=self._device, stdout=stdout,
                stderr=self._device, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
                env={**inherited, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8", **environment},
            )  # fmt: skip

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._controller)
        os.close(self._device)

    @property
    def text(self) -> str:
        """Everything on the screen and above it, white space at the ends of lines cut off."""
        above = ["".join(line[column].data for column in range(self.screen.columns)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*above, *self.screen.display])

    @property
    def modes(self) -> list[object]:
        """The settings of the terminal, as `stty -a` tells them."""
        return list(termios.tcgetattr(self._device))

    def send(self, text: str) -> None:
        """Type."""
        os.write(self._controller, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Make the window larger or smaller."""
        fcntl.ioctl(self._controller, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def wait_for(self, pattern: str) -> str:
        """Read until the text matches a regular expression; returns the text."""
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, self.text
            self._read(0.2)
        return self.text

    def wait_for_end(self) -> int:
        """Read until the program ends; returns its exit code."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read(0.1)
        while self._read(0.1):
            pass
        return int(self.process.returncode)

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._controller], [], [], timeout_s)[0]:
            return False
        piece = os.read(self._controller, 65536)
        if CURSOR_POSITION_REQUEST in piece:
            os.write(self._controller, ANSWER)
        self.written += piece
        self._show(piece)
        return True

    def _show(self, piece: bytes) -> None:
        self._stream.feed(piece)
