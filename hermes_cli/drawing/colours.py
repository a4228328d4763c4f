"""The colours of a memory map: dark where a moment is forgotten, bright where all of it is held."""

from __future__ import annotations

import math

Colour = tuple[int, int, int]

GAP: Colour = (128, 128, 128)
"""No frame was on show."""

_STOPS: tuple[Colour, ...] = ((24, 26, 54), (46, 78, 140), (38, 150, 150), (140, 200, 90), (252, 230, 70))
"""Rising in lightness, so that it reads in grey too, and without red against green."""

SHADES = " .:-=+*#%@"
"""The same without colours."""

GAP_SHADE = "~"


def colour(share: float) -> Colour:
    """The colour of a share in [0, 1], or of NaN."""
    if math.isnan(share):
        return GAP
    place = share * (len(_STOPS) - 1)
    low = min(int(place), len(_STOPS) - 2)
    red, green, blue = (
        round(one + (place - low) * (other - one)) for one, other in zip(_STOPS[low], _STOPS[low + 1], strict=True)
    )
    return red, green, blue


def shade(share: float) -> str:
    """The character of a share: blank only for 0, the last one only for 1."""
    if math.isnan(share):
        return GAP_SHADE
    between = 1 + int(share * (len(SHADES) - 2))
    return SHADES[0] if share <= 0 else SHADES[-1] if share >= 1 else SHADES[between]


def in_hex(drawn: Colour) -> str:
    """`#181a36`."""
    return "#{:02x}{:02x}{:02x}".format(*drawn)
