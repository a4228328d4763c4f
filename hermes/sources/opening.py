"""Opening a file with libav, and saying in one line why that is not possible; what a container has to offer."""

from __future__ import annotations

import codecs
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import av
from av.container import InputContainer
from av.error import FFmpegError
from av.stream import Disposition
from av.video.stream import VideoStream

from hermes.errors import SourceError
from hermes.sources.base import counted

ACCEPTED = (
    "give a video file (MP4, MOV, MKV, WebM, AVI, MPEG-TS, ...), a folder of them, a camera (0) or an address (rtsp://...)"
)
FETCH_AGAIN = "download or record it again"


class Place(Protocol):
    """Where a container is."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def is_remote(self) -> bool:
        """Whether there is a connection that can be lost."""

    def open(self) -> InputContainer:
        """The container; raises `SourceError` when there is none that libav can read."""


@dataclass(frozen=True)
class LocalFile:
    """A regular file; `shown_as` is what messages call it, if not by its path."""

    path: Path
    shown_as: str = ""

    @property
    def name(self) -> str:
        return self.shown_as or printable(str(self.path))

    @property
    def is_remote(self) -> bool:
        return False

    def open(self) -> InputContainer:
        head = _head(self.path, self.name)
        try:
            # "file:" keeps a colon in a name from being taken for a protocol.
            return av.open(f"file:{self.path}", "r", metadata_errors="replace")
        except FFmpegError as error:
            raise _unreadable(self.path, self.name, head) from error


def _head(path: Path, name: str) -> bytes:
    """The first bytes of a regular file that is not empty."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise SourceError(f"{name} is a folder", ACCEPTED)
        if not stat.S_ISREG(mode):  # reading a named pipe would wait for ever
            raise SourceError(f"{name} is not a regular file", ACCEPTED)
        with path.open("rb") as file:
            head = file.read(4096)
    except FileNotFoundError:
        raise SourceError(f"{name}: no such file", "check the path") from None
    except PermissionError:
        raise SourceError(f"{name}: no permission to read it", "check its owner and mode") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError(f"{name} cannot be read: {reason}", "check the path") from None
    if not head:
        raise SourceError(f"{name}: file is empty", FETCH_AGAIN)
    return head


def _unreadable(path: Path, name: str, head: bytes) -> SourceError:
    """Why libav does not know this file, as far as its first bytes tell."""
    if head.lstrip(codecs.BOM_UTF8 + b" \t\r\n").lower().startswith((b"<!doctype html", b"<html")):
        return SourceError(f"{name}: this is an HTML page, not a video", "fetch the video itself, not the page about it")
    if head[4:8] in (b"ftyp", b"mdat", b"moov", b"free", b"skip", b"wide"):
        if not _has_index(path):
            return SourceError(f"{name}: MP4 index (moov) missing, the file is incomplete", FETCH_AGAIN)
        return SourceError(f"{name}: MP4 index (moov) damaged", FETCH_AGAIN)
    if _is_text(head):
        return SourceError(f"{name}: this is a text file, not a video", ACCEPTED)
    return SourceError(f"{name}: not a video that can be read; its data are damaged or of another kind", ACCEPTED)


def _has_index(path: Path) -> bool:
    """Whether an MP4 file holds its whole `moov` box (ISO/IEC 14496-12, 4.2: size, type, perhaps a 64-bit size)."""
    end, position = path.stat().st_size, 0
    with path.open("rb") as file:
        while position + 8 <= end:
            file.seek(position)
            length, kind = struct.unpack(">I4s", file.read(8))
            if length == 1:
                length = int.from_bytes(file.read(8), "big")
            elif length == 0:
                length = end - position
            if kind == b"moov":
                return bool(position + length <= end)
            position += max(length, 8)
    return False


def _is_text(head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)


def find_film(container: InputContainer, name: str) -> VideoStream:
    """The best video stream that is no cover picture. Matroska drops that mark, so the mark alone is not enough."""
    films = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not films:
        raise SourceError(f"{name} has no video stream ({_streams(container)})", ACCEPTED)
    best = container.streams.best("video")
    film = next((film for film in films if film is best), films[0])
    if film.codec_context is None:
        raise SourceError(f"{name}: no decoder for its video codec", "convert it, for example to H.264")
    return film


def _streams(container: InputContainer) -> str:
    """`1 audio stream: aac; 2 subtitle streams: ass, srt`."""
    codecs_by_kind: dict[str, list[str]] = {}
    for stream in container.streams:
        kind = "cover picture" if stream.type == "video" else f"{stream.type} stream"
        context = getattr(stream, "codec_context", None)
        codecs_by_kind.setdefault(kind, []).append("unknown" if context is None else context.name)
    listed = [f"{counted(len(names), kind)}: {', '.join(names)}" for kind, names in codecs_by_kind.items()]
    return "; ".join(listed) or "no streams"


def printable(text: str) -> str:
    """A file name as one line that any terminal can show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
