"""`python -m tests.make_memory_map`: draw assets/memory.svg, what is left of the demo under `hermes` and under `fifo`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hermes_cli.app import main
from hermes_cli.drawing.figure import WIDTH, Figure, svg
from hermes_cli.drawing.sheet import Sheet
from hermes_cli.mapping import sheet_of_session
from hermes_cli.recall import find_session

ROOT = Path(__file__).parent.parent
FILM = "assets/demo.mp4"
OPTIONS = ("-m", "tiny", "--budget", "96", "--quiet", "--ask", "01:03 What did you see first?")


def remembered(policy: str) -> Sheet:
    """What the demo leaves in a memory of that policy."""
    code = main(["watch", FILM, *OPTIONS, "--policy", policy, "--name", policy])
    assert code == 0
    return replace(sheet_of_session(find_session(policy), None), heading=f"{FILM} remembered by {policy}")


def stacked(figures: Sequence[Figure]) -> str:
    """One picture with the figures below one another."""
    height = sum(figure.height for figure in figures)
    tops = [sum(figure.height for figure in figures[:number]) for number in range(len(figures))]
    parts = "".join(svg(figure).replace("<svg ", f'<svg y="{top:g}" ', 1) for figure, top in zip(figures, tops, strict=True))
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}">\n{parts}</svg>\n'


if __name__ == "__main__":
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as state:
        os.environ["HERMES_STATE_DIR"] = state
        drawn = stacked([Figure(remembered(policy)) for policy in ("hermes", "fifo")])
    Path("assets/memory.svg").write_text(drawn, encoding="utf-8")
