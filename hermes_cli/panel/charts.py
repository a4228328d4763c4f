"""The memory as a picture: a column of cells for every layer, and time as a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from rich.text import Text

from hermes.config import Role
from hermes_cli.panel.glyphs import Glyphs
from hermes_cli.panel.state import PanelState

ROLE_STYLES = {Role.SHALLOW: "cyan", Role.MIDDLE: "green", Role.DEEP: "magenta"}
ROLE_LETTERS = {Role.SHALLOW: "s", Role.MIDDLE: "m", Role.DEEP: "d"}
_WIDEST = 6  # cells of a column, the gap included


@dataclass(frozen=True)
class Column:
    """A layer, or neighbouring ones where there is not a cell for each.

    Attributes:
        role: of the first of them.
        filled: how much of the budget they hold, 0 to 1, on average.
        age: of the middle one of their tokens, as a share of the time played, 0 to 1, on average.
        summary: whether one of them holds a summary token.
    """

    role: Role
    filled: float
    age: float
    summary: bool


def columns(state: PanelState, most: int) -> list[Column]:
    """The layers in order, as at most that many columns; empty ones before the first chunk."""
    roles = state.setting.roles
    joined = -(-len(roles) // most)
    filled, ages, summaries = _filled(state), _ages(state), state.chunk.summary_tokens if state.chunk else ()
    return [
        Column(
            role=roles[first],
            filled=fmean(filled[first : first + joined]),
            age=fmean(ages[first : first + joined]),
            summary=any(summaries[first : first + joined]),
        )
        for first in range(0, len(roles), joined)
    ]


def _filled(state: PanelState) -> list[float]:
    tokens = state.chunk.visual_tokens if state.chunk else (0,) * len(state.setting.roles)
    whole = state.setting.goal.budget or max(*tokens, 1)
    return [min(1.0, held / whole) for held in tokens]


def _ages(state: PanelState) -> list[float]:
    chunk = state.chunk
    if chunk is None:
        return [0.0] * len(state.setting.roles)
    played_s = chunk.end_s - state.setting.goal.start_s
    return [0.0 if time_s is None or played_s <= 0 else (chunk.end_s - time_s) / played_s for time_s in chunk.median_s]


def chart(shown: Sequence[Column], height: Callable[[Column], float], room: int, rows: int, glyphs: Glyphs) -> list[Text]:
    """Columns of a height between 0 and 1, side by side, as `rows` lines of at most `room` cells."""
    steps = len(glyphs.levels) - 1
    levels = [_level(height(column), rows * steps) for column in shown]
    width = _column_width(len(shown), room)
    lines = []
    for row in reversed(range(rows)):
        cells = (glyphs.levels[min(max(level - row * steps, 0), steps)] for level in levels)
        lines.append(_line(shown, cells, width, fill=True))
    return lines


def _level(share: float, steps: int) -> int:
    """Something never looks like nothing."""
    return max(round(share * steps), 1) if share > 0 else 0


def letters(shown: Sequence[Column], room: int, glyphs: Glyphs) -> Text:
    """The line under a chart: the letter of each column's role, or the mark of a summary token."""
    marks = (glyphs.summary if column.summary else ROLE_LETTERS[column.role] for column in shown)
    return _line(shown, marks, _column_width(len(shown), room), fill=False)


def _column_width(count: int, room: int) -> int:
    return min(room // count, _WIDEST)


def _line(shown: Sequence[Column], marks: Iterable[str], width: int, fill: bool) -> Text:
    """One mark for each column, as wide as the column or in its middle."""
    line, bar = Text(), max(width - 1, 1)
    for role, run in groupby(zip(shown, marks, strict=True), key=lambda pair: pair[0].role):
        cells = (mark * bar if fill else mark.center(bar) for _, mark in run)
        line.append("".join(cell.ljust(width) for cell in cells), ROLE_STYLES[role])
    return line


def time_bar(share: float, width: int, glyphs: Glyphs) -> Text:
    """How much has been played."""
    played = round(share * width)
    return Text.assemble((glyphs.played * played, "bold"), (glyphs.unplayed * (width - played), "dim"))
