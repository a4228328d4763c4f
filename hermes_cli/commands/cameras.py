"""`hermes cameras`: the cameras of this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from hermes.errors import SourceError
from hermes.sources.cameras import can_list_cameras, list_cameras, which_there_are
from hermes_cli.tables import rendered
from hermes_cli.terminal import clean, json_line, write_out

AsJson = Annotated[bool, typer.Option("--json", help="Write one JSON object a line.")]


def cameras(as_json: AsJson = False) -> None:
    """List the cameras of this machine; none is opened. Play one by its index, its device, or camera:NAME."""
    if not can_list_cameras():
        raise SourceError("the cameras of this system cannot be listed", which_there_are())
    found = list_cameras()
    if as_json:
        write_out("".join(json_line(asdict(camera)) for camera in found))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("index", "name", "device"):
        table.add_column(heading)
    for camera in found:
        table.add_row(str(camera.index), clean(camera.name), camera.device)
    write_out(rendered(table) if found else f"{which_there_are()}\n")
