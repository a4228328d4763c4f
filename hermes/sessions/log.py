"""The log of a session: JSON Lines that are only ever appended to."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISCHR, S_ISFIFO
from typing import Any

from hermes.sessions.files import open_private, parse_json, write_all


@dataclass(frozen=True)
class Log:
    """What could be read of a log; iterating gives the records.

    A `seek` says that the run went on at a moment `until` with the memory that it had at `frames` sampled frames. Records of
    more frames in front of it are of a stretch that it left again by going back: they have the key `left`, which is true.

    Attributes:
        path: of the file; damaged lines are still in it.
        damaged: number of lines that hold no record, or one that lacks what it should hold.
        fault: why nothing could be read; None where the file could be read, or there is none.
    """

    path: Path
    records: tuple[dict[str, Any], ...]
    damaged: int = 0
    fault: str | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.records)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The records of answers, by the moment of the video that they are about."""
        return sorted((record for record in self.records if record.get("type") == "answer"), key=lambda record: record["at"])

    @property
    def notice(self) -> str | None:
        """What a user should know about damage; None where there is none."""
        if self.fault is not None:
            return f"{self.path} cannot be read: {self.fault}"
        if not self.damaged:
            return None
        kept = "1 damaged line is" if self.damaged == 1 else f"{self.damaged} damaged lines are"
        total = len(self.records) + self.damaged
        return f"recovered {len(self.records)} of {total} entries; {kept} kept in {self.path}"


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether it holds what a record of its type is read for."""
    at, frames = record.get("at"), record.get("frames")
    match record.get("type"):
        case "answer":
            texts = (record.get("question"), record.get("answer"))
            counted = _is_count(frames) if record.get("remembered") else True
            return _is_time(at) and counted and all(isinstance(text, str) for text in texts)
        case "stop":
            return at is None or _is_time(at)
        case "seek":
            return (at is None or _is_time(at)) and _is_time(record.get("until")) and _is_count(frames)
        case "clear":
            return _is_count(frames)
    return True


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def append_record(path: Path, record: dict[str, Any]) -> None:
    """Add a line and have it on the disk before returning; after a line that was cut short it starts a fresh one.

    Raises:
        OSError: it cannot be written, for example because the disk is full; earlier lines are whole.
    """
    line = json.dumps(record, allow_nan=False).encode() + b"\n"
    with open_private(path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
        end = file.seek(0, os.SEEK_END)
        cut_short = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
        write_all(file, b"\n" + line if cut_short else line)


def read_log(path: Path, growing: bool = False) -> Log:
    """Every whole record of a log; a missing log is empty, and so is one that cannot be read, which tells why.

    Args:
        growing: somebody is writing it, so a last line that does not end yet is no damage.
    """
    try:
        if S_ISCHR(path.stat().st_mode) or S_ISFIFO(path.stat().st_mode):
            return Log(path, (), fault="it is no file")  # reading /dev/full, for one, never ends
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        lines = []
    except OSError as error:
        return Log(path, (), fault=error.strerror or str(error))
    if growing and lines and _record(lines[-1]) is None:
        lines.pop()
    found = [_record(line) for line in lines if line.strip()]
    records = tuple(record for record in found if record is not None)
    return Log(path, _marked(records), len(found) - len(records))


def _marked(records: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The records, those of stretches that were left again marked as `Log` says."""
    marked, kept = list[dict[str, Any]](), math.inf
    for record in reversed(records):
        frames = record.get("frames")
        is_left = _is_count(frames) and record["frames"] > kept
        marked.append({**record, "left": True} if is_left else record)
        if record.get("type") == "seek":
            kept = min(kept, record["frames"])
    return tuple(reversed(marked))


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = parse_json(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and _is_whole(record) else None
