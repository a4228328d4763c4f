"""The memory as a table: what every layer holds now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hermes.config import Role
from hermes.errors import UsageError
from hermes_cli.clock import clock
from hermes_cli.player import Player

_HEADINGS = ("layer", "role", "tokens", "summary", "positions", "oldest", "median")


@dataclass(frozen=True)
class _Layer:
    """What a layer holds behind the text in front of the video.

    Attributes:
        positions: the smallest and the largest; None where it holds nothing.
        oldest_s, median_s: times of the frames of the first and of the middle token in the order of frames; None where
            there are only summary tokens, or none.
    """

    role: Role
    tokens: int
    summaries: int
    positions: tuple[float, float] | None
    oldest_s: float | None
    median_s: float | None


def contents_table(player: Player, written: str = "") -> str:
    """A line for each layer, or for the one of `layer N`; plain text of less than 80 columns.

    Raises:
        UsageError: there is no such layer.
    """
    wanted = _wanted(written, player.engine.model.layers)
    with player.turn():
        layers = [(number, _read(player, number)) for number in wanted]
    budget = player.engine.config.budget if player.engine.policy.bounded else None
    rows = [_HEADINGS, *(_row(number, layer, budget) for number, layer in layers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)


def _wanted(written: str, layers: int) -> Sequence[int]:
    if not written:
        return range(layers)
    named = re.fullmatch(r"layer\s+([0-9]{1,9})", written)
    if named is None or int(named[1]) >= layers:
        raise UsageError(
            f"there is no {written!r} in the memory", f"write /cache, or /cache layer N with N from 0 to {layers - 1}"
        )
    return [int(named[1])]


def _read(player: Player, number: int) -> _Layer:
    from hermes.cache import SUMMARY_ORIGIN  # noqa: PLC0415 - loads torch

    engine = player.engine
    layer = engine.cache.layers[number]
    held = slice(engine.prefix, layer.length)
    frames, positions = layer.place[0, held], layer.positions[:, held]
    seen = frames[frames >= 0].sort().values
    times_s = engine.frame_times_s
    return _Layer(
        role=engine.config.roles(engine.model.layers)[number],
        tokens=len(frames),
        summaries=int((frames == SUMMARY_ORIGIN).sum()),
        positions=(float(positions.min()), float(positions.max())) if len(frames) else None,
        oldest_s=times_s[int(seen[0])] if len(seen) else None,
        median_s=times_s[int(seen[(len(seen) - 1) // 2])] if len(seen) else None,
    )


def _row(number: int, layer: _Layer, budget: int | None) -> tuple[str, ...]:
    tokens = f"{layer.tokens}" if budget is None else f"{layer.tokens}/{budget}"
    positions = "-" if layer.positions is None else "-".join(f"{position:.0f}" for position in layer.positions)
    times = ("-" if time_s is None else clock(time_s) for time_s in (layer.oldest_s, layer.median_s))
    return f"{number}", layer.role.value, tokens, f"{layer.summaries}", positions, *times
