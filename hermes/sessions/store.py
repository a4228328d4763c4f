"""All sessions of a user, in one folder."""

from __future__ import annotations

import difflib
import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import platformdirs

from hermes.errors import SourceError, UsageError
from hermes.sessions.files import Lock, make_private_folder, sync_folder, write_atomically
from hermes.sessions.identity import INFO_FILE, SessionInfo, SourceIdentity
from hermes.sessions.session import LOG_FILE, Session, SessionWriter, lock_session
from hermes.sources.opening import printable

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # in order of their codes, without those that are easily mistaken
_TICK_NS = 2_000_000  # 30000 in a minute, which three digits of 32 can count
_NAME_LENGTH = 100  # characters
_STORE_WAIT_S = 10.0
_LIST_THEM = "hermes sessions lists them"
_ID = re.compile(r"[0-9]{8}-[0-9]{4}-[0-9a-z]{3}")


class SessionStore:
    """Where sessions are kept: `sessions/ID` below the user's state folder. Nothing is made before the first is created.

    Args:
        root: the state folder; $HERMES_STATE_DIR or the platform's own when None.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.folder = (root or state_folder()) / "sessions"

    def create(
        self,
        source: SourceIdentity,
        model: str,
        revision: str | None,
        settings: dict[str, Any],
        name: str | None = None,
        max_bytes: int | None = None,
    ) -> SessionWriter:
        """Begin a session. `max_bytes` is that of `SessionWriter`.

        Raises:
            UsageError: the name cannot be one, or the state folder cannot be written.
            OSError: the disk is full.
        """
        name = None if name is None else checked_name(name)
        with self._alone():
            fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
            fresh.chmod(0o700)
            identifier, created = self._free_id()
            info = SessionInfo(identifier, created, name, source, model, revision, settings)
            write_atomically(fresh / INFO_FILE, info.to_json())
            write_atomically(fresh / LOG_FILE, b"")
            folder = fresh.rename(self.folder / identifier)
            sync_folder(self.folder)
            return SessionWriter(folder, max_bytes)

    def reopen(self, session: Session, max_bytes: int | None = None) -> SessionWriter:
        """Go on writing a session, whose source is where `session` says. Raises as `SessionWriter`."""
        writer = SessionWriter(session.folder, max_bytes)
        writer.info = session.info
        return writer

    def sessions(self) -> list[Session]:
        """Every session that can be read, newest first."""
        return [found for found in self._scan() if isinstance(found, Session)]

    def damaged(self) -> list[SourceError]:
        """Why the others cannot be read."""
        return [found for found in self._scan() if isinstance(found, SourceError)]

    def find(self, written: str) -> Session:
        """The session of an id, of a name (the newest of several) or of the start of one id.

        Raises:
            UsageError: there is none, or several ids start so.
            SourceError: it cannot be read.
        """
        folders = [folder.name for folder in self._folders()]
        if written in folders:
            return Session(self.folder / written)
        sessions = self.sessions()
        if named := next((session for session in sessions if session.info.name == written), None):
            return named
        match [identifier for identifier in folders if written and identifier.startswith(written)]:
            case [identifier]:
                return Session(self.folder / identifier)
            case [_, _, *_] as several:
                raise UsageError(f"several sessions start with {written}", f"one of: {', '.join(several[:5])}")
        names = {session.info.name for session in sessions if session.info.name}
        close = difflib.get_close_matches(written, [*folders, *sorted(names)], n=3)
        others = f"{_LIST_THEM}, and says which cannot be read" if len(sessions) < len(folders) else _LIST_THEM
        hint = f"did you mean {' or '.join(map(printable, close))}?" if close else others
        raise UsageError(f"there is no session {printable(written)!r}", hint)

    def latest(self, source: SourceIdentity | None = None) -> Session:
        """The newest session, or the newest that can be read of a source where one is given.

        Raises:
            UsageError: there is none.
            SourceError: the newest one cannot be read; with a source, none of it was found and there are some that cannot.
        """
        damaged = False
        for folder in (folder for folder in self._folders() if _ID.fullmatch(folder.name)):
            found = _opened(folder)
            if isinstance(found, Session) and (source is None or found.info.source.same_as(source)):
                return found
            if isinstance(found, SourceError) and source is None:
                raise SourceError(found.message, f"{found.hint}; --session ID takes another one") from found
            damaged = damaged or isinstance(found, SourceError)
        of = f" of {printable(source.name)}" if source else ""
        if damaged:
            raise SourceError(f"no session that can be read is{of}; some cannot be read", "hermes sessions says why")
        hint = f"{_LIST_THEM}; hermes watch SRC makes one" if self.sessions() else "hermes watch SRC makes one"
        raise UsageError(f"there is no session{of}", hint)

    def folder_of(self, written: str) -> Path:
        """The folder of exactly this id, whether it can be read or not; else that of what `find` finds, which raises."""
        exactly = next((folder for folder in self._folders() if folder.name == written), None)
        return exactly or self.find(written).folder

    def remove(self, *folders: Path) -> None:
        """Delete sessions, damaged ones too, with everything in them.

        Raises:
            UsageError: a process is writing one; none is deleted then.
        """
        with self._alone(), ExitStack() as locks:
            for folder in folders:
                with suppress(SourceError):  # what cannot be written is written by nobody
                    locks.callback(lock_session(folder).release)
            for folder in folders:
                folder.chmod(0o700)
                doomed = folder.rename(self.folder / f".removed-{folder.name}")
                sync_folder(self.folder)
                shutil.rmtree(doomed)

    def _folders(self) -> list[Path]:
        """Newest first; ids sort by time. What starts with a dot is being made or deleted."""
        there = self.folder.iterdir() if self.folder.is_dir() else []
        return sorted((path for path in there if path.is_dir() and not path.name.startswith(".")), reverse=True)

    def _scan(self) -> Iterator[Session | SourceError]:
        return map(_opened, self._folders())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Only one process at a time makes or deletes sessions, so that whatever is left half made may be swept."""
        lock = Lock(self.folder / ".lock")
        try:
            make_private_folder(self.folder)
            if not lock.acquire(_STORE_WAIT_S):
                raise UsageError(f"another process holds {self.folder}", "try again when it is done")
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            hint = "set HERMES_STATE_DIR to a folder that you can write, or use --no-save"
            raise UsageError(f"cannot write {printable(str(self.folder))}: {error.strerror}", hint) from error
        try:
            for pattern in (".new-*", ".removed-*"):
                for left in self.folder.glob(pattern):
                    shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            lock.release()

    def _free_id(self) -> tuple[str, str]:
        """An id that no session has, and the moment that it tells."""
        while True:
            now_ns = time.time_ns()
            now = datetime.fromtimestamp(now_ns / 1e9, timezone.utc)
            tick = now_ns % 60_000_000_000 // _TICK_NS
            digits = "".join(_DIGITS[tick >> shift & 31] for shift in (10, 5, 0))
            identifier = f"{now:%Y%m%d-%H%M}-{digits}"
            if not (self.folder / identifier).exists():
                return identifier, now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            time.sleep(_TICK_NS / 1e9)


def _opened(folder: Path) -> Session | SourceError:
    try:
        return Session(folder)
    except SourceError as error:
        return error


def state_folder() -> Path:
    """Where a user's sessions and history are: $HERMES_STATE_DIR, or the platform's own."""
    chosen = os.environ.get("HERMES_STATE_DIR")
    return Path(chosen).expanduser().absolute() if chosen else platformdirs.user_state_path("hermes", appauthor=False)


def checked_name(name: str) -> str:
    """The name of a session as it is kept, without white space around it; raises `UsageError` for what cannot be one."""
    name = name.strip()
    if not name or len(name) > _NAME_LENGTH or not name.isprintable():
        raise UsageError(
            f"{printable(name[:40])!r} cannot be a name", f"give 1 to {_NAME_LENGTH} letters that can be printed"
        )
    return name
