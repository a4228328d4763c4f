"""Questions that come on standard input once the film has been played: lines of a pipe, or a prompt on a terminal."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator

from hermes.errors import UsageError
from hermes_cli.failures import spares_memory
from hermes_cli.progress import hours_minutes_seconds
from hermes_cli.questions import readable
from hermes_cli.screen import Screen
from hermes_cli.viewing import Viewing

_LEAVING = ("/bye", "/exit", "/quit", "exit", "quit")
_BEGINS_WITH_TIME = re.compile(r"(\d+:\d\d\S*|\d+(\.\d+)?%)\s")
_TWICE_S = 2.0  # a second Ctrl-C within this time leaves


def answer_piped(viewing: Viewing, lines: Iterable[str]) -> int:
    """Answer each non-empty line; one that fails is complained about. Returns 0, or the highest exit code of a failure."""
    return max((_asked(viewing, question) for question in _questions(lines, viewing.screen)), default=0)


def answer_typed(viewing: Viewing) -> None:
    """Answer what is typed at a prompt until Ctrl-D or /bye; Ctrl-C stops an answer, and twice in a row leaves."""
    for question in _questions(_typed_lines(viewing), viewing.screen):
        _answer_typed(viewing, question)


def _answer_typed(viewing: Viewing, question: str) -> None:
    try:
        _asked(viewing, question)
    except KeyboardInterrupt:
        viewing.screen.note("cancelled")


def _asked(viewing: Viewing, question: str) -> int:
    """The exit code of one question. Whatever makes it fail, the memory is as it was, so others can be asked."""
    try:
        _check_moment(viewing, question)
        viewing.ask(readable(question))
    except Exception as error:
        if not spares_memory(error):
            raise
        return viewing.complain(error)
    return 0


def _check_moment(viewing: Viewing, question: str) -> None:
    """Refuse a question that begins with a time, as those of --ask do: here it would be taken for part of the text."""
    if _BEGINS_WITH_TIME.match(question):
        now = hours_minutes_seconds(viewing.tally.at or 0.0)
        hint = 'for another moment use --ask "TIME QUESTION", or hermes ask SRC --at TIME'
        raise UsageError(f"questions here are about {now}, the newest frame", hint)


def _questions(lines: Iterable[str], screen: Screen) -> Iterator[str]:
    for line in lines:
        text = line.strip()
        if text in _LEAVING:
            return
        if text.startswith("/") and not text.startswith("//"):
            screen.warn(f"unknown command {text.split()[0]!r}; /bye leaves, // starts a question that begins with a slash")
        elif text:
            yield text.removeprefix("/")


def _typed_lines(viewing: Viewing) -> Iterator[str]:
    interrupted_s = float("-inf")
    while True:
        now_s = viewing.tally.at
        assert now_s is not None
        try:
            viewing.screen.prompt(f"hermes {hours_minutes_seconds(now_s)} >>> ")
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            if time.monotonic() - interrupted_s < _TWICE_S:
                raise
            interrupted_s = time.monotonic()
            viewing.screen.note("\nUse Ctrl+D or /bye to exit.")
            continue
        if not line:
            viewing.screen.prompt("\n")
            return
        yield line
