"""The characters that the panel is drawn with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Glyphs:
    """One set of characters, each one cell wide but `becomes`.

    Attributes:
        levels: a cell that is empty, then fuller and fuller.
        played, unplayed: the two parts of the bar of time.
        summary: marks a layer that holds summary tokens.
        unknown: stands where a number is not known.
        between: separates facts in one line.
        to: between the ends of a range.
        becomes: from what was to what is.
        thousands: between groups of three digits.
        cut: how rich ends a line that was too long.
        encoding: what names are written in.
    """

    levels: str
    played: str
    unplayed: str
    summary: str
    unknown: str
    between: str
    to: str
    becomes: str
    thousands: str
    cut: Literal["ellipsis", "crop"]
    encoding: Literal["utf-8", "ascii"]


UNICODE = Glyphs(
    levels=" ▁▂▃▄▅▆▇█",
    played="━",
    unplayed="─",
    summary="◆",
    unknown="—",
    between="·",
    to="\N{EN DASH}",
    becomes="→",
    thousands="\N{THIN SPACE}",
    cut="ellipsis",
    encoding="utf-8",
)
ASCII = Glyphs(
    levels=" .:=#",
    played="=",
    unplayed="-",
    summary="*",
    unknown="-",
    between="|",
    to="-",
    becomes="->",
    thousands=",",
    cut="crop",
    encoding="ascii",
)
