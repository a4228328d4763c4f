"""Answers on standard output, in each of the forms a user can ask for."""

from __future__ import annotations

import sys

from hermes.events import Answer, AnswerDelta, ChunkEncoded
from hermes_cli import records
from hermes_cli.options import OutputOptions
from hermes_cli.player import Asking, Event, Player, Warned
from hermes_cli.tally import Tally
from hermes_cli.terminal import clean, json_line, write_out


class Answers:
    """A reader of events that writes each answer, when it is whole, as plain text and a line end. Other forms build on it.

    Attributes:
        asking: the question being answered, None between questions.
        text: what has come of its answer so far, made safe to show.
    """

    def __init__(self) -> None:
        self.asking: Asking | None = None
        self.text = ""

    def start(self, player: Player, tally: Tally) -> None:
        """The film begins; the tally counts what happens, each event before it is shown."""

    def show(self, event: Event) -> None:
        """Take an event."""
        match event:
            case Asking():
                self.asking, self.text = event, ""
            case AnswerDelta():
                self.text = clean(self.text + event.text).lstrip()
                self.grown()
            case Answer():
                self._finish(event)

    def interrupt(self) -> None:
        """Write what there is of an answer under way, if anything; there will be no more of it."""
        if self.asking and self.text:
            self._finish(None)

    def abandon(self) -> None:
        """An answer under way has failed, and what there is of it is no answer."""
        self.asking = None

    def end(self) -> None:
        """The work is done."""

    def grown(self) -> None:
        """The answer's text has grown."""

    def whole(self, asking: Asking, answered: Answer | None) -> None:
        """The answer is finished; it was cancelled if there is no event for it."""
        write_out(self.text.rstrip() + "\n")

    def _finish(self, answered: Answer | None) -> None:
        asking, self.asking = self.asking, None
        assert asking is not None  # an answer follows its question
        self.whole(asking, answered)


class StreamedAnswers(Answers):
    """The same text, written as it comes."""

    _written = 0

    def grown(self) -> None:
        shown = self.text.rstrip()  # white space waits for the word after it, so that none ends an answer
        write_out(shown[self._written :])
        self._written = len(shown)

    def whole(self, asking: Asking, answered: Answer | None) -> None:
        write_out("\n")
        self._written = 0

    def abandon(self) -> None:
        super().abandon()
        if self._written:  # an error would go on in the same line
            write_out("\n")
            self._written = 0


class JsonAnswers(Answers):
    """Each answer as a JSON object."""

    def start(self, player: Player, tally: Tally) -> None:
        self._player, self._tally = player, tally

    def whole(self, asking: Asking, answered: Answer | None) -> None:
        record = records.answer(self._player, asking, self.text.rstrip(), answered, self._tally.waiting)
        write_out(json_line(record))


class JsonEvents(JsonAnswers):
    """Each event as a JSON object."""

    def start(self, player: Player, tally: Tally) -> None:
        super().start(player, tally)
        write_out(json_line(records.start(player)))

    def show(self, event: Event) -> None:
        super().show(event)
        match event:
            case ChunkEncoded():
                write_out(json_line(records.chunk(event)))
            case Warned():
                write_out(json_line(records.warning(event.message)))

    def end(self) -> None:
        write_out(json_line(records.end(self._tally)))


def make_answers(options: OutputOptions) -> Answers:
    """The form that the options ask for; text streams on a terminal."""
    if options.json_lines:
        return JsonEvents()
    if options.json:
        return JsonAnswers()
    return StreamedAnswers() if sys.stdout.isatty() and not options.no_stream else Answers()
