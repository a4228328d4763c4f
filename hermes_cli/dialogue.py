"""Questions that come through a pipe once the film has been played."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hermes.errors import UsageError
from hermes_cli.clock import clock
from hermes_cli.contents import contents_table
from hermes_cli.failures import spares_memory
from hermes_cli.questions import readable
from hermes_cli.screen import Screen
from hermes_cli.viewing import Viewing

_LEAVING = ("/bye", "/exit", "/quit", "exit", "quit")
_CACHE = re.compile(r"/cache(\s|$)")
BEGINS_WITH_TIME = re.compile(r"(\d+:\d\d\S*|\d+(\.\d+)?%)\s")
"""A question that names its moment first, as those of --ask do."""


def answer_piped(viewing: Viewing, lines: Iterable[str]) -> int:
    """Answer each non-empty line; one that fails is complained about. Returns 0, or the highest exit code of a failure."""
    return max((_asked(viewing, question) for question in _lines(lines, viewing.screen)), default=0)


def _asked(viewing: Viewing, question: str) -> int:
    """The exit code of one question. Whatever makes it fail, the memory is as it was, so others can be asked."""
    try:
        if _CACHE.match(question):
            viewing.screen.say(contents_table(viewing.player, question.partition(" ")[2].strip()))
        else:
            _check_moment(viewing, question)
            viewing.ask(readable(question.removeprefix("/")))
    except Exception as error:
        if not spares_memory(error):
            raise
        return viewing.complain(error)
    return 0


def _check_moment(viewing: Viewing, question: str) -> None:
    """Refuse a question that begins with a time, as those of --ask do: here it would be taken for part of the text."""
    if BEGINS_WITH_TIME.match(question):
        now = clock(viewing.tally.at or 0.0)
        hint = 'for another moment use --ask "TIME QUESTION", or hermes ask SRC --at TIME'
        raise UsageError(f"questions here are about {now}, the newest frame", hint)


def _lines(lines: Iterable[str], screen: Screen) -> Iterator[str]:
    """Questions, those that start with a slash with a second one in front of it, and the commands that there are here."""
    for line in lines:
        text = line.strip()
        if text in _LEAVING:
            return
        if text.startswith("/") and not text.startswith("//") and not _CACHE.match(text):
            known = "/cache shows the memory, /bye leaves, // starts a question that begins with a slash"
            screen.warn(f"unknown command {text.split()[0]!r}; {known}")
        elif text:
            yield text
