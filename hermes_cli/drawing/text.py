"""A memory map in a terminal: coloured cells, or characters where there are no colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

from hermes_cli.clock import clock
from hermes_cli.drawing.colours import GAP_SHADE, SHADES, colour, shade
from hermes_cli.drawing.sheet import MEASURE, Sheet, grouped_layers, holding, named, ticks

_LEAST_COLUMNS = 8
_TICK_COLUMNS = 12  # a tick, a time, and some room
_SWATCHES = 16
_EVIDENCE = "evidence"


@dataclass(frozen=True, eq=False)
class MapText:
    """A sheet as lines of text, which rich can print: as wide as there is room, and no higher than the terminal with a
    prompt below.

    Attributes:
        ascii_only: draw with characters also where there are colours.
    """

    sheet: Sheet
    ascii_only: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        coloured = console.color_system in ("truecolor", "256") and not console.no_color and not self.ascii_only
        layout = _Layout(self.sheet, coloured, console, options.max_width)
        yield from layout.lines((options.height or console.height) - 1)


@dataclass(frozen=True, eq=False)
class _Layout:
    sheet: Sheet
    coloured: bool
    console: Console
    width: int

    def lines(self, height: int) -> list[Text]:
        above = self._wrapped(self.sheet.heading, self.sheet.settings)
        below = [*self._legend(), *self._wrapped(*self.sheet.notes)]
        roles = [layer.role for layer in self.sheet.memory.layers]
        room = height - len(above) - len(below) - 1 - bool(self.sheet.answered)
        groups = grouped_layers(roles, room)
        if len(groups) < len(roles):
            groups = grouped_layers(roles, room - 1)
            most = max(len(group) for group in groups)
            below += self._wrapped(f"a row is the mean of up to {most} neighbouring layers of one role")
        return [*above, *self._map(groups), *below]

    def _map(self, groups: list[range]) -> list[Text]:
        """A row for each group, the evidence, and the time."""
        memory, marks = self.sheet.memory, self.sheet.answered is not None
        names = [f"{memory.layers[group[0]].role.value} {named(group)}" for group in groups]
        held = [holding(memory, group) for group in groups]
        left = max(map(len, [*names, _EVIDENCE] if marks else names))
        columns = max(_LEAST_COLUMNS, self.width - left - len(" ||") - 1 - max(map(len, held)))
        shares = memory.shares(columns)
        rows = [
            self._row(f"{name:>{left}}", shares[list(group)].mean(axis=0), text)
            for name, group, text in zip(names, groups, held, strict=True)
        ]
        if marks:
            line = "".join("^" if mark else " " for mark in self.sheet.marked(columns))
            rows.append(Text(f"{_EVIDENCE:>{left}} |{line}|"))
        return [*rows, Text(" " * (left + len(" |")) + self._axis(columns))]

    def _row(self, name: str, shares: NDArray[np.float64], held: str) -> Text:
        return Text.assemble(f"{name} |", *map(self._cell, shares.tolist()), f"| {held}")

    def _cell(self, share: float) -> tuple[str, Style | str]:
        return (" ", Style(bgcolor=Color.from_rgb(*colour(share)))) if self.coloured else (shade(share), "")

    def _axis(self, columns: int) -> str:
        """A bar below the column where the time that follows it begins."""
        start_s, end_s = self.sheet.memory.start_s, self.sheet.memory.end_s
        axis = ""
        for tick_s in ticks(start_s, end_s, columns // _TICK_COLUMNS):
            column = int((tick_s - start_s) / (end_s - start_s) * columns + 1e-6)
            label = f"|{clock(tick_s)}"
            if column + len(label) <= columns:
                axis = axis.ljust(column) + label
        return axis

    def _legend(self) -> list[Text]:
        """On one line, or on two where the terminal is narrow."""
        steps = range(_SWATCHES)
        scale = [self._cell(step / (_SWATCHES - 1)) for step in steps] if self.coloured else [(f"[{SHADES}]", "")]
        gap = f", {GAP_SHADE} no frames" if self.sheet.memory.has_gap and not self.coloured else ""
        name, ramp = Text(f"{MEASURE}:"), Text.assemble("none ", *scale, f" all{gap}")
        whole = Text.assemble(name, " ", ramp)
        return [whole] if whole.cell_len <= self.width else [name, ramp]

    def _wrapped(self, *lines: str) -> list[Text]:
        parts = [part for line in lines for part in Text(line).wrap(self.console, self.width)]
        return [Text(part.plain.rstrip()) for part in parts]
