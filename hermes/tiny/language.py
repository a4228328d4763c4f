"""How the world is put into words: names of sprites, scenes and places, and the fixed texts of the prompt."""

from __future__ import annotations

from hermes.tiny.world import COLORS, SHAPES, Scene

DOING = ("staying still", "moving left", "moving right", "moving up", "moving down")  # by motion
REGIONS = (
    ("top left", "top", "top right"),
    ("left", "center", "right"),
    ("bottom left", "bottom", "bottom right"),
)  # by row, column
REGION_EDGES = (0.39, 0.61)  # of the side, between the three rows or columns
REGION_MARGIN = 0.03  # a place closer than this to an edge has no name

SYSTEM_PREFIX = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"

Key = tuple[int, int]  # (color, shape)


def name(key: Key) -> str:
    """`red circle`."""
    return f"{COLORS[key[0]]} {SHAPES[key[1]]}"


def a(key: Key) -> str:
    """`a red circle`, `an orange star`."""
    return f"{'an' if COLORS[key[0]] == 'orange' else 'a'} {name(key)}"


def the(key: Key) -> str:
    """`the red circle`."""
    return f"the {name(key)}"


def listing(scene: Scene) -> str:
    """`a red circle and a blue square`."""
    return " and ".join(a(sprite.key) for sprite in scene.sprites)


def sentence(text: str) -> str:
    """The text with a capital first letter and a full stop."""
    return text[0].upper() + text[1:] + "."


def region(x: float, y: float) -> str | None:
    """The name of the place (x, y), both in [0, 1] from the top left; None close to a border between two places."""
    row, column = _third(y), _third(x)
    return None if row is None or column is None else REGIONS[row][column]


def _third(value: float) -> int | None:
    if any(edge - REGION_MARGIN <= value < edge + REGION_MARGIN for edge in REGION_EDGES):
        return None
    return sum(value >= edge for edge in REGION_EDGES)
