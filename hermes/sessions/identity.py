"""What a session is about: the source as it was then, the model, and every setting."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hermes.errors import SourceError
from hermes.sessions.files import parse_json
from hermes.sources.addresses import hide_password

FORMAT_VERSION = 1
"""Of everything in a session's folder. A reader refuses a newer one and never touches it."""

INFO_FILE = "session.json"

_FORMAT = "hermes session"
_HEAD_BYTES = 64 * 1024
_UPDATE = "update hermes: pip install --upgrade hermes-video"


@dataclass(frozen=True)
class SourceIdentity:
    """Which source it was, told by what is cheap to look at.

    Attributes:
        name: as the user wrote it, without the password of an address.
        path: absolute, where it is a file; the rest is None where it is none.
        head_sha256: hash of its first 64 KiB, in hexadecimal digits.
    """

    name: str
    path: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    head_sha256: str | None = None

    @classmethod
    def of(cls, source: str) -> SourceIdentity:
        """The source that is there now. Of anything but a file that can be read only the name is known."""
        try:
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

        A copy or a `touch` changes nothing: size and hash decide, not the time.
        """
        if self.path is None:
            return None
        now = SourceIdentity.of(self.path)
        if now.path is None:
            return "it is gone or cannot be read"
        if now.size != self.size:
            return f"it has changed, from {self.size} bytes to {now.size}"
        return None if now.head_sha256 == self.head_sha256 else "it has changed, and starts with other bytes"

    def now_at(self, other: SourceIdentity) -> SourceIdentity:
        """The source where `other`, which is the same one, is now."""
        return self if other.path is None else replace(self, name=other.name, path=other.path)

    def same_as(self, other: SourceIdentity) -> bool:
        """Whether both are one source: files of one path or, where one was moved, of one content; else those of one name."""
        if self.path is None or other.path is None:
            return self.path is other.path and self.name == other.name
        return self.path == other.path or (self.size, self.head_sha256) == (other.size, other.head_sha256)


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
        info = cls(source=source, **stored)
        info.created_at.astimezone()  # raises where it is no time, or none that can be shown
        texts = (info.created, info.model, source.name)
        optional = (info.name, info.revision, source.path, source.head_sha256)
        whole = all(isinstance(text, str) for text in texts) and all(isinstance(text, str | None) for text in optional)
        whole = whole and all(isinstance(number, int | None) for number in (source.size, source.mtime_ns))
        if not whole or not isinstance(info.settings, dict) or info.id != folder_name:
            raise ValueError(folder_name)
        return info


def check_version(found: object, what: str, look: str) -> None:
    """Refuse what a newer hermes has written; raises `SourceError`, with the hint `look` where it is no version at all."""
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise SourceError(f"{what} is damaged: it does not say of which format it is", look)
    if found > FORMAT_VERSION:
        raise SourceError(f"{what} is of format {found}; this hermes reads up to {FORMAT_VERSION}", _UPDATE)
