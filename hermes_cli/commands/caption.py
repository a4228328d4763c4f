"""`hermes caption`: what happens in a video, said again and again, as subtitles or lines of JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, TextIO

import typer

from hermes.errors import UsageError
from hermes.sessions import Session
from hermes.sources import Feed
from hermes.sources.opening import printable
from hermes_cli.captions import WRITERS, Captions, Interrupted, Plan, interrupted, refuse_pipe
from hermes_cli.film import Film
from hermes_cli.knobs import grouped
from hermes_cli.loading import load_player
from hermes_cli.options import KeepingOptions, SavingOptions, Settings, SourceArgument
from hermes_cli.player import Player
from hermes_cli.questions import TimedQuestion
from hermes_cli.recall import check_no_settings, recalled_film, recalled_player, rewound
from hermes_cli.screen import Screen
from hermes_cli.serving import kept
from hermes_cli.standing import StandingQuestion, interval_s
from hermes_cli.viewing import viewing
from hermes_cli.writing import expanded, promised_text, reopen_text

QUESTION = "Describe the scene."

Interval = Annotated[str, typer.Option("--every", metavar="INTERVAL", help="How often.")]
Question = Annotated[str, typer.Option(metavar="TEXT", help="What is asked each time.")]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE.srt|vtt|jsonl|txt", help="Where to; its name tells the format."),
]
UntilChange = Annotated[bool, typer.Option("--until-change", help="Leave out a caption that says the same as the last.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")]
Continue = Annotated[
    bool, typer.Option("--continue", "-c", help="Go on with the captions of SRC in this file where they were interrupted.")
]


@grouped
def caption(
    context: typer.Context,
    source: SourceArgument,
    output: Output,
    settings: Settings,
    keeping: KeepingOptions,
    every: Interval = "5s",
    question: Question = QUESTION,
    until_change: UntilChange = False,
    go_on: Continue = False,
    force: Force = False,
) -> None:
    """Write captions of a video into a file, one after every interval, each as soon as it is there.

    A caption is about the time since the one before it. The run is kept as a session, so that -c can go on with it.
    """
    if output.suffix.lower() not in WRITERS:
        raise UsageError(f"{printable(output.name)} has no known format", f"one of: {', '.join(WRITERS)}")
    refuse_pipe(expanded(output), "captions are read again to go on with them: name a file")
    plan = Plan.of(output, interval_s(every), question, until_change)
    if go_on and (force or keeping.name is not None or not keeping.save):
        raise UsageError("-c goes on with a file and its session", "leave --force, --name and --no-save out")
    work = _resumed(context, source, output, plan, settings) if go_on else _begun(source, plan, settings)
    with (
        nullcontext() if go_on else promised_text(output, force) as begin,
        viewing(work.player, settings.output) as shown,
        kept(shown, SavingOptions(**vars(keeping)), settings, work.what) as host,
        begin() if begin else _reopened(source, output, work.before) as file,
    ):
        log = host.log if host else lambda record: None
        if begin:
            log(plan.record())
        captions = work.before.captions if work.before else ()
        shown.answers = Captions(file, work.plan, work.film.start_s, log, captions)
        shown.play([TimedQuestion(math.inf, work.plan.question)])
        shown.finish()


@dataclass(frozen=True)
class _Work:
    """What is to be captioned.

    Attributes:
        make: the player, without what it is to ask.
        what: the session that goes on, or the source of a new one.
        before: what was captioned before.
    """

    film: Film
    plan: Plan
    make: Callable[[Screen], Player]
    what: Session | str
    before: Interrupted | None = None

    def player(self, screen: Screen) -> Player:
        """The player that asks; raises as `load_player`, and `UsageError` for a question that is empty or too long."""
        player = self.make(screen)
        player.engine.check_question(self.plan.question)
        asked_s = max(0.0, self.before.end_s) if self.before else 0.0
        standing = StandingQuestion(self.plan.every_s, self.plan.question, self.plan.until_change, asked_s)
        return replace(player, standing=(standing,))


def _begun(source: str, plan: Plan, settings: Settings) -> _Work:
    config, sampling = settings.memory.method.config(), settings.answering.sampling()
    film = settings.playing.open(source)
    return _Work(film, plan, partial(load_player, film, config, sampling, settings), source)


def _resumed(context: typer.Context, source: str, output: Path, plan: Plan, settings: Settings) -> _Work:
    check_no_settings(context, plays_on=True)
    before = interrupted(source, output)
    _check_unchanged(context, plan, before.plan)
    film: Film = recalled_film(before.session, playing=settings.playing, written=source)
    if film.source.info.is_live:
        film = _LaterFilm(**{field.name: getattr(film, field.name) for field in fields(Film)}, begin_s=before.end_s)

    def make(screen: Screen) -> Player:
        """With the memory of then: what was captioned after it is played again, and not asked."""
        player = recalled_player(before.session, film, settings, screen)
        return rewound(before.session, player, before.end_s, screen)

    return _Work(film, before.plan, make, before.session, before)


def _check_unchanged(context: typer.Context, now: Plan, then: Plan) -> None:
    """Raise `UsageError` for an option on the command line that is another than that of the run that goes on."""
    values = {"every": (now.every_s, then.every_s), "question": (now.question, then.question)}
    values |= {"until_change": (now.until_change, then.until_change)}
    for name, (mine, theirs) in values.items():
        origin = context.get_parameter_source(name)
        if origin is not None and origin.name == "COMMANDLINE" and mine != theirs:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"these captions were begun with another {option}", "leave it out, or begin anew with --force")


def _reopened(source: str, output: Path, before: Interrupted | None) -> TextIO:
    """The file of a run that goes on, without what is not whole at its end; the session is ours by now."""
    assert before is not None  # or the file would be a new one
    if interrupted(source, output).captions != before.captions:
        raise UsageError(f"{printable(str(output))} was written by another process meanwhile", "try again")
    return reopen_text(output, before.nbytes)


@dataclass(frozen=True)
class _LaterFilm(Film):
    """A live source whose captions go on: its time goes on behind them, and not behind a memory that was saved earlier."""

    begin_s: float = -math.inf

    def feed(self, after_s: float = -math.inf, ahead: int = 0) -> Feed:
        return super().feed(max(after_s, self.begin_s), ahead)
