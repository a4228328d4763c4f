"""The panel at the foot of the prompt, kept up to date by the events of the run."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from dataclasses import replace

from hermes.events import ChunkEncoded
from hermes_cli.options import OutputOptions
from hermes_cli.panel import ASCII, UNICODE, Color, PanelState, Setting, Vitals, render
from hermes_cli.player import Event, Player
from hermes_cli.tally import Tally

_CONVERSATION_ROWS = 6  # left above the panel


class Footer:
    """A reader of events that draws the panel.

    Args:
        player: what is watched.
        options: how large the panel is, and with which characters and colours.
    """

    def __init__(self, player: Player, options: OutputOptions) -> None:
        self._player, self._options = player, options
        self._state = PanelState(Setting.of(player, float("inf")))
        self._start_s = time.monotonic()
        self._changing = threading.Lock()  # a film and a question change the state, and never wait in there

    @property
    def ascii_only(self) -> bool:
        """Whether nothing but ASCII may be drawn."""
        return self._options.ascii or not (sys.stdout.encoding or "").lower().startswith("utf")

    def take(self, event: Event) -> None:
        """Take an event, from any thread."""
        with self._changing:
            self._state = self._state.after(event)

    @property
    def chunk(self) -> ChunkEncoded | None:
        """The chunk that it shows."""
        return self._state.chunk

    @property
    def ended(self) -> bool:
        """Whether the film is over, and has not been moved since."""
        return self._state.ended

    def moved(self, player: Player, tally: Tally, chunk: ChunkEncoded | None) -> None:
        """The film goes on elsewhere, or with another memory.

        Args:
            tally: says where, and what is held.
            chunk: the newest one of that memory, as far as it is known.
        """
        self._player = player
        setting = Setting.of(player, float("inf"))
        with self._changing:
            at = replace(self._state.tally, at=tally.at, waiting=tally.waiting, visual_tokens=tally.visual_tokens)
            self._state = replace(self._state, setting=setting, tally=at, chunk=chunk, ended=False)

    def settle(self) -> None:
        """No answer is under way any more, whether it was finished, cancelled or failed."""
        with self._changing:
            self._state = replace(self._state, answering=False)

    def text(self) -> str:
        """The panel for the terminal as it is now; empty where none is wanted or there is no room."""
        columns, rows = shutil.get_terminal_size()
        return self._drawn(columns, rows - _CONVERSATION_ROWS)

    def whole(self) -> str:
        """All that the panel can tell, for whoever asks for it."""
        return self._drawn(shutil.get_terminal_size().columns, 1000)

    def _drawn(self, columns: int, rows: int) -> str:
        vitals = replace(self._vitals(), elapsed_s=time.monotonic() - self._start_s)
        glyphs, color = ASCII if self.ascii_only else UNICODE, _color(self._options.color)
        return render(replace(self._state, vitals=vitals), columns, rows, self._options.panel, glyphs, color)

    def _vitals(self) -> Vitals:
        transport = self._player.transport
        condition = "paused" if transport.paused else self._state.vitals.condition
        used, total = self._gpu_bytes()
        return replace(
            self._state.vitals, condition=condition, speed=transport.speed, gpu_used_bytes=used, gpu_total_bytes=total
        )

    def _gpu_bytes(self) -> tuple[int, int] | tuple[None, None]:
        """Memory in use and in all, of the GPUs that hold the model."""
        from torch import cuda  # noqa: PLC0415 - torch is loaded by now

        gpus = {device for device in self._player.engine.model.layer_devices if device.type == "cuda"}
        rooms = [cuda.mem_get_info(gpu) for gpu in gpus]
        return (sum(total - free for free, total in rooms), sum(total for _, total in rooms)) if rooms else (None, None)


def _color(wanted: str) -> Color | None:
    if wanted == "never" or (wanted == "auto" and (os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb")):
        return None
    return "truecolor" if os.environ.get("COLORTERM") in ("truecolor", "24bit") else "256"
