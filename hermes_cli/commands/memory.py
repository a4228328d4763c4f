"""`hermes memory`: what the memory of a session still holds, layer by layer, moment by moment."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from hermes.errors import HermesError, UsageError
from hermes.sources import open_source
from hermes.sources.opening import printable
from hermes_cli.drawing.figure import Figure, png, svg
from hermes_cli.drawing.page import page, times_s
from hermes_cli.drawing.sheet import Sheet, spans
from hermes_cli.drawing.stills import stills
from hermes_cli.drawing.text import MapText
from hermes_cli.mapping import sheet_of_session
from hermes_cli.options import OutputOptions, SessionOption
from hermes_cli.recall import find_session
from hermes_cli.screen import Screen
from hermes_cli.terminal import json_line, write_out
from hermes_cli.writing import open_bytes

if TYPE_CHECKING:
    from hermes.sessions import Session

_SUFFIXES = (".png", ".svg", ".html")
_JSON_BINS = 100

SourceOption = Annotated[str | None, typer.Option("--source", metavar="SRC", help="The last session of this source.")]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="The newest memory that was saved at or before it; -30s is before the last one.",
        show_default="the last one",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE.png|svg|html",
        help="Write a picture, or a page that also shows which tokens of each frame are left.",
        show_default="text on standard output",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write one JSON object.")]
Ascii = Annotated[bool, typer.Option("--ascii", help="Characters instead of colours, as NO_COLOR and pipes have them.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")]


def memory(
    session: SessionOption = None,
    source: SourceOption = None,
    at: At = None,
    output: Output = None,
    json: AsJson = False,
    ascii_only: Ascii = False,
    force: Force = False,
) -> None:
    """Show what a memory still holds: layers down, time across, and of each moment the share of its tokens that is left.

    It is the memory of a session, the last one by default, as it was saved; frames that came later are not in it.
    """
    suffix = output.suffix.lower() if output else ""
    if output and suffix not in _SUFFIXES:
        raise UsageError(f"no picture is called {printable(output.name)}", f"end its name in {', '.join(_SUFFIXES)}")
    if output and json:
        raise UsageError("--json and --output exclude each other", "--json writes to standard output")
    found = find_session(session, source)
    sheet = sheet_of_session(found, at)
    if output:
        drawn = _drawn(suffix, found, sheet)
        with open_bytes(output, force) as file:
            file.write(drawn)
        _screen().note(f"{printable(str(output))}: {sheet.heading}, {sheet.settings}")
    else:
        write_out(json_line(_record(found, sheet)) if json else _text(sheet, ascii_only))


def _drawn(suffix: str, session: Session, sheet: Sheet) -> bytes:
    if suffix == ".png":
        return png(Figure(sheet))
    text = svg(Figure(sheet)) if suffix == ".svg" else page(sheet, _stills(session, sheet))
    return text.encode("utf-8", "backslashreplace")


def _stills(session: Session, sheet: Sheet) -> list[bytes]:
    """The frames of the page where the source is still there."""
    source = session.info.source
    change = "cannot be played again" if source.path is None else source.change()
    try:
        if source.path is None or change:
            raise UsageError(f"{printable(source.name)} {change}")
        return stills(open_source(source.path), times_s(sheet))
    except HermesError as error:
        _screen().warn(f"the page has no frames: {error}")
        return []


def _text(sheet: Sheet, ascii_only: bool) -> str:
    """The map as wide as the terminal; a pipe gets 80 columns and no colours."""
    console = Console(force_terminal=sys.stdout.isatty(), highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(MapText(sheet, ascii_only))
    return captured.get()


def _screen() -> Screen:
    return Screen(OutputOptions())


def _record(session: Session, sheet: Sheet) -> dict[str, Any]:
    """The map as numbers; a share is null where the stream has a gap."""
    mapped, kept = sheet.memory, session.info.settings
    bins = min(_JSON_BINS, len(mapped.pictures.frames))
    shares = mapped.shares(bins).tolist()
    answered = sheet.answered
    return {
        "type": "memory",
        "session": session.info.id,
        "source": session.info.source.name,
        "policy": kept["policy"],
        "budget": kept["memory"]["budget"],
        "saved_at": float(mapped.frame_times_s[-1]),
        "frames": len(mapped.frame_times_s),
        "pictures": len(mapped.pictures.frames),
        "visual_tokens_seen": int(mapped.pictures.tokens.sum()),
        "visual_tokens_counted": mapped.counted,
        "start": mapped.start_s,
        "end": mapped.end_s,
        "bins": bins,
        "layers": [
            {
                "layer": number,
                "role": layer.role.value,
                "visual_tokens": layer.tokens,
                "text_tokens": layer.text_tokens,
                "summary_tokens": layer.summary_tokens,
                "summarised": layer.folded,
                "shares": [None if math.isnan(share) else share for share in of_layer],
            }
            for number, (layer, of_layer) in enumerate(zip(mapped.layers, shares, strict=True))
        ],
        "oldest": {role.value: mapped.oldest_s(role) for role, _ in spans([layer.role for layer in mapped.layers])},
        "evidence": {
            "question": answered.question,
            "at": answered.at_s,
            "moments": [
                {"start": moment.start_s, "end": moment.end_s, "share": moment.share} for moment in answered.evidence
            ],
        }
        if answered
        else None,
    }
