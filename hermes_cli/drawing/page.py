"""A memory map as a page for a browser, which also shows the pictures and which tokens of them are left. It needs nothing
but itself, and may fetch nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from hermes_cli.clock import clock
from hermes_cli.drawing.figure import LEFT, MAP_WIDTH, TOP, Figure, svg
from hermes_cli.drawing.sheet import Sheet, holding

_MOST_MOMENTS = 60
_TEMPLATE = Path(__file__).with_name("page.html")


def chosen_pictures(sheet: Sheet) -> list[int]:
    """Which pictures of the map the page shows: all, or so many evenly from first to last."""
    pictures = len(sheet.memory.pictures.frames)
    return [round(place) for place in np.linspace(0, pictures - 1, min(pictures, _MOST_MOMENTS)).tolist()]


def times_s(sheet: Sheet) -> list[float]:
    """When the chosen pictures begin."""
    memory = sheet.memory
    times: list[float] = memory.frame_times_s[memory.pictures.frames[chosen_pictures(sheet)]].tolist()
    return times


def page(sheet: Sheet, jpegs: Sequence[bytes] = ()) -> str:
    """The page.

    Args:
        jpegs: the frames at `times_s`; none to do without.
    """
    figure = Figure(sheet)
    data = {  # numbers and our own words: nothing in it could end a script
        "layers": [
            f"{number} {layer.role.value}: {holding(sheet.memory, range(number, number + 1))}"
            for number, layer in enumerate(sheet.memory.layers)
        ],
        "moments": _moments(sheet, jpegs),
        "map": {"left": LEFT, "top": TOP, "width": MAP_WIDTH, "height": figure.bottom - TOP},
        "start": sheet.memory.start_s,
        "end": sheet.memory.end_s,
    }
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(sheet.heading), map=svg(figure), data=json.dumps(data, allow_nan=False)
    )


def _moments(sheet: Sheet, jpegs: Sequence[bytes]) -> list[dict[str, Any]]:
    pictures = sheet.memory.pictures
    indices = [(layer, pictures.indices(layer)) for layer in sheet.memory.layers]
    moments = []
    for place, (picture, time_s) in enumerate(zip(chosen_pictures(sheet), times_s(sheet), strict=True)):
        columns = int(pictures.columns[picture])
        kept = [layer.place[1:, index == picture] for layer, index in indices]  # (2, tokens) each
        jpeg = base64.b64encode(jpegs[place]).decode() if jpegs else ""
        moments.append(
            {
                "time": clock(time_s),
                "seconds": time_s,
                "rows": int(pictures.rows[picture]),
                "columns": columns,
                "jpeg": f"data:image/jpeg;base64,{jpeg}" if jpeg else None,
                "kept": [(row * columns + column).tolist() for row, column in kept],
            }
        )
    return moments
