"""A file that a user has asked for; it replaces another one only if they say so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def write_text(file: Path, text: str, force: bool, instead: str = _FORCE) -> None:
    """Make a text file with that in it; what cannot be written whole is no new file. Arguments and errors as `open_text`."""
    try:
        with open_text(file, force, instead) as opened:
            opened.write(text)
    except OSError:
        if not force:
            expanded(file).unlink(missing_ok=True)
        raise


@contextmanager
def promised_text(file: Path, force: bool) -> Iterator[Callable[[], TextIO]]:
    """Be sure that a text file can be made, and make it only when that is asked for; else all stays as it was.

    Yields: makes the file, as `open_text`.

    Raises:
        UsageError: as `open_bytes`.
    """
    path = expanded(file)
    is_there = force and path.exists()
    with cast("BinaryIO", _opened(path, "ab" if is_there else "xb", _FORCE)):
        begun = False

    def begin() -> TextIO:
        nonlocal begun
        begun = True
        return open_text(path, force=True)

    try:
        yield begin
    finally:
        if not (is_there or begun):
            path.unlink(missing_ok=True)


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


def expanded(file: Path) -> Path:
    """A path without its `~`; raises `UsageError` for one of a user who does not exist."""
    try:
        return file.expanduser()
    except RuntimeError as error:
        raise UsageError(f"there is no home folder for {printable(str(file))}", "write out its path") from error


def _new(force: bool, kind: str) -> str:
    return ("w" if force else "x") + kind


def _opened(file: Path, mode: str, instead: str, **text: str) -> object:
    name, path = printable(str(file)), expanded(file)
    try:
        return path.open(mode, **text)  # type: ignore[call-overload]
    except FileExistsError as error:
        raise UsageError(f"{name} is there already", instead) from error
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise UsageError(f"cannot write {name}: {error.strerror}", "check its name and its folder") from error
    except ValueError as error:
        raise UsageError(f"cannot write {name}: {error}", "check its name") from error  # there is a zero byte in it
