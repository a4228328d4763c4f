"""`hermes ask`: one question about one moment of a video."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes.errors import UsageError
from hermes_cli.knobs import grouped
from hermes_cli.options import Settings, SourceArgument
from hermes_cli.questions import TimedQuestion, readable
from hermes_cli.terminal import piped_lines
from hermes_cli.viewing import viewing

Words = Annotated[list[str] | None, typer.Argument(metavar="QUESTION...", help="Piped standard input goes in front of it.")]
At = Annotated[
    str, typer.Option(metavar="TIME", help="The moment asked about; nothing after it is seen. -30s is before the end.")
]


@grouped
def ask(source: SourceArgument, settings: Settings, question: Words = None, at: At = "end") -> None:
    """Play a video up to a moment and answer one question there."""
    config = settings.memory.method.config()
    film = settings.playing.open(source)
    moment_s = film.moment(at)
    lines = piped_lines()  # may keep us waiting, so a mistake in the rest comes first
    text = " ".join((lines.read().strip() if lines else "", *(question or []))).strip()
    if not text:
        raise UsageError("there is no question", f'ask one: hermes ask {source} "What is happening now?"')
    moment = TimedQuestion(moment_s, readable(text))
    with viewing(film, config, settings) as asked:
        asked.play([moment], to_the_end=False)
        asked.finish()
