"""`hermes ask`: one question about one moment, of a video or of a session."""

from __future__ import annotations

import os
import re
import shlex
from functools import partial
from typing import Annotated

import typer

from hermes.errors import SourceError, UsageError
from hermes_cli.asking import ask_running, ask_saved
from hermes_cli.film import Film
from hermes_cli.knobs import grouped
from hermes_cli.loading import load_player
from hermes_cli.options import SessionOption, Settings
from hermes_cli.questions import TimedQuestion, readable
from hermes_cli.recall import check_no_settings, find_session
from hermes_cli.terminal import piped_lines
from hermes_cli.viewing import viewing

_FILE_NAME = re.compile(r"\S*/\S+|\S+\.\w{2,4}")  # also one that does not exist, which is then a mistake

_WORD = re.compile(r"[^\W\d_][\w'\u2019]*[,;:]?")

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SRC] QUESTION...",
        help="A video and a question; a question alone is about the last session. Piped standard input goes in front of it.",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="The moment asked about; nothing after it is seen. -30s is before the end.",
        show_default="the end, or the newest moment of a session",
    ),
]
SourceOption = Annotated[str | None, typer.Option("--source", metavar="SRC", help="The last session of this source.")]
Nearest = Annotated[
    bool, typer.Option("--nearest", help="Ask the memory that was saved last before that moment, without its video.")
]


@grouped
def ask(
    context: typer.Context,
    settings: Settings,
    words: Words = None,
    at: At = None,
    session: SessionOption = None,
    source: SourceOption = None,
    nearest: Nearest = False,
) -> None:
    """Answer one question about one moment of a video, or of something that is or was watched.

    A session answers as it would have then, from the memory that was saved last before that moment and the frames between.
    One that is being watched answers at once, while it plays on.
    """
    video, question = (None, words or []) if session or source else _divided(words or [])
    if video is not None:
        _ask_video(video, question, settings, at or "now")
        return
    check_no_settings(context)
    found = find_session(session, source)
    text = _whole(question, f"hermes ask --at {at}" if at else "hermes ask")
    if not ask_running(found, text, at, nearest, settings):
        ask_saved(found, text, at, nearest, settings)


def _ask_video(video: str, question: list[str], settings: Settings, at: str) -> None:
    config, sampling = settings.memory.method.config(), settings.answering.sampling()
    film = _open(video, question, settings)
    moment_s = film.moment(at)
    text = _whole(question, f"hermes ask {shlex.quote(video)}")  # piped input may keep us waiting, so mistakes come first
    moment = TimedQuestion(moment_s, text)
    with viewing(partial(load_player, film, config, sampling, settings), settings.output) as asked:
        asked.play([moment], to_the_end=False)
        asked.finish()


def _open(video: str, question: list[str], settings: Settings) -> Film:
    try:
        return settings.playing.open(video)
    except SourceError as error:
        if not _WORD.fullmatch(video) or _is_video(video):
            raise
        quotes = f'a question goes in quotes: hermes ask "{" ".join([video, *question])}"'
        raise SourceError(error.message, f"{error.hint}; {quotes}" if error.hint else quotes) from error


def _divided(words: list[str]) -> tuple[str | None, list[str]]:
    """The video in front of a question, if there is one: the first of several words, or a single one that names a file."""
    if len(words) > 1 or (words and _is_video(words[0])):
        return words[0], words[1:]
    return None, words


def _is_video(word: str) -> bool:
    return bool(_FILE_NAME.fullmatch(word)) or os.path.exists(word)  # noqa: PTH110 - Path.exists raises for some questions


def _whole(words: list[str], command: str) -> str:
    lines = piped_lines()
    text = " ".join((lines.read().strip() if lines else "", *words)).strip()
    if not text:
        raise UsageError("there is no question", f'ask one: {command} "What is happening now?"')
    return readable(text)
