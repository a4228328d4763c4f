"""A session on the disk: read by anybody at any time, written by one process."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hermes.errors import SourceError, UsageError
from hermes.sessions.checkpoints import Checkpoint, list_checkpoints, read_checkpoint, write_checkpoint
from hermes.sessions.files import Lock, sweep
from hermes.sessions.identity import SessionInfo
from hermes.sessions.log import Log, append_record, read_log
from hermes.sessions.thinning import default_cap, thinned

if TYPE_CHECKING:
    from hermes.engine import EngineState

LOG_FILE, LOCK_FILE = "log.jsonl", "lock"

_DELETE = "hermes sessions rm deletes it, after asking"
_LOCK_WAIT_S = 0.3  # somebody who only looks whether it is held is gone by then


class Session:
    """A session as its folder holds it now; every property looks again, since its writer may be at work.

    Raises:
        SourceError: the folder is damaged, of a newer version, or no session.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = SessionInfo.read(folder)

    def log(self) -> Log:
        """What was asked and answered."""
        return read_log(self.folder / LOG_FILE, growing=self.is_live)

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The states that can be returned to, oldest first."""
        return list_checkpoints(self.folder)

    def newest_checkpoint(self, at_s: float) -> Checkpoint | None:
        """The newest state that has seen nothing after `at_s`; None where there is none."""
        return next((checkpoint for checkpoint in reversed(self.checkpoints) if checkpoint.time_s <= at_s), None)

    def load(self, checkpoint: Checkpoint) -> EngineState:
        """The state of the engine at a checkpoint, on the CPU. Raises `SourceError` when it is damaged or gone."""
        return read_checkpoint(checkpoint)

    @property
    def is_live(self) -> bool:
        """Whether a process is writing it."""
        return Lock(self.folder / LOCK_FILE).held

    @property
    def nbytes(self) -> int:
        """Bytes of everything in the folder."""
        return bytes_in(self.folder)

    @property
    def last_s(self) -> float | None:
        """The newest moment that is known to have been watched; None where nothing was.

        An answer about a moment that somebody went back to, or on to, is no sign of it; what was left again does not count.
        """
        told = (record for record in self.log() if not record.get("left") and _was_there(record))
        times_s = [record["at"] for record in told if record["at"] is not None]
        return max([*times_s, *(checkpoint.time_s for checkpoint in self.checkpoints)], default=None)


def _was_there(record: dict[str, Any]) -> bool:
    """Whether the film had come to the moment of a record."""
    return record.get("type") in ("stop", "seek") or (record.get("type") == "answer" and bool(record.get("remembered")))


def bytes_in(folder: Path) -> int:
    """Bytes of everything in a folder, which its writer may be changing."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += 0 if path.is_dir() else path.lstat().st_size
    return total


class SessionWriter(Session):
    """The one process that adds to a session.

    Args:
        max_bytes: of all checkpoints together; `default_cap` of the newest one when None. While one is written there is room
            needed for one more.

    Raises:
        UsageError: another process writes it.
        SourceError: as `Session`, or it cannot be written.
    """

    def __init__(self, folder: Path, max_bytes: int | None = None) -> None:
        super().__init__(folder)
        self._max_bytes = max_bytes
        self._lock = lock_session(folder)
        sweep(folder)

    def append(self, record: dict[str, Any]) -> None:
        """Add a record to the log; it is on the disk when this returns. Raises `OSError` when it cannot be written."""
        append_record(self.folder / LOG_FILE, record)

    def save(self, state: EngineState) -> Checkpoint:
        """Write a state that ends with a whole chunk, then delete old ones that are too many.

        Raises:
            OSError: it cannot be written, for example because the disk is full; what was there is untouched.
        """
        saved = write_checkpoint(self.folder, state)
        there = self.checkpoints
        cap = default_cap(saved.nbytes) if self._max_bytes is None else self._max_bytes
        times_s, sizes = zip(*((checkpoint.time_s, checkpoint.nbytes) for checkpoint in there), strict=True)
        kept = {there[index].path for index in thinned(times_s, sizes, cap)}
        for checkpoint in there:
            if checkpoint.path not in kept:
                checkpoint.path.unlink(missing_ok=True)
        return saved

    def close(self) -> None:
        """Let others write it; nothing happens the second time."""
        self._lock.release()

    def __enter__(self) -> SessionWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def lock_session(folder: Path) -> Lock:
    """The right to write a session.

    Raises:
        UsageError: another process has it.
        SourceError: there is none to be had, since what has the lock's name is something else.
        OSError: the disk is full.
    """
    lock = Lock(folder / LOCK_FILE)
    try:
        is_ours = lock.acquire(_LOCK_WAIT_S)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise SourceError(f"session {folder.name} cannot be written: {LOCK_FILE}: {error.strerror}", _DELETE) from error
    if not is_ours:
        raise UsageError(f"session {folder.name} is being written by another process", "end that one first")
    return lock
