"""`hermes caption`: what happens in a video, said again and again, as subtitles or lines of JSON."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, TextIO

import typer

from hermes.errors import UsageError
from hermes.events import Answer
from hermes.sources.opening import printable
from hermes.timecode import format_time
from hermes_cli.answers import Answers
from hermes_cli.knobs import grouped
from hermes_cli.loading import load_player
from hermes_cli.options import Settings, SourceArgument
from hermes_cli.player import Asking, Player
from hermes_cli.questions import TimedQuestion
from hermes_cli.standing import StandingQuestion, interval_s
from hermes_cli.terminal import json_line
from hermes_cli.viewing import viewing
from hermes_cli.writing import open_text

QUESTION = "Describe the scene."

Interval = Annotated[str, typer.Option("--every", metavar="INTERVAL", help="How often.")]
Question = Annotated[str, typer.Option(metavar="TEXT", help="What is asked each time.")]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE.srt|vtt|jsonl|txt", help="Where to; its name tells the format."),
]
UntilChange = Annotated[bool, typer.Option("--until-change", help="Leave out a caption that says the same as the last.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")]

Writer = Callable[[int, float, float, str], str]
"""A caption as text: its number from 1, the seconds that it is about, what it says."""


@grouped
def caption(
    source: SourceArgument,
    output: Output,
    settings: Settings,
    every: Interval = "5s",
    question: Question = QUESTION,
    until_change: UntilChange = False,
    force: Force = False,
) -> None:
    """Write captions of a video into a file, one after every interval, each as soon as it is there.

    A caption is about the time since the one before it.
    """
    kind = output.suffix.lower()
    if kind not in WRITERS:
        raise UsageError(f"{printable(output.name)} has no known format", f"one of: {', '.join(WRITERS)}")
    standing = StandingQuestion(interval_s(every), question, until_change)
    config, sampling = settings.memory.method.config(), settings.answering.sampling()
    film = settings.playing.open(source)
    make_player = partial(load_player, film, config, sampling, settings)
    with (
        open_text(output, force) as file,
        viewing(lambda screen: _asking(make_player(screen), standing), settings.output) as shown,
    ):
        shown.answers = Captions(file, kind, film.start_s)
        shown.play([TimedQuestion(math.inf, question)])
        shown.finish()


def _asking(player: Player, standing: StandingQuestion) -> Player:
    return replace(player, standing=(standing,))


class Captions(Answers):
    """Writes each answer as a caption and flushes, so that nothing is lost and others can read along.

    Args:
        file: where to.
        kind: of the file, as in `WRITERS`.
        start_s: where the first caption begins.
    """

    def __init__(self, file: TextIO, kind: str, start_s: float) -> None:
        super().__init__()
        self._file, self._write, self._end_s, self._count = file, WRITERS[kind], start_s, 0
        self._put("WEBVTT\n\n" if kind == ".vtt" else "")

    def whole(self, asking: Asking, answered: Answer | None) -> None:
        start_s, self._end_s = self._end_s, max(self._end_s, asking.at_s)
        if self._end_s > start_s:
            self._count += 1
            self._put(self._write(self._count, start_s, self._end_s, " ".join(self.text.split()) or "-"))

    def _put(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


def _srt(number: int, start_s: float, end_s: float, text: str) -> str:
    times = f"{format_time(start_s)} --> {format_time(end_s)}".replace(".", ",")
    return f"{number}\n{times}\n{text.replace('-->', '->')}\n\n"


def _vtt(number: int, start_s: float, end_s: float, text: str) -> str:
    return f"{format_time(start_s)} --> {format_time(end_s)}\n{html.escape(text, quote=False)}\n\n"


def _jsonl(number: int, start_s: float, end_s: float, text: str) -> str:
    return json_line({"type": "caption", "start": start_s, "end": end_s, "text": text})


def _txt(number: int, start_s: float, end_s: float, text: str) -> str:
    return f"[{format_time(start_s)}] {text}\n"


WRITERS: dict[str, Writer] = {".srt": _srt, ".vtt": _vtt, ".jsonl": _jsonl, ".txt": _txt}
