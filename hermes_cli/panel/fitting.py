"""The panel in the size that fits: full, compact, one line, or nothing; never larger than the room it is given."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Literal

from rich.console import Console
from rich.text import Text

from hermes_cli.panel.glyphs import UNICODE, Glyphs
from hermes_cli.panel.layouts import Lines, compact, full, one_line
from hermes_cli.panel.state import PanelState

Mode = Literal["auto", "full", "compact", "off"]
Color = Literal["standard", "256", "truecolor"]

FULL_WIDTH, COMPACT_WIDTH, LINE_WIDTH = 80, 60, 20  # narrower, a panel is not worth reading
_AUTO_FULL = (100, 30)
_AUTO_COMPACT = (60, 12)
"""Width and height from which `auto` chooses a size: enough to leave room for a conversation."""


def render(
    state: PanelState, width: int, height: int, mode: Mode = "auto", glyphs: Glyphs = UNICODE, color: Color | None = None
) -> str:
    """The panel as at most `height` lines of at most `width` cells, without a newline at the end.

    Args:
        color: how colours are written; None writes no escape sequences at all.
    """
    file = io.StringIO()
    console = Console(file=file, width=max(width, 1), force_terminal=True, color_system=color, legacy_windows=False)
    console.print(panel(state, width, height, mode, glyphs), end="", no_wrap=True, overflow="ignore", crop=False)
    return file.getvalue()


def panel(state: PanelState, width: int, height: int, mode: Mode = "auto", glyphs: Glyphs = UNICODE) -> Text:
    """The panel as a text for rich, of the size that `render` says; empty where there is no room for a line.

    Args:
        mode: `auto` leaves room for a conversation; `full` and `compact` take what they need, where it is there.
    """
    if mode == "off" or width < LINE_WIDTH or height < 1:
        return Text()
    lines = next(lines for lines in _fitting(state, width, height, mode, glyphs) if len(lines) <= height)
    for line in lines:
        line.truncate(width, overflow=glyphs.cut)
        line.rstrip()
    return Text("\n").join(lines)


def _fitting(state: PanelState, width: int, height: int, mode: Mode, glyphs: Glyphs) -> Iterator[Lines]:
    """The sizes that come into question, the largest first."""
    if width >= FULL_WIDTH and (mode == "full" or (mode == "auto" and _roomy(width, height, _AUTO_FULL))):
        yield from full(state, width, glyphs)
    if width >= COMPACT_WIDTH and (mode != "auto" or _roomy(width, height, _AUTO_COMPACT)):
        yield compact(state, width, glyphs)
    yield one_line(state, width, glyphs)


def _roomy(width: int, height: int, least: tuple[int, int]) -> bool:
    return width >= least[0] and height >= least[1]
