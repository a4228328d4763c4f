"""What a session is about: the source as it was then, the model, and every setting."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hermes.errors import SourceError
from hermes.sessions.files import parse_json
from hermes.sources import find_videos, is_several
from hermes.sources.addresses import hide_password
from hermes.sources.opening import printable

FORMAT_VERSION = 1
"""Of everything in a session's folder. A reader refuses a newer one and never touches it."""

INFO_FILE = "session.json"

_FORMAT = "hermes session"
_HEAD_BYTES = 64 * 1024
_UPDATE = "update hermes: pip install --upgrade hermes-video"


@dataclass(frozen=True)
class OneOfSeveral:
    """A video of a folder or a pattern.

    Attributes:
        path: absolute.
        size: in bytes.
    """

    path: str
    size: int


@dataclass(frozen=True)
class SourceIdentity:
    """Which source it was, told by what is cheap to look at.

    Attributes:
        name: as the user wrote it, without the password of an address.
        path: absolute, of a file, a folder of videos or a pattern of their names; of others it and the rest are None.
        size: in bytes, of all files together.
        mtime_ns: of a single file.
        head_sha256: hash of its first 64 KiB, in hexadecimal digits; of several, of their sizes and first 64 KiB in turn.
        files: those of a folder or a pattern, in the order in which they are played; None where it is a single one.
    """

    name: str
    path: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    head_sha256: str | None = None
    files: tuple[OneOfSeveral, ...] | None = None

    @classmethod
    def of(cls, source: str) -> SourceIdentity:
        """The source that is there now. Of anything but files that can be read only the name is known."""
        try:
            if is_several(source):
                return cls._of_several(source, find_videos(_absolute(source)))
            path = Path(source).absolute()
            if not path.is_file():
                raise FileNotFoundError(source)
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
            status = path.stat()
        except (OSError, ValueError):  # ValueError: no path has a NUL
            return cls(hide_password(source))
        return cls(source, str(path), status.st_size, status.st_mtime_ns, hashlib.sha256(head).hexdigest())

    def change(self) -> str | None:
        """Why the file that is there now is not this one, to be put behind a colon; None when it is.

        A copy or a `touch` changes nothing: size and hash decide, not the time. What has come to a folder is no change of
        those that were in it: see `addition`.
        """
        if self.path is None:
            return None
        if self.files is not None:
            return self._change_of_several(self.files)
        now = SourceIdentity.of(self.path)
        if now.path is None:
            return "it is gone or cannot be read"
        if now.size != self.size:
            return f"it has changed, from {self.size} bytes to {now.size}"
        return None if now.head_sha256 == self.head_sha256 else "it has changed, and starts with other bytes"

    def addition(self) -> str | None:
        """Which videos a folder or a pattern has now that were not there then; None where there are none."""
        if self.path is None or self.files is None:
            return None
        new = [str(path) for path in find_videos(self.path) if str(path) not in {file.path for file in self.files}]
        others = f" and {len(new) - 1} more" if len(new) > 1 else ""
        return f"{printable(new[0])}{others} came to {printable(self.name)} later, and is left out" if new else None

    def now_at(self, other: SourceIdentity) -> SourceIdentity:
        """The source where `other`, which is the same one, is now."""
        if other.path is None:
            return self
        moved = other.path != self.path
        return replace(self, name=other.name, path=other.path, files=other.files if moved else self.files)

    def same_as(self, other: SourceIdentity) -> bool:
        """Whether both are one source: files of one path or, where one was moved, of one content; else those of one name."""
        if self.path is None or other.path is None:
            return self.path is other.path and self.name == other.name
        return self.path == other.path or (self.size, self.head_sha256) == (other.size, other.head_sha256)

    @classmethod
    def _of_several(cls, source: str, paths: Sequence[Path]) -> SourceIdentity:
        if not paths:
            return cls(source)
        files = tuple(OneOfSeveral(str(path), path.stat().st_size) for path in paths)
        return cls(source, _absolute(source), sum(file.size for file in files), None, _head_of_several(files), files)

    def _change_of_several(self, files: Sequence[OneOfSeveral]) -> str | None:
        for file in files:
            path = Path(file.path)
            size = path.stat().st_size if path.is_file() else None
            if size is None:
                return f"{printable(file.path)} is gone or cannot be read"
            if size != file.size:
                return f"{printable(file.path)} has changed, from {file.size} bytes to {size}"
        try:
            same = _head_of_several(files) == self.head_sha256
        except OSError as error:
            return f"{printable(str(error.filename))} cannot be read"
        return None if same else "one of its videos has changed, and starts with other bytes"


