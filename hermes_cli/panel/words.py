"""Numbers, times and names as the panel writes them."""

from __future__ import annotations

import math

from hermes_cli.clock import clock
from hermes_cli.panel.glyphs import Glyphs
from hermes_cli.panel.state import PanelState
from hermes_cli.terminal import clean

_GIB = 2**30


def number(value: float | None, glyphs: Glyphs) -> str:
    """`31 536`: a whole number, rounded down."""
    return glyphs.unknown if value is None else f"{math.floor(value):,}".replace(",", glyphs.thousands)


def between(ends: tuple[float, float] | None, glyphs: Glyphs) -> str:
    """`14-1 231`, or one number where both ends are the same."""
    if ends is None:
        return glyphs.unknown
    return glyphs.to.join(dict.fromkeys(number(end, glyphs) for end in ends))


def milliseconds(ms: float | None, glyphs: Glyphs) -> str:
    """`1.2 ms`, `12 ms`, `12.0 s`: about three digits."""
    if ms is None:
        return glyphs.unknown
    return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms" if ms < 10_000 else f"{ms / 1000:.1f} s"


def percent(share: float | None, glyphs: Glyphs) -> str:
    """`6.2 %`."""
    return glyphs.unknown if share is None else f"{100 * share:.1f} %"


def per_second(fps: float | None) -> str | None:
    """`12.3 frames/s`."""
    return None if fps is None else f"{fps:.1f} frames/s"


def counted(count: int, noun: str, glyphs: Glyphs) -> str:
    """`1 frame`, `1 204 frames`."""
    return f"{number(count, glyphs)} {noun}{'' if count == 1 else 's'}"


def seconds(length_s: float | None) -> str | None:
    """`0.3 s`."""
    return None if length_s is None else f"{length_s:.1f} s"


def moment(time_s: float | None, glyphs: Glyphs) -> str:
    """`00:02:40`."""
    return glyphs.unknown if time_s is None else clock(time_s)


def gpu_memory(state: PanelState) -> str | None:
    """`19.2 of 23.6 GiB`."""
    used, total = state.vitals.gpu_used_bytes, state.vitals.gpu_total_bytes
    if used is None:
        return None
    return f"{used / _GIB:.1f} GiB" if total is None else f"{used / _GIB:.1f} of {total / _GIB:.1f} GiB"


def held(tokens: tuple[int, int] | None, state: PanelState, glyphs: Glyphs) -> str:
    """`3 904 of 4 000`; without a budget only what is held."""
    budget = state.setting.goal.budget
    return (
        between(tokens, glyphs)
        if budget is None or tokens is None
        else f"{between(tokens, glyphs)} of {number(budget, glyphs)}"
    )


def playhead(state: PanelState) -> str:
    """`00:03:12 / 00:24:25 (13%) 1.0x`, as far as length and speed are known; `fast` is as fast as frames can be read."""
    goal, speed = state.setting.goal, state.vitals.speed
    facts = [_now(state)]
    if goal.stop_s is not None:
        facts.append(f"/ {clock(goal.stop_s)}")
    if (share := goal.share(state.tally)) is not None:
        facts.append(f"({share:.0%})")
    if speed is not None:
        facts.append("fast" if math.isinf(speed) else f"{speed:.1f}x")
    return " ".join(facts)


def short_clock(state: PanelState) -> str:
    """`00:03:12 (13%)`."""
    share = state.setting.goal.share(state.tally)
    return _now(state) if share is None else f"{_now(state)} ({share:.0%})"


def _now(state: PanelState) -> str:
    return clock(state.setting.goal.start_s if state.tally.at is None else state.tally.at)


def condition(state: PanelState, glyphs: Glyphs) -> str:
    """What source and model are doing: `playing`, `stalled 4 s`, `live · answering`."""
    owner = state.vitals.condition
    source = _of_source(state) if owner is None or state.ended else name(owner, glyphs)
    return f"{source} {glyphs.between} answering" if state.answering else source


def _of_source(state: PanelState) -> str:
    if state.ended:
        return "ended"
    pulse = state.pulse
    if pulse is None or pulse.state == "playing":
        return "playing" if state.tally.frames else "waiting for the first frame"
    if pulse.state == "stalled" and pulse.silent_s is not None:
        return f"stalled {pulse.silent_s:.0f} s"
    if pulse.state == "reconnecting":
        return f"reconnecting {pulse.attempt}" + ("" if pulse.attempts is None else f"/{pulse.attempts}")
    return pulse.state


def name(text: str, glyphs: Glyphs) -> str:
    """Text from elsewhere in one line: nothing that steers a terminal, turns the direction of writing or has no glyph."""
    printable = "".join(char if char.isprintable() else " " for char in clean(text))
    return " ".join(printable.split()).encode(glyphs.encoding, "replace").decode(glyphs.encoding)
