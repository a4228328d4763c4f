"""Tables on standard output: as wide as a terminal, or as wide as they have to be."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

_PIPED_WIDTH = 10_000  # columns, so that nothing is cut or wrapped where no terminal sets a width


def rendered(table: Table) -> str:
    """A table as lines of text; into a file or a pipe they are plain, whatever the environment says of colours."""
    piped = not sys.stdout.isatty()
    console = Console(
        force_terminal=not piped, width=_PIPED_WIDTH if piped else None, highlight=False, markup=False, emoji=False
    )
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def short(number: int, units: tuple[str, str] = ("GB", "MB")) -> str:
    """`16.6 GB`, `4.2 MB`: a decimal unit, as sizes of models and files are given."""
    return f"{number / 1e9:.1f} {units[0]}" if number >= 1e8 else f"{number / 1e6:.1f} {units[1]}"
