"""`hermes watch`: play a video and answer questions on the way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hermes_cli.dialogue import answer_piped, answer_typed
from hermes_cli.knobs import grouped
from hermes_cli.options import Settings, SourceArgument
from hermes_cli.questions import read_questions, timed_questions
from hermes_cli.terminal import piped_lines
from hermes_cli.viewing import viewing

Ask = Annotated[
    list[str] | None,
    typer.Option(
        metavar='"TIME QUESTION"',
        help='Ask when the video reaches that time: "00:20 What is this?", "50% ...", "-5s ..." (before the end), "end ...".'
        " Repeatable.",
    ),
]
AskFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Ask every TIME QUESTION of a text file, one a line; # starts a comment."),
]


@grouped
def watch(source: SourceArgument, settings: Settings, ask: Ask = None, ask_file: AskFile = None) -> None:
    """Play a video through the model and answer questions at their moments.

    After that each line of a piped standard input is a question about the end; on a terminal, without --ask, a prompt opens.
    """
    config = settings.memory.method.config()
    film = settings.playing.open(source)
    written = [*(ask or []), *(read_questions(ask_file) if ask_file else [])]
    questions = timed_questions(written, film)
    with viewing(film, config, settings) as watched:
        exit_code, lines = watched.play_on(questions), piped_lines()
        if lines is not None:
            exit_code = max(exit_code, answer_piped(watched, lines))
        elif sys.stdin is not None and not written:
            answer_typed(watched)
        watched.finish()
        raise typer.Exit(exit_code)
