"""Curves with their intervals, as PNG or SVG."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.errors import UsageError
from hermes.sources.opening import printable
from hermes_cli.writing import expanded, open_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")

_INCHES = (7.0, 4.2)
_MARKERS = "osD^vP*X"
_DODGE = 0.06  # between curves over named places, so that intervals do not hide each other


@dataclass(frozen=True)
class Curve:
    """A line through points.

    Attributes:
        label: in the legend.
        x, y: of each point; NaN in `y` leaves a gap.
        low, high: the ends of each point's interval; empty without intervals.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def check_drawable(path: Path, force: bool = False) -> None:
    """Refuse before long work what `draw` would refuse after it.

    Raises:
        UsageError: matplotlib is not installed, the name has no suffix of SUFFIXES, its folder is not there, or the file is
            there and `force` is not given.
    """
    name = printable(str(path))
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"no picture is called {name}", f"end its name in {', '.join(SUFFIXES)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("pictures of curves need matplotlib", "pip install matplotlib")
    if expanded(path).exists() and not force:
        raise UsageError(f"{name} is there already", "use --force to overwrite it, or another name")
    if not expanded(path).parent.is_dir():
        raise UsageError(f"cannot write {name}: it has no folder", "check its folder")


def draw(
    path: Path,
    curves: Sequence[Curve],
    x_label: str,
    y_label: str,
    *,
    title: str = "",
    places: Sequence[str] = (),
    log_x: bool = False,
    y_range: tuple[float, float] | None = None,
    force: bool = False,
) -> None:
    """Draw curves into a file.

    Args:
        path: its suffix says whether it becomes PNG or SVG.
        places: names of x = 0, 1, 2, ... where x is no number; the curves are then set a little apart.
        log_x: x on a logarithmic scale to the base 2.
        y_range: of the axis; as the curves need it when None.

    Raises:
        UsageError: as `check_drawable`.
        OSError: the disk is full.
    """
    check_drawable(path, force)
    import matplotlib as mpl  # noqa: PLC0415 - an optional package
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional package

    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.subplots()
    for number, curve in enumerate(curves):
        shift = _DODGE * (number - (len(curves) - 1) / 2) if places else 0.0
        _draw_curve(axes, curve, shift, _MARKERS[number % len(_MARKERS)])
    axes.set(xlabel=x_label, ylabel=y_label, title=title)
    if places:
        axes.set_xticks(range(len(places)), places)
    if log_x:
        axes.set_xscale("log", base=2)
    if y_range:
        axes.set_ylim(*y_range)
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend()
    kind = path.suffix.lower().removeprefix(".")
    with mpl.rc_context({"svg.hashsalt": "hermes"}), open_bytes(path, force) as file:  # the same picture, the same bytes
        figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def _draw_curve(axes: Axes, curve: Curve, shift: float, marker: str) -> None:
    """One curve with its intervals, so far to the right of where it is."""
    ends = zip(curve.y, curve.low, curve.high, strict=True) if curve.low else ()
    below_above = [(max(0.0, y - low), max(0.0, high - y)) for y, low, high in ends]  # an end at y may be rounded past it
    errors = list(zip(*below_above, strict=True)) or None
    x = [value + shift for value in curve.x]
    axes.errorbar(x, curve.y, errors, label=curve.label, marker=marker, markersize=5, capsize=3, linewidth=1.4)
