"""One run of a command that plays a film: its events go to both streams, and are counted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import typer

from hermes.config import MemoryConfig
from hermes.errors import PartialError
from hermes_cli.answers import Answers, make_answers
from hermes_cli.film import Film
from hermes_cli.loading import load_player
from hermes_cli.options import Settings
from hermes_cli.player import Event, Player
from hermes_cli.questions import TimedQuestion
from hermes_cli.screen import Screen
from hermes_cli.tally import Tally


class Viewing:
    """A film being watched.

    Args:
        player: plays it and answers.
        answers: writes to standard output.
        screen: writes to standard error.
    """

    def __init__(self, player: Player, answers: Answers, screen: Screen) -> None:
        self.player, self.answers, self.screen = player, answers, screen
        self.tally = Tally()
        answers.start(player, self.tally)

    def play(self, questions: Sequence[TimedQuestion], to_the_end: bool = True) -> None:
        """Play the film and answer on the way; arguments and errors as `Player.play`."""
        self.screen.start(self.player, math.inf if to_the_end else questions[-1].time_s)
        self._show(self.player.play(questions, to_the_end))
        self.screen.note(str(self.tally))

    def ask(self, question: str) -> None:
        """Answer a question about the newest frame; an answer that is interrupted is shown as far as it came."""
        self._show(self.player.ask(question))

    def finish(self) -> None:
        """Say that the work is done; raises `typer.Exit` with the code for a partial result if the film ended early."""
        self.answers.end()
        if self.player.film.source.report.ended_early:
            raise typer.Exit(PartialError.exit_code)

    def _show(self, events: Iterable[Event]) -> None:
        try:
            for event in events:
                self.tally.add(event)
                self.answers.show(event)
                self.screen.show(event, self.tally)
        except (KeyboardInterrupt, SystemExit):
            self.answers.interrupt()
            raise
        except Exception:
            self.answers.abandon()
            raise


@contextmanager
def viewing(film: Film, config: MemoryConfig, settings: Settings) -> Iterator[Viewing]:
    """Load the model for a film; the terminal is left as it was. Raises as `load_player`."""
    screen = Screen(settings.output)
    with screen.busy("loading the model"):
        player = load_player(film, config, settings)
    if settings.model.model is None:
        screen.note("using the small model of this package, which knows coloured shapes only; -m takes another")
    try:
        yield Viewing(player, make_answers(settings.output), screen)
    finally:
        screen.close()
