"""Tables on standard output: as wide as a terminal, or as wide as they have to be."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNBOUNDED = 10_000  # columns, so that nothing is cut or wrapped where no terminal sets a width


def rendered(table: Table, dispensable: Sequence[str] = ()) -> str:
    """A table as lines of text; into a file or a pipe they are plain, whatever the environment says of colours.

    Args:
        dispensable: headings of columns that are left out, one after another, while a terminal is too narrow for the rest.
    """
    width = Console().width if sys.stdout.isatty() else _UNBOUNDED
    for heading in dispensable:
        if max(map(_columns, _lines(table, _UNBOUNDED))) <= width:
            break
        table = _without(table, heading)
    return "".join(f"{line}\n" for line in _lines(table, width))


def _without(table: Table, heading: str) -> Table:
    """A new table, since one that has lost a column measures itself wrongly."""
    kept = [column for column in table.columns if column.header != heading]
    fresh = Table(box=table.box, pad_edge=table.pad_edge, header_style=table.header_style)
    for column in kept:
        fresh.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow)
    for cells in zip(*(column.cells for column in kept), strict=True):
        fresh.add_row(*cells)
    return fresh


def _lines(table: Table, width: int) -> list[str]:
    console = Console(force_terminal=sys.stdout.isatty(), width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def _columns(line: str) -> int:
    return Text.from_ansi(line.rstrip()).cell_len


def short(number: int, units: tuple[str, str] = ("GB", "MB")) -> str:
    """`16.6 GB`, `4.2 MB`: a decimal unit, as sizes of models and files are given."""
    return f"{number / 1e9:.1f} {units[0]}" if number >= 1e8 else f"{number / 1e6:.1f} {units[1]}"
