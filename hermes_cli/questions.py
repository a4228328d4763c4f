"""Questions that come with a time: `TIME QUESTION`, on the command line or one a line in a file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hermes.errors import UsageError
from hermes.timecode import parse
from hermes_cli.film import Film

_FORM = 'write it as "TIME QUESTION", for example "00:20 What is on screen now?"'
_COMMENT = re.compile(r"\s*#(?!\d+\s+\S)")  # `#120 What is this?` is a question at the frame of that number


@dataclass(frozen=True)
class TimedQuestion:
    """A question and the moment it is asked at, in seconds; infinite is the end of what is played."""

    time_s: float
    text: str


def timed_questions(written: Iterable[str], film: Film) -> list[TimedQuestion]:
    """Read `TIME QUESTION` texts, in the order of their times; those of one moment keep their order.

    Raises:
        UsageError: a text has no time or no question, or its time is not one of the film's.
    """
    return sorted((_timed(text, film) for text in written), key=lambda question: question.time_s)


def _timed(written: str, film: Film) -> TimedQuestion:
    time, *question = written.strip().split(maxsplit=1) or [""]
    if not question:
        raise UsageError(f"{written!r} is not a time and a question", _FORM)
    try:
        parse(time)
    except UsageError as error:
        raise UsageError(error.message, _FORM) from error
    return TimedQuestion(film.moment(time), readable(*question))


def read_questions(path: Path) -> list[str]:
    """The lines of a file of timed questions; blank lines and comments (`#`) are left out.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"cannot read questions from {path}: {reason}", "give a text file, one question a line") from error
    return [line for line in lines if line.strip() and not _COMMENT.match(line)]


def readable(question: str) -> str:
    """The question itself; raises `UsageError` if it came in as bytes that are not UTF-8."""
    if any("\udc80" <= character <= "\udcff" for character in question):
        raise UsageError("the question is not UTF-8 text", "check the encoding of the terminal or of the file")
    return question
