"""A memory map as rectangles and text, drawn as SVG or PNG."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby

from hermes.config import Role
from hermes_cli.clock import clock
from hermes_cli.drawing.colours import GAP, Colour, colour, in_hex
from hermes_cli.drawing.sheet import MEASURE, Sheet, holding, spans, ticks

WIDTH = 880  # pixels, as all lengths here
LEFT, TOP, MAP_WIDTH = 108, 66, 620

_MAP_HEIGHT = 420  # at most, unless rows would become thinner than the least
_ROW_HEIGHTS = (6.0, 18.0)
_MARGIN, _LINE, _TEXT = 12, 17, 12
_MOST_BINS = 155
_SCALE = 2  # of a PNG

_INK: Colour = (34, 34, 40)
_FAINT: Colour = (110, 110, 120)
_PAPER: Colour = (255, 255, 255)
_MARK: Colour = (214, 60, 40)
_ROLES: dict[Role, Colour] = {
    Role.SHALLOW: (120, 170, 230),
    Role.MIDDLE: (170, 140, 220),
    Role.DEEP: (235, 150, 90),
}


@dataclass(frozen=True)
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    colour: Colour


@dataclass(frozen=True)
class Words:
    """A line of text on a baseline at y, which begins at x, or ends there."""

    x: float
    y: float
    text: str
    colour: Colour = _INK
    bold: bool = False
    ends: bool = False


Shape = Box | Words


@dataclass(frozen=True, eq=False)
class Figure:
    """A sheet laid out. The map itself lies at (LEFT, TOP) and is MAP_WIDTH wide."""

    sheet: Sheet

    @property
    def row_height(self) -> float:
        """Of a layer."""
        least, most = _ROW_HEIGHTS
        return min(most, max(least, _MAP_HEIGHT / len(self.sheet.memory.layers)))

    @property
    def bottom(self) -> float:
        """Where the map ends."""
        return TOP + self.row_height * len(self.sheet.memory.layers)

    @property
    def height(self) -> float:
        """Of the whole figure."""
        return self.bottom + 3 * _LINE + _LINE * (1 + len(self.sheet.notes)) + _MARGIN

    def shapes(self) -> Iterator[Shape]:
        """Everything, what lies below first."""
        yield Box(0, 0, WIDTH, self.height, _PAPER)
        yield Words(_MARGIN, 24, self.sheet.heading, bold=True)
        yield Words(_MARGIN, 24 + _LINE, self.sheet.settings, _FAINT)
        yield from self._rows()
        yield from self._roles()
        yield from self._evidence()
        yield from self._axis()
        yield from self._legend()

    def _rows(self) -> Iterator[Shape]:
        """Each box goes on beneath those to its right and below: where two only met, the paper could show between them."""
        memory = self.sheet.memory
        bins = min(_MOST_BINS, len(memory.pictures.frames))
        width = MAP_WIDTH / bins
        for layer, shares in enumerate(memory.shares(bins).tolist()):
            y = TOP + layer * self.row_height
            for drawn, run in groupby(range(bins), key=lambda part, shares=shares: colour(shares[part])):  # type: ignore[misc]
                left = LEFT + next(run) * width
                yield Box(left, y, LEFT + MAP_WIDTH - left, self.bottom - y, drawn)

    def _roles(self) -> Iterator[Shape]:
        """Beside the map: the role on the left with its layers, on the right what they hold."""
        memory = self.sheet.memory
        every = max(1, round(_TEXT / self.row_height))
        for role, layers in spans([layer.role for layer in memory.layers]):
            y, height = TOP + layers[0] * self.row_height, len(layers) * self.row_height
            yield Box(LEFT - 8, y + 0.5, 5, height - 1, _ROLES[role])
            yield Words(_MARGIN, y + height / 2 + 4, role.value)
            for layer in layers[::every]:
                middle = TOP + (layer + 0.5) * self.row_height + 4
                yield Words(LEFT - 14, middle, str(layer), _FAINT, ends=True)
                yield Words(LEFT + MAP_WIDTH + 8, middle, holding(memory, range(layer, layer + 1)), _FAINT)

    def _evidence(self) -> Iterator[Shape]:
        if self.sheet.answered is None:
            return
        memory, y = self.sheet.memory, self.bottom + 4
        yield Words(LEFT - 14, y + 8, "evidence", _MARK, ends=True)
        for moment in self.sheet.answered.evidence:
            left, right = (self._x(min(second, memory.end_s)) for second in (moment.start_s, moment.end_s))
            if moment.start_s < memory.end_s:
                yield Box(left, y, max(3.0, right - left), 6, _MARK)

    def _axis(self) -> Iterator[Shape]:
        memory, y = self.sheet.memory, self.bottom + 16
        for tick_s in ticks(memory.start_s, memory.end_s, 8):
            yield Box(self._x(tick_s), y, 1, 5, _FAINT)
            yield Words(self._x(tick_s) + 4, y + 11, clock(tick_s), _FAINT)

    def _legend(self) -> Iterator[Shape]:
        y = self.bottom + 16 + 2 * _LINE + 4
        yield Words(_MARGIN, y, f"{MEASURE}:")
        x = _MARGIN + 250
        yield Words(x, y, "none", _FAINT)
        for step in range(24):
            yield Box(x + 34 + 5 * step, y - 10, 5, 12, colour(step / 23))
        yield Words(x + 160, y, "all", _FAINT)
        if self.sheet.memory.has_gap:
            yield Box(x + 200, y - 10, 12, 12, GAP)
            yield Words(x + 218, y, "no frames", _FAINT)
        for line, note in enumerate(self.sheet.notes, 1):
            yield Words(_MARGIN, y + line * _LINE, note, _FAINT)

    def _x(self, time_s: float) -> float:
        memory = self.sheet.memory
        return LEFT + (time_s - memory.start_s) / (memory.end_s - memory.start_s) * MAP_WIDTH


def svg(figure: Figure) -> str:
    """The figure as a document of its own, which can also stand in a page."""
    size = f'width="{WIDTH}" height="{figure.height:g}" viewBox="0 0 {WIDTH} {figure.height:g}"'
    font = f'font-family="sans-serif" font-size="{_TEXT}"'
    shapes = "\n".join(_element(shape) for shape in figure.shapes())
    title = f"<title>{escape(figure.sheet.heading)}</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font} shape-rendering="crispEdges">{title}\n{shapes}\n</svg>\n'


def _element(shape: Shape) -> str:
    fill = f'fill="{in_hex(shape.colour)}"'
    if isinstance(shape, Box):
        place = f'x="{shape.x:.5g}" y="{shape.y:.5g}" width="{shape.width:.5g}" height="{shape.height:.5g}"'
        return f"<rect {place} {fill}/>"
    style = (' font-weight="bold"' if shape.bold else "") + (' text-anchor="end"' if shape.ends else "")
    return f'<text x="{shape.x:.5g}" y="{shape.y:.5g}" {fill}{style}>{escape(shape.text)}</text>'


def png(figure: Figure) -> bytes:
    """The figure as a picture, twice as fine as the SVG is on a plain screen."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - it has no part in --help

    image = Image.new("RGB", (WIDTH * _SCALE, round(figure.height * _SCALE)), _PAPER)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(_TEXT * _SCALE)
    for shape in figure.shapes():
        x, y = shape.x * _SCALE, shape.y * _SCALE
        if isinstance(shape, Box):
            corner = round(x + shape.width * _SCALE) - 1, round(y + shape.height * _SCALE) - 1
            draw.rectangle((round(x), round(y), *corner), shape.colour)
        else:
            weight = 0.6 if shape.bold else 0
            draw.text((x, y), shape.text, shape.colour, font, anchor="rs" if shape.ends else "ls", stroke_width=weight)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()
