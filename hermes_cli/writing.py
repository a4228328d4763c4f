"""A file that a user has asked for; it replaces another one only if they say so."""

from __future__ import annotations

from pathlib import Path

from hermes.errors import UsageError
from hermes.sources.opening import printable


def write_file(file: Path, contents: bytes, force: bool) -> None:
    """Write a file.

    Raises:
        UsageError: it is there already and `force` is not given, or it cannot be written there.
        OSError: the disk is full.
    """
    name = printable(str(file))
    try:
        with file.open("wb" if force else "xb") as stream:
            stream.write(contents)
    except FileExistsError as error:
        raise UsageError(f"{name} is there already", "use --force to overwrite it, or another name") from error
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"cannot write {name}: {error.strerror}", "check its folder") from error
