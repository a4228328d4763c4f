"""`hermes probe`: what a source is, without a model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from hermes.sources import Source, open_source
from hermes.timecode import format_time
from hermes_cli.knobs import grouped
from hermes_cli.options import ConnectingOptions, SourceArgument
from hermes_cli.tables import rendered
from hermes_cli.terminal import clean, json_line, write_out

AsJson = Annotated[bool, typer.Option("--json", help="Write one JSON object.")]


@grouped
def probe(source: SourceArgument, reaching: ConnectingOptions, as_json: AsJson = False) -> None:
    """Open a source, decode its first picture, and say what it is. Exits with 3 if that does not work."""
    opened = open_source(source, reaching.connecting())  # which decodes the first picture
    opened.stop()
    record = _record(opened)
    write_out(json_line(record) if as_json else _table(record))


def _record(source: Source) -> dict[str, Any]:
    info = asdict(source.info)
    return {
        "type": "probe",
        "source": info["name"],
        "live": info["is_live"],
        "codec": info["codec"],
        "width": info["width"],
        "height": info["height"],
        "rotation": info["rotation"],
        "mirrored": info["mirrored"],
        "fps": info["fps"],
        "duration": info["duration_s"],
        "first_frame": "ok",
    }


def _table(record: dict[str, Any]) -> str:
    table = Table(box=None, pad_edge=False, show_header=False)
    duration, fps = record["duration"], record["fps"]
    turned = f", turned by {record['rotation']} degrees" if record["rotation"] else ""
    mirrored = ", mirrored" if record["mirrored"] else ""
    rows = {
        "source": clean(record["source"]),
        "kind": "live" if record["live"] else "film",
        "codec": record["codec"],
        "size shown": f"{record['width']} x {record['height']}{turned}{mirrored}",
        "frame rate": "unknown" if fps is None else f"{fps:.6g} a second, as far as it says",
        "duration": "none" if record["live"] else "unknown" if duration is None else format_time(duration),
        "first frame": record["first_frame"],
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return rendered(table)
