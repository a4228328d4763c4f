"""Reading annotation files: what is missing is said in one line, and a row that cannot be used costs itself only."""

from __future__ import annotations

import ast
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hermes.errors import SourceError, UsageError
from hermes.evals.question import LETTERS, Question, Questions

_LONGEST_S = 1e9
_LONGEST_SHOWN = 60  # characters of a wrong value


class RowError(Exception):
    """Why a row cannot be used, in words."""


class Collector:
    """Gathers questions row by row.

    Args:
        annotations: the file that the rows come from.
    """

    def __init__(self, annotations: Path) -> None:
        self._annotations = annotations
        self._questions: dict[str, Question] = {}
        self._skipped: list[str] = []
        self._left_out: Counter[str] = Counter()

    @contextmanager
    def row(self, name: str) -> Iterator[None]:
        """Work on one row; a `RowError` on the way skips it."""
        try:
            yield
        except RowError as error:
            self._skipped.append(f"{name}: {error}")

    def add(self, question: Question) -> None:
        """Take a question; one whose id was there already gets a number behind it."""
        name, number = question.id, 1
        while name in self._questions:
            number += 1
            name = f"{question.id}#{number}"
        self._questions[name] = replace(question, id=name)

    def leave_out(self, kind: str, count: int) -> None:
        """Count questions of a kind that is not asked here."""
        self._left_out[kind] += count

    def done(self) -> Questions:
        """All of them; raises `SourceError` where no row could be used."""
        if not self._questions:
            first = f"; {self._skipped[0]}" if self._skipped else ""
            raise SourceError(
                f"{self._annotations} holds no question that can be asked{first}", "check that it is the right file"
            )
        found, left_out = tuple(self._questions.values()), tuple(sorted(self._left_out.items()))
        return Questions(self._annotations, found, tuple(self._skipped), left_out)


def find_annotations(data: Path, given: Path | None, names: Sequence[str]) -> Path:
    """The annotation file: the one given, or the first of these names that is in the folder of the data.

    Raises:
        UsageError: the folder does not exist.
        SourceError: the file does not; the message names what was looked for.
    """
    if not is_folder(data):
        raise UsageError(f"--data {data}: no such folder", "give the folder that the benchmark was downloaded to")
    candidates = [given] if given else [data / name for name in names]
    found = next((path for path in candidates if is_there(path)), None)
    if found is None:
        listed = " or ".join(str(path) for path in candidates)
        raise SourceError(f"no annotations: looked for {listed}", "download them there, or name them with --annotations")
    return found


def find_video(data: Path, *names: str) -> Path:
    """The first of these paths that exists in the folder of the data or its `videos`; the first of all where none does."""
    candidates = [data / folder / name for name in names for folder in ("", "videos")]  # an absolute name stays itself
    return next((path for path in candidates if is_there(path)), candidates[0])


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder; there is none of a name that no file system takes."""
    return os.path.exists(path)  # noqa: PTH110 - of such a name `Path.exists` raises


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; see `is_there`."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def read_json(path: Path) -> Any:
    """The content of a JSON file; raises `SourceError` where there is none."""
    if is_there(path) and not path.is_file():  # reading a device may never end
        raise SourceError(f"annotations {path} cannot be read: it is no file", "check --annotations")
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise SourceError(f"annotations {path} cannot be read: {reason}", "download them again") from error


def read_rows(path: Path) -> list[Any]:
    """The rows of a JSON file that holds a list; raises `SourceError`."""
    rows = read_json(path)
    if not isinstance(rows, list):
        raise SourceError(f"annotations {path} hold no list", "check that it is the right file")
    return rows


def mapping(row: object) -> Mapping[str, Any]:
    """A row as a mapping; raises `RowError`."""
    if not isinstance(row, Mapping):
        raise RowError("is no object")
    return row


def text(row: Mapping[str, Any], *fields: str) -> str:
    """The first of the fields that is there, as text that is not empty; raises `RowError`."""
    value = next((row[field] for field in fields if row.get(field) is not None), None)
    if isinstance(value, float) and math.isfinite(value):
        value = f"{value:.15g}"
    elif isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise RowError(f"has no {fields[0]}")
    return _unicode(value.strip(), fields[0])


def seconds(row: Mapping[str, Any], field: str) -> float:
    """A time or another number that is not negative; raises `RowError`."""
    value = row.get(field)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise RowError(f"its {field} {shown(value)} is no number") from None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _LONGEST_S:
        raise RowError(f"its {field} {shown(value)} is no time" if field in row else f"has no {field}")
    return float(value)


def _unicode(written: str, what: str) -> str:
    """A text as it is; raises `RowError` for half a surrogate pair, which JSON can write and no tokenizer reads."""
    try:
        written.encode()
    except UnicodeEncodeError:
        raise RowError(f"its {what} is no text") from None
    return written


def shown(value: object) -> str:
    """A value that is wrong, as a message shows it."""
    shown = repr(value)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."


def clock(written: str) -> float:
    """Seconds of `HH:MM:SS` or `MM:SS`, with or without brackets around; raises `RowError` for anything else."""
    parts = re.fullmatch(r"\[?\s*(?:(\d{1,2}):)?([0-5]?\d):([0-5]\d(?:\.\d+)?)\s*\]?", written.strip())
    if not parts:
        raise RowError(f"its time {shown(written)} cannot be read")
    return int(parts[1] or 0) * 3600 + int(parts[2]) * 60 + float(parts[3])


def options(value: object) -> tuple[str, ...]:
    """The options of a multiple choice, their letters taken off where all have one; a list that is written as text is read.

    Raises:
        RowError: there are not two options at least.
    """
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise RowError("its options cannot be read") from None
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    listed = [_unicode(str(option).strip(), "options") for option in value] if is_list else []  # type: ignore[attr-defined]
    if not 2 <= len(listed) <= len(LETTERS):
        raise RowError(f"has {len(listed)} options")
    marked = [re.match(rf"\(?{letter}[).:]\s*", option) for letter, option in zip(LETTERS, listed, strict=False)]
    if all(marked):
        return tuple(option[mark.end() :].strip() for option, mark in zip(listed, marked, strict=True) if mark)
    return tuple(listed)


def lettered(written: str, choices: Sequence[str]) -> int:
    """The index of an option that is given by its letter: `B`, `B.`, `(B)`; raises `RowError`."""
    letter = re.fullmatch(r"\W*([A-Za-z])(?:\W.*)?", written.strip(), re.DOTALL)
    index = LETTERS.find(letter[1].upper()) if letter else -1
    if not 0 <= index < len(choices):
        raise RowError(f"its answer {shown(written)} is none of its {len(choices)} options")
    return index


def worded(written: str, choices: Sequence[str]) -> int:
    """The index of an option that is given by its text, or else by its letter; raises `RowError`."""
    for same in (str.strip, lambda option: option.strip().rstrip(".").casefold()):
        matching = [index for index, choice in enumerate(choices) if same(choice) == same(written)]
        if matching:
            return matching[0]
    return lettered(written, choices)
