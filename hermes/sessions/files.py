"""Private files that survive a kill or a power cut at any instant, and a lock that ends with the process that holds it."""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_TEMPORARY = ".tmp"
_RETRY_S = 0.01


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter, and the folders above it, whatever the umask. One that is there stays."""
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    folder.chmod(_FOLDER_MODE)


def open_private(path: Path, flags: int) -> FileIO:
    """Open a file, without a buffer, that only its owner can read, whatever the umask. `flags` are those of `os.open`."""
    descriptor = os.open(path, flags, _FILE_MODE)
    os.fchmod(descriptor, _FILE_MODE)
    return FileIO(descriptor, "r+" if flags & os.O_RDWR else "w")


def write_all(file: FileIO, data: bytes) -> None:
    """Write all of it, in one call where the system takes it whole, and have it on the disk before returning."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    os.fsync(file.fileno())


def write_atomically(path: Path, data: bytes) -> None:
    """Put a whole file in place of whatever was there: at any instant there is the old one or the new one.

    Raises:
        OSError: it cannot be written, for example because the disk is full; what was there is untouched.
    """
    temporary = path.with_name(f".{path.name}{_TEMPORARY}")
    try:
        with open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            write_all(file, data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Delete what a killed `write_atomically` has left in a folder that nobody else writes to."""
    for temporary in folder.glob(f".*{_TEMPORARY}"):
        temporary.unlink(missing_ok=True)


def parse_json(text: str | bytes) -> Any:
    """A JSON value, whose numbers are finite.

    Raises:
        ValueError, RecursionError: it is none, or its brackets are too deep.
    """
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large")
    return number


class Lock:
    """The right to write, held by one process at a time; the system takes it back when that process ends, however it ends.

    The file stays where it is: deleting it would let two processes hold locks on two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None

    def acquire(self, wait_s: float) -> bool:
        """Take it, unless somebody still holds it when the time is over; returns whether it is ours.

        Raises:
            OSError: there can be no lock, for example because a folder has its name.
        """
        file = open_private(self._path, os.O_RDWR | os.O_CREAT)
        deadline = time.monotonic() + wait_s
        while not _locked(file, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                file.close()
                return False
            time.sleep(_RETRY_S)
        self._file = file
        return True

    def release(self) -> None:
        """Give it back; nothing happens if it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def held(self) -> bool:
        """Whether anybody holds it. Looking takes a shared lock for an instant, which is why taking it may have to wait."""
        try:
            file = FileIO(self._path)
        except OSError:  # what cannot be opened cannot be held
            return False
        with file:
            return not _locked(file, fcntl.LOCK_SH)


def _locked(file: FileIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
