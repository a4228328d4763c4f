"""Single keys of the prompt, which count while its line is empty; as in mpv where a line to type leaves room for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermes.sources.opening import printable
from hermes_cli.clock import clock
from hermes_cli.transport import Transport

_FASTER = 1.1
_JUMP_S = 5

SHORTCUTS = (
    ("space", "hold the video, or let it go on"),
    (".", "take one sampled frame, while the video is held"),
    ("left, right", f"{_JUMP_S} s back, {_JUMP_S} s on"),
    ("[, ]", "slower, faster"),
    ("?", "the list of commands"),
    ("Tab", "complete a command"),
    ("up, down", "earlier lines; Ctrl-R searches them"),
    ("Ctrl-C", "stop an answer, or clear the line; twice on an empty line: leave"),
    ("Ctrl-D", "leave"),
)
"""What the keys do, for the user."""


@dataclass(frozen=True)
class Key:
    """A key that means something while the line is empty.

    Attributes:
        name: as prompt_toolkit calls it.
        act: what it does; a text it returns is taken as if it had been entered.
        counts: whether it means that now; else it is typed.
    """

    name: str
    act: Callable[[], str | None]
    counts: Callable[[], bool] = lambda: True


def transport_keys(
    transport: Transport, position_s: Callable[[], float], live: str | None, say: Callable[[str], None]
) -> Sequence[Key]:
    """The keys that move a film.

    Args:
        position_s: where it is.
        live: the name of its source where that is live, so that it cannot be moved.
        say: writes a line above the prompt.
    """

    def hold() -> None:
        if transport.paused:
            transport.play()
        else:
            transport.pause()
            say(f"held at {clock(position_s())}; space goes on, . takes one frame")

    def pace(factor: float) -> None:
        if live is not None:
            say(f"{printable(live)} is live: it goes at its own speed")
            return
        transport.change_speed(factor)
        say("as fast as it can be read" if math.isinf(transport.speed) else f"speed {transport.speed:.2f}x")

    return (
        Key(" ", hold),
        Key(".", transport.step, lambda: transport.paused),
        Key("left", lambda: f"/seek -{_JUMP_S}s"),
        Key("right", lambda: f"/seek +{_JUMP_S}s"),
        Key("[", lambda: pace(1 / _FASTER)),
        Key("]", lambda: pace(_FASTER)),
        Key("?", lambda: "/?"),
    )
