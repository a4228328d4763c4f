"""One run of a command that plays a film: its events go to both streams, and are counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from copy import copy

import typer

from hermes.errors import PartialError, ResourceError
from hermes.events import Answer
from hermes_cli.answers import Answers, make_answers
from hermes_cli.failures import describe
from hermes_cli.options import OutputOptions
from hermes_cli.player import Event, Player
from hermes_cli.questions import TimedQuestion
from hermes_cli.screen import Screen
from hermes_cli.tally import Tally

Events = Generator[Event, None, None]


class Viewing:
    """A film being watched.

    Args:
        player: plays it and answers.
        answers: writes to standard output.
        screen: writes to standard error.

    Attributes:
        saved: keeps each event, if anything does.
        drawn: draws each event, if anything but the screen does.
        followed: gives the events of the film on, to whoever does something about them.
    """

    def __init__(self, player: Player, answers: Answers, screen: Screen) -> None:
        self.player, self.answers, self.screen = player, answers, screen
        self.tally = Tally(at=player.engine.now_s, visual_tokens=max(player.engine.visual_tokens))
        self.saved: Callable[[Event], None] = lambda event: None
        self.drawn: Callable[[Event], None] = lambda event: None
        self.followed: Callable[[Events], Events] = lambda events: events
        answers.start(player, self.tally)

    def play(self, questions: Sequence[TimedQuestion], to_the_end: bool = True) -> None:
        """Play the film and answer on the way; arguments and errors as `Player.play`."""
        self.screen.start(self.player, math.inf if to_the_end else questions[-1].time_s)
        self.show(self.followed(self.player.play(questions, to_the_end)))
        if not self.player.transport.interrupted:  # it goes on from elsewhere
            self.screen.note(str(self.tally))

    def play_on(self, questions: Sequence[TimedQuestion]) -> int:
        """Play the whole film; running out of memory ends it early, and what was seen until then can still be asked about.

        Returns: the exit code.
        """
        try:
            self.play(questions)
        except Exception as error:
            if self.player.engine.now_s is None or describe(error).exit_code != ResourceError.exit_code:
                raise
            return self.complain(error)
        return 0

    def complain(self, error: Exception) -> int:
        """Show an error that does not end the run; returns its exit code."""
        failure = describe(error)
        self.screen.complain(failure)
        return failure.exit_code

    def ask(self, question: str) -> None:
        """Answer a question about the newest frame; an answer that is interrupted is shown as far as it came."""
        self.tell(self.player.ask(question))

    def finish(self) -> None:
        """Say that the work is done; raises `typer.Exit` with the code for a partial result if the film ended early."""
        self.answers.end()
        if self.player.film.source.report.ended_early:
            raise typer.Exit(PartialError.exit_code)

    def tell(self, events: Events, saved: Callable[[Event], None] | None = None) -> None:
        """Show what answers a question, which may come while the film has something of its own to tell.

        Args:
            saved: keeps it instead of what keeps the rest.
        """
        self._show(events, copy(self.answers), saved or self.saved)

    def show(self, events: Events) -> None:
        """Take events to wherever they are shown; what they come from is closed, whatever happens."""
        self._show(events, self.answers, self.saved)

    def _show(self, events: Events, answers: Answers, saved: Callable[[Event], None]) -> None:
        try:
            with closing(events):  # whatever happens, the memory is free again
                for event in events:
                    self.tally.add(event)
                    answers.show(event)
                    self.screen.show(event, self.tally)
                    if isinstance(event, Answer):
                        self.screen.detail(self.player.engine.runner.news())
                    self.drawn(event)
                    saved(event)
        except (KeyboardInterrupt, SystemExit):
            answers.interrupt()
            raise
        except Exception:
            answers.abandon()
            raise


@contextmanager
def viewing(make_player: Callable[[Screen], Player], output: OutputOptions) -> Iterator[Viewing]:
    """Get a player ready to be watched; the terminal is left as it was. Raises as `make_player`."""
    screen = Screen(output)
    player = make_player(screen)
    try:
        yield Viewing(player, make_answers(output), screen)
    finally:
        screen.close()