def _absolute(source: str) -> str:
    """Of a folder or a pattern; what is in front of the latter is no part of the pattern."""
    if os.path.isabs(source) or os.path.isdir(source):  # noqa: PTH112, PTH117 - a pattern is no path
        return str(Path(source).absolute())
    return str(Path(glob.escape(str(Path.cwd()))) / source)


def _head_of_several(files: Sequence[OneOfSeveral]) -> str:
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.size} ".encode())
        with Path(file.path).open("rb") as opened:
            found.update(opened.read(_HEAD_BYTES))
    return found.hexdigest()


@dataclass(frozen=True)
class SessionInfo:
    """What is known of a session from its start on.

    Attributes:
        id: sorts by time and is a safe name for a folder.
        created: UTC, ISO 8601 with a final Z.
        name: given by the user.
        model: as the engine calls it, and its `revision` where it has one.
        settings: every knob, as JSON holds them.
    """

    id: str
    created: str
    name: str | None
    source: SourceIdentity
    model: str
    revision: str | None
    settings: dict[str, Any]
    version: int = FORMAT_VERSION

    @property
    def created_at(self) -> datetime:
        """The same moment, with its time zone."""
        return datetime.fromisoformat(self.created.removesuffix("Z")).replace(tzinfo=timezone.utc)

    def to_json(self) -> bytes:
        """The contents of `INFO_FILE`."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=2, allow_nan=False).encode() + b"\n"

    @classmethod
    def read(cls, folder: Path) -> SessionInfo:
        """What a session's folder says about itself.

        Raises:
            SourceError: it is damaged, of a newer version, or no session.
        """
        session = f"session {folder.name}"
        look = f"nothing was changed; what is left of it is in {folder}"
        try:
            stored = parse_json((folder / INFO_FILE).read_bytes())
        except OSError as error:
            raise SourceError(f"{session}: {INFO_FILE} cannot be read: {error.strerror}", look) from error
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{session} is damaged: {INFO_FILE} is not JSON", look) from error
        if not isinstance(stored, dict) or stored.pop("format", None) != _FORMAT:
            raise SourceError(f"{session}: {INFO_FILE} was not written by hermes", look)
        check_version(stored.get("version"), session, look)
        try:
            return cls._checked(stored, folder.name)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise SourceError(f"{session} is damaged: {INFO_FILE} lacks what it should hold", look) from error

    @classmethod
    def _checked(cls, stored: dict[str, Any], folder_name: str) -> SessionInfo:
        source = SourceIdentity(**stored.pop("source"))
        if source.files is not None:
            source = replace(source, files=tuple(OneOfSeveral(**file) for file in source.files))  # type: ignore[arg-type]
        info = cls(source=source, **stored)
        info.created_at.astimezone()  # raises where it is no time, or none that can be shown
        texts = (info.created, info.model, source.name)
        optional = (info.name, info.revision, source.path, source.head_sha256)
        whole = all(isinstance(text, str) for text in texts) and all(isinstance(text, str | None) for text in optional)
        whole = whole and all(isinstance(number, int | None) for number in (source.size, source.mtime_ns))
        whole = whole and all(isinstance(file.path, str) and isinstance(file.size, int) for file in source.files or ())
        if not whole or not isinstance(info.settings, dict) or info.id != folder_name:
            raise ValueError(folder_name)
        return info


def check_version(found: object, what: str, look: str) -> None:
    """Refuse what a newer hermes has written; raises `SourceError`, with the hint `look` where it is no version at all."""
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise SourceError(f"{what} is damaged: it does not say of which format it is", look)
    if found > FORMAT_VERSION:
        raise SourceError(f"{what} is of format {found}; this hermes reads up to {FORMAT_VERSION}", _UPDATE)
