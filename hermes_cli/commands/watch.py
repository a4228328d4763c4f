"""`hermes watch`: play a video, answer questions on the way, and keep it all as a session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hermes.errors import UsageError
from hermes.sessions import Session
from hermes.sessions.store import state_folder
from hermes_cli.answers import Answers
from hermes_cli.dialogue import answer_piped
from hermes_cli.film import Film
from hermes_cli.knobs import grouped
from hermes_cli.loading import load_player
from hermes_cli.options import SOURCE_HELP, OutputOptions, SavingOptions, SessionOption, Settings
from hermes_cli.player import Player
from hermes_cli.questions import read_questions, timed_questions
from hermes_cli.reacting import command_words, reacting
from hermes_cli.recall import check_no_settings, check_to_come, continued_player, find_session, recalled_film
from hermes_cli.screen import Screen
from hermes_cli.serving import Host, kept
from hermes_cli.standing import StandingQuestion, standing_question
from hermes_cli.terminal import piped_lines
from hermes_cli.viewing import Viewing, viewing

Source = Annotated[str | None, typer.Argument(metavar="SRC", help=f"{SOURCE_HELP} May be left out with -c or --session.")]
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
Every = Annotated[
    list[str] | None,
    typer.Option(
        metavar='"INTERVAL QUESTION"',
        help='Ask again and again while the video plays: "10s Is anyone at the door?". Repeatable.',
    ),
]
UntilChange = Annotated[bool, typer.Option("--until-change", help="Tell an answer of --every only when it differs.")]
OnChange = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Run a command when an answer of --every differs from the one before; it gets that as JSON on standard input.",
    ),
]
Continue = Annotated[
    bool,
    typer.Option("--continue", "-c", help="Go on with the last session, of SRC if it is given, from its last saved memory."),
]


@grouped
def watch(
    context: typer.Context,
    settings: Settings,
    saving: SavingOptions,
    source: Source = None,
    ask: Ask = None,
    ask_file: AskFile = None,
    every: Every = None,
    until_change: UntilChange = False,
    on_change: OnChange = None,
    go_on: Continue = False,
    session: SessionOption = None,
) -> None:
    """Play a video through the model and answer questions at their moments.

    After that each line of a piped standard input is a question about the end; on a terminal, without --ask, a prompt opens.
    """
    standing = _standing_questions(every or [], until_change, on_change)
    written = [*(ask or []), *(read_questions(ask_file) if ask_file else [])]
    command = None if on_change is None else command_words(on_change)
    found = _continuable_session(context, session, source, saving) if go_on or session else None
    film, make_player = _new_film(source, settings) if found is None else _rest_of_film(found, source, settings)
    questions = timed_questions(written, film)
    if found is not None:
        check_to_come(found, questions)
    with (
        viewing(lambda screen: replace(make_player(screen), standing=standing), settings.output) as watched,
        reacting(watched, command),
        kept(watched, saving, settings, found or source) as host,
    ):
        lines = piped_lines()
        if lines is None and sys.stdin is not None and sys.stdout.isatty() and not written:
            exit_code = _at_a_prompt(watched, host, settings.output)
        else:
            exit_code = watched.play_on(questions)
            exit_code = max(exit_code, answer_piped(watched, lines) if lines is not None else 0)
        watched.finish()
        raise typer.Exit(exit_code)


def _standing_questions(every: list[str], until_change: bool, on_change: str | None) -> tuple[StandingQuestion, ...]:
    """Those of --every; raises `UsageError` where an option that goes with them stands alone."""
    for option, is_given in (("--until-change", until_change), ("--on-change", on_change is not None)):
        if is_given and not every:
            raise UsageError(f"{option} goes with --every", 'for example --every "10s Is anyone at the door?"')
    return tuple(standing_question(text, until_change) for text in every)


def _continuable_session(context: typer.Context, written: str | None, source: str | None, saving: SavingOptions) -> Session:
    """The session that -c or --session means; raises as `find_session`, and `UsageError` where it is to change."""
    check_no_settings(context, plays_on=True)
    if saving.name is not None:
        raise UsageError("a session keeps its name: --name cannot be changed", "leave it out")
    return find_session(written, source)


def _rest_of_film(session: Session, source: str | None, settings: Settings) -> tuple[Film, Callable[[Screen], Player]]:
    """The film of a session that goes on, and what makes its player."""
    film = recalled_film(session, playing=settings.playing, written=source)
    return film, partial(continued_player, session, film, settings)


def _new_film(source: str | None, settings: Settings) -> tuple[Film, Callable[[Screen], Player]]:
    """The film that is named, and what makes its player; raises `UsageError` where none is."""
    if source is None:
        raise UsageError("there is no video", "name one: hermes watch SRC; -c goes on with the last session")
    config, sampling = settings.memory.method.config(), settings.answering.sampling()
    film = settings.playing.open(source)
    return film, partial(load_player, film, config, sampling, settings)


def _at_a_prompt(watched: Viewing, host: Host | None, options: OutputOptions) -> int:
    from hermes_cli.repl.footer import Footer  # noqa: PLC0415 - on a terminal only
    from hermes_cli.repl.session import Repl, history_file  # noqa: PLC0415

    watched.screen.hand_over()
    if watched.player.standing:
        watched.answers = Answers()  # whole ones, since they come while something may be typed
    return Repl(watched, host, Footer(watched.player, options), history_file(state_folder())).run()
