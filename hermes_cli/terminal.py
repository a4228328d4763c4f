"""The process's own streams and signals, and text that is safe to show.

Standard output carries answers only; everything else goes to standard error.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any, TextIO, cast

_CONTROLS = {code: None for code in range(0xA0) if unicodedata.category(chr(code)) == "Cc" and chr(code) not in "\n\t"}


_LOGGER = logging.getLogger("hermes_cli")  # its level is the one place where -v and -vv are kept


class ReaderGoneError(Exception):
    """Whoever read standard output has closed it (`hermes ... | head`): nothing went wrong, there is only no more to do."""


class _DispensableStream:
    """A text stream that turns into the null device at the first `OSError`: what is written to it may get lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write what can be written; returns the number of characters taken."""
        try:
            self._stream.write(text)
        except OSError:
            _discard(self._stream)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the lines."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Flush as far as that works."""
        _settle(self._stream)


def prepare() -> None:
    """Make the standard streams safe to use whatever they are, and let SIGTERM and SIGHUP unwind like an exception.

    Trouble with standard error costs no answers, and a signal that the caller ignores (`nohup`) stays ignored.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller; the null device also keeps its file number from being reused
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - lives as long as we do
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.stderr = cast("TextIO", _DispensableStream(sys.stderr))
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def clean(text: str) -> str:
    """The text without control characters other than newline and tab, so that a model cannot steer the terminal."""
    return text.translate(_CONTROLS)


def write_out(text: str) -> None:
    """Write to standard output and flush.

    Raises:
        ReaderGoneError: the other end of the pipe is closed.
        OSError: the disk is full.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ReaderGoneError from error


def json_line(record: Mapping[str, Any]) -> str:
    """One line of JSON Lines, in ASCII so that every encoding carries it, numbers to a millionth."""
    return json.dumps(_rounded(record), allow_nan=False) + "\n"


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 6)
        case dict():
            return {key: _rounded(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_rounded(entry) for entry in value]
    return value


def settle() -> None:
    """Flush both streams; one that can no longer be written is pointed at the null device, or Python complains at exit."""
    for stream in (sys.stdout, sys.stderr):
        _settle(stream)


def _settle(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())  # so that what the stream still holds has somewhere to go
    os.close(null)


def piped_lines() -> TextIO | None:
    """Standard input where it is a pipe or a file; None on a terminal or when it is closed."""
    return None if sys.stdin is None or sys.stdin.isatty() else sys.stdin


def choose_verbosity(count: int) -> int:
    """Callback of `-v`."""
    _LOGGER.setLevel({0: logging.WARNING, 1: logging.INFO}.get(count, logging.DEBUG))
    return count


def verbose() -> bool:
    """Whether timings and the libraries' own messages are wanted (`-v`)."""
    return _LOGGER.isEnabledFor(logging.INFO)


def debugging() -> bool:
    """Whether an unexpected error shows where it came from (`-vv`, HERMES_DEBUG=1)."""
    return _LOGGER.isEnabledFor(logging.DEBUG) or os.environ.get("HERMES_DEBUG") == "1"
