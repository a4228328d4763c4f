"""A file that a user has asked for; it replaces another one only if they say so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from hermes.errors import UsageError
from hermes.sources.opening import printable
from hermes_cli.failures import NO_SPACE

_FORCE = "use --force to overwrite it, or another name"
_TEXT = {"encoding": "utf-8", "errors": "backslashreplace", "newline": "\n"}


def open_text(file: Path, force: bool, instead: str = _FORCE) -> TextIO:
    """Make a text file, UTF-8 with plain line ends; raises as `open_bytes`.

    Args:
        instead: what to do about one that is there already.
    """
    return cast("TextIO", _opened(file, _new(force, "t"), instead, **_TEXT))


def reopen_text(file: Path, nbytes: int) -> TextIO:
    """A text file as of `open_text` to go on with, cut off behind so many bytes; raises as `open_bytes`."""
    opened = cast("TextIO", _opened(file, "r+t", _FORCE, **_TEXT))
    opened.truncate(nbytes)
    opened.seek(0, os.SEEK_END)
    return opened


def open_bytes(file: Path, force: bool) -> BinaryIO:
    """Make a file.

    Raises:
        UsageError: it is there already and `force` is not given, or it cannot be made there.
        OSError: the disk is full.
    """
    return cast("BinaryIO", _opened(file, _new(force, "b"), _FORCE))


def _new(force: bool, kind: str) -> str:
    return ("w" if force else "x") + kind


def _opened(file: Path, mode: str, instead: str, **text: str) -> object:
    name = printable(str(file))
    try:
        return file.expanduser().open(mode, **text)  # type: ignore[call-overload]
    except FileExistsError as error:
        raise UsageError(f"{name} is there already", instead) from error
    except (OSError, ValueError, RuntimeError) as error:  # the latter two for a zero byte, and a ~user who does not exist
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error).rstrip(".").lower()
        raise UsageError(f"cannot write {name}: {reason}", "check its name and its folder") from error
