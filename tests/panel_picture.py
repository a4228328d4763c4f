"""`python -m tests.panel_picture SVG`: play the demo video with the embedded model and draw the panel as README.md shows it.

The same at every run but for the times.
"""

from __future__ import annotations

import io
import math
import re
import sys
import time
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from rich.console import Console

from hermes.config import MemoryConfig, Sampling
from hermes.engine import StreamEngine
from hermes_cli.choosing import embedded
from hermes_cli.film import Film
from hermes_cli.loading import load_checkpoint
from hermes_cli.options import ModelOptions
from hermes_cli.panel import PanelState, Setting, Vitals, panel
from hermes_cli.player import Event, Player, Seen

VIDEO = "assets/demo.mp4"
UNTIL_S = 68.0
WIDTH, HEIGHT = 100, 40


def played() -> PanelState:
    """The panel's state when the demo is nearly over."""
    config = MemoryConfig(budget=96)
    engine = StreamEngine(load_checkpoint(ModelOptions(model="tiny", device="cpu")), config)
    player = Player(Film.open(VIDEO, 1.0, "start", "end"), engine, Sampling(), "hermes", embedded())
    state, began_s = PanelState(Setting.of(player, math.inf)), time.perf_counter()
    with closing(player.play([])) as events:
        for event in takewhile(_early, events):
            state = state.after(event)
    return replace(state, vitals=Vitals(speed=math.inf, elapsed_s=time.perf_counter() - began_s))


def _early(event: Event) -> bool:
    return not (isinstance(event, Seen) and event.time_s > UNTIL_S)


def picture(state: PanelState) -> str:
    """The panel as an SVG document that fetches no fonts."""
    console = Console(file=io.StringIO(), width=WIDTH, record=True, force_terminal=True, color_system="truecolor")
    console.print(panel(state, WIDTH, HEIGHT), no_wrap=True)
    svg = console.export_svg(title=f"hermes watch {VIDEO}", unique_id="panel")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.panel_picture SVG")
    Path(sys.argv[1]).write_text(picture(played()), encoding="utf-8")
