"""`hermes watch`: play a video, answer questions on the way, and keep it all as a session."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hermes.errors import UsageError
from hermes_cli.dialogue import answer_piped, answer_typed
from hermes_cli.knobs import grouped
from hermes_cli.loading import load_player
from hermes_cli.options import SavingOptions, SessionOption, Settings
from hermes_cli.questions import read_questions, timed_questions
from hermes_cli.recall import check_no_settings, continued_player, find_session, recalled_film
from hermes_cli.serving import kept
from hermes_cli.terminal import piped_lines
from hermes_cli.viewing import viewing

Source = Annotated[str | None, typer.Argument(metavar="SRC", help="Video file; may be left out with -c or --session.")]
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
Continue = Annotated[
    bool, typer.Option("--continue", "-c", help="Go on where the last session stopped, the last of SRC if it is given.")
]


@grouped
def watch(
    context: typer.Context,
    settings: Settings,
    saving: SavingOptions,
    source: Source = None,
    ask: Ask = None,
    ask_file: AskFile = None,
    go_on: Continue = False,
    session: SessionOption = None,
) -> None:
    """Play a video through the model and answer questions at their moments.

    After that each line of a piped standard input is a question about the end; on a terminal, without --ask, a prompt opens.
    """
    written = [*(ask or []), *(read_questions(ask_file) if ask_file else [])]
    found = None
    if go_on or session:
        check_no_settings(context)
        found = find_session(session, source)
        film, make_player = recalled_film(found), partial(continued_player, found, settings)
    elif source is not None:
        config, sampling = settings.memory.method.config(), settings.answering.sampling()
        film = settings.playing.open(source)
        make_player = partial(load_player, film, config, sampling, settings)
    else:
        raise UsageError("there is no video", "name one: hermes watch SRC; -c goes on with the last session")
    questions = timed_questions(written, film)
    with viewing(make_player, settings.output) as watched, kept(watched, saving, settings, found or source):
        exit_code, lines = watched.play_on(questions), piped_lines()
        if lines is not None:
            exit_code = max(exit_code, answer_piped(watched, lines))
        elif sys.stdin is not None and not written:
            answer_typed(watched)
        watched.finish()
        raise typer.Exit(exit_code)
