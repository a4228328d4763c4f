"""Everything on standard error: progress, which question is being answered, warnings, timings, a last line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from rich.console import Console, RenderableType

from hermes.events import Answer, ChunkEncoded, Moment
from hermes.timecode import format_time
from hermes_cli.clock import moment_text
from hermes_cli.failures import Failure
from hermes_cli.options import OutputOptions
from hermes_cli.player import Asking, Event, Player, Seen, Warned
from hermes_cli.progress import BarProgress, Goal, NoProgress, PlainProgress
from hermes_cli.tally import Tally
from hermes_cli.terminal import clean, verbose


class Screen:
    """A reader of events that writes to standard error."""

    def __init__(self, options: OutputOptions) -> None:
        self._options = options
        self._console = _make_console(options.color)
        self._progress = NoProgress()
        self._typing = False  # questions are typed at our prompt, so they are on the screen already
        self._owned = False  # somebody else draws on the terminal, and we write lines above it

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """Say what is going on while it lasts, where a bar would be shown too."""
        if not self._draws:
            yield
            return
        with self._console.status(text):
            yield

    def start(self, player: Player, last_s: float) -> None:
        """The film begins, and is played up to `last_s` at the most."""
        bounded = player.engine.policy.bounded
        budget = player.engine.config.budget if bounded else None
        goal = Goal(player.film.start_s, player.film.stop_s(last_s), budget)
        if self._draws:
            self._progress = BarProgress(self._console, goal)
        elif self._options.progress == "plain" and not self._options.quiet:
            self._progress = PlainProgress(self._console, goal)

    def show(self, event: Event, tally: Tally) -> None:
        """Take an event, already counted in the tally."""
        match event:
            case Asking():
                self._announce(event)
            case Answer():
                self._say_evidence(event.evidence)
                self.detail(_timing(event))
            case Warned():
                self.warn(event.message)
            case Seen() | ChunkEncoded():
                self._progress.update(tally)

    def note(self, text: str) -> None:
        """A dim line, unless quiet."""
        if not self._options.quiet:
            self._print(text, "dim")

    def detail(self, text: str) -> None:
        """A dim line for those who asked for more, if there is anything to say."""
        if text and verbose():
            self._print(text, "dim")

    def warn(self, text: str) -> None:
        """A warning, unless quiet."""
        if not self._options.quiet:
            self._print(f"warning: {text}")

    def hand_over(self) -> None:
        """Let somebody else draw on the terminal from here on."""
        self._progress.hide()
        self._owned = self._typing = True

    def say(self, text: str) -> None:
        """Lines that were asked for, folded between words."""
        self._progress.hide()
        self._console.print(clean(text))

    def pass_on(self, line: str) -> None:
        """A line of somebody else's, as long as it is."""
        self._print(line, folded=False)

    def drawn(self, renderable: RenderableType) -> str:
        """What rich makes of something for this terminal, as text."""
        with self._console.capture() as captured:
            self._console.print(renderable)
        return captured.get().rstrip("\n")

    def complain(self, failure: Failure) -> None:
        """An error that does not end the program."""
        self._print("\n".join(failure.lines))

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._progress.hide()

    def _announce(self, asking: Asking) -> None:
        self._progress.hide()
        if not self._typing:
            self.note(f"[{format_time(asking.at_s)}] {' '.join(asking.question.split())}")

    def _say_evidence(self, moments: Sequence[Moment]) -> None:
        """Where somebody reads along; logs have it in their JSON."""
        if moments and (self._console.is_terminal or verbose()):
            self.note(f"drew on {', '.join(map(moment_text, moments))}")

    @property
    def _draws(self) -> bool:
        wanted = self._options.progress == "auto" and not self._options.quiet
        return self._console.is_terminal and wanted and not self._owned

    def _print(self, text: str, style: str | None = None, folded: bool = True) -> None:
        """Write lines, at a prompt folded between words."""
        self._progress.hide()
        self._console.print(clean(text), style=style, soft_wrap=not (folded and self._owned))


def _make_console(color: str) -> Console:
    """A console on standard error that neither FORCE_COLOR nor a log file can talk into escape codes."""
    terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    colored = color == "always" or (color == "auto" and terminal and not os.environ.get("NO_COLOR"))
    system: Literal["auto", "standard"] | None = None if not colored else "auto" if terminal else "standard"
    return Console(stderr=True, force_terminal=terminal, color_system=system, highlight=False, markup=False, emoji=False)


def _timing(answer: Answer) -> str:
    speed = f", then {1000 / answer.tpot_ms:.1f} tokens/s" if answer.tpot_ms else ""
    return f"{answer.question_tokens} tokens read, first of {answer.answer_tokens} after {answer.ttft_ms:.0f} ms{speed}"
