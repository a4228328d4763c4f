"""A file that a user has asked for; it replaces another one only if they say so."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, TextIO, cast

from hermes.errors import UsageError
from hermes.sources.opening import printable


def open_text(file: Path, force: bool) -> TextIO:
    """Make a text file, UTF-8 with plain line ends; raises as `open_bytes`."""
    return cast("TextIO", _opened(file, force, "t", encoding="utf-8", errors="backslashreplace", newline="\n"))


def open_bytes(file: Path, force: bool) -> BinaryIO:
    """Make a file.

    Raises:
        UsageError: it is there already and `force` is not given, or it cannot be made there.
        OSError: the disk is full.
    """
    return cast("BinaryIO", _opened(file, force, "b"))


def _opened(file: Path, force: bool, kind: str, **text: str) -> object:
    name = printable(str(file))
    try:
        return file.expanduser().open(("w" if force else "x") + kind, **text)  # type: ignore[call-overload]
    except FileExistsError as error:
        raise UsageError(f"{name} is there already", "use --force to overwrite it, or another name") from error
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"cannot write {name}: {error.strerror}", "check its folder") from error
