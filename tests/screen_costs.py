"""`python -m tests.screen_costs`: what the live screen costs on this machine, as a Markdown table.

`hermes watch` plays the demo over and over in a terminal of its own. Nothing else should run meanwhile.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import tempfile
import time
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from tests.terminal import DEADLINE_S, Terminal

DEMO = Path("assets/demo.mp4").resolve()
DEMO_S, CHUNK_FRAMES = 75, 16
SHORT, LONG = 30, 400  # how often the demo is shown: to time it, and for as long as somebody types
WATCH = ("-m", "tiny", "--budget", "96", "--no-save")
IDLE_S = 10.0
RUNS, KEYS, QUESTIONS = 5, 50, 30
KEY = "~"  # nothing else on the screen has it
HALF_S = SHORT * DEMO_S // 2
HALFWAY = "Did a pink cross appear?"
YES_OR_NO = rb"(?:Yes|No)\b"


class Stopwatch(Terminal):
    """A terminal with room for the whole panel, of which only bytes are read: that hardly costs the machine anything."""

    def __init__(self, *arguments: str | Path) -> None:
        super().__init__(*arguments, columns=100, rows=46)

    def __enter__(self) -> Stopwatch:
        return self

    def until(self, pattern: bytes) -> float:
        """Read until what has come since the last call matches; returns the moment."""
        deadline_s, begin = time.monotonic() + DEADLINE_S, len(self.written)
        while not re.search(pattern, self.written[begin:]):
            assert time.monotonic() < deadline_s, self.written[begin:]
            self._read(0.2)
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Only read for so long."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self._read(left_s)

    def press(self, text: str) -> float:
        """Type; returns the moment."""
        pressed_s = time.monotonic()
        self.send(text)
        return pressed_s

    def cpu_s(self) -> float:
        """Seconds of CPUs that the program has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _show(self, piece: bytes) -> None:
        pass


def film(folder: Path, times: int) -> Path:
    """A folder with the demo so often, which plays as one film."""
    folder.mkdir()
    for number in range(times):
        (folder / f"{number:04}.mp4").symlink_to(DEMO)
    return folder


@dataclass(frozen=True)
class Playing:
    """Seconds that the second half of a film took: on the wall, and of CPUs."""

    wall_s: float
    cpu_s: float


def played(path: Path, screen: tuple[str, ...], question: str) -> Playing:
    """Play a film as fast as it can be taken in, and time it from the answer at its middle to its end.

    Args:
        screen: the options of what is shown.
        question: the option that asks at the middle, which says whether there is a prompt.
    """
    with Stopwatch("watch", path, *WATCH, *screen, question, f"{HALF_S}s {HALFWAY}") as terminal:
        begin_s, begin_cpu_s = terminal.until(YES_OR_NO), terminal.cpu_s()
        return Playing(terminal.until(rb"visual tokens held") - begin_s, terminal.cpu_s() - begin_cpu_s)


def throughput(path: Path) -> tuple[dict[str, str], float]:
    """What prompt and panel add to playing; and seconds that a chunk takes with both. The ways take turns."""
    ways = {
        "neither": (("--progress", "none"), "--ask"),
        "prompt": (("--panel", "off"), "--every"),
        "both": ((), "--every"),
    }
    taken = [{way: played(path, *how) for way, how in ways.items()} for _ in range(RUNS)]
    runs = {way: [one[way] for one in taken] for way in ways}

    def added(way: str, than: str) -> str:
        wall, cpu = (
            changes([of(run) for run in runs[way]], [of(run) for run in runs[than]])
            for of in map(attrgetter, ("wall_s", "cpu_s"))
        )
        return f"{wall} of {min(run.wall_s for run in runs[than]):.2f} s; CPUs' time {cpu}"

    rows = {
        "the panel adds to playing": added("both", "prompt"),
        "prompt and panel add to playing": added("both", "neither"),
    }
    return rows, statistics.median(run.wall_s for run in runs["both"]) * CHUNK_FRAMES / HALF_S


def changes(these: list[float], those: list[float]) -> str:
    """How much more these are: the smallest and the median."""
    least, middle = (of(these) / of(those) - 1 for of in (min, statistics.median))
    return f"{least:+.1%} (medians {middle:+.1%})"


def drawn(*options: str) -> str:
    """The CPUs' time that drawing takes, of a film that is over."""
    with Stopwatch("watch", DEMO, *WATCH, *options) as terminal:
        terminal.until(rb"visual tokens held")
        terminal.pause(2.0)
        begin_cpu_s = terminal.cpu_s()
        terminal.pause(IDLE_S)
        return f"{(terminal.cpu_s() - begin_cpu_s) / IDLE_S:.1%} of a CPU"


def echoes(terminal: Stopwatch) -> list[float]:
    """Seconds from pressing a key to seeing it, each for a key of its own."""

    def press() -> float:
        pressed_s = terminal.press(KEY)
        taken_s = terminal.until(KEY.encode()) - pressed_s
        terminal.pause(0.1 + 0.003 * (pressed_s * 1000 % 97))  # at any moment of a chunk and of a refresh
        return taken_s

    taken = [press() for _ in range(KEYS)]
    terminal.send("\x03")  # an empty line again
    return taken


def answers(terminal: Stopwatch) -> list[float]:
    """Seconds from Enter to the first word of the answer."""

    def ask() -> float:
        terminal.send(HALFWAY)
        terminal.pause(0.5)
        pressed_s = terminal.press("\r")
        return terminal.until(YES_OR_NO) - pressed_s

    return [ask() for _ in range(QUESTIONS)]


def typed(path: Path, chunk_s: float) -> dict[str, str]:
    """How soon what is typed is seen and answered, while a film is taken in as fast as it can be."""
    with Stopwatch("watch", path, *WATCH) as terminal:
        terminal.until(rb">>> ")
        terminal.pause(1.0)
        shown, answered = echoes(terminal), answers(terminal)
    return {
        "from a key to its echo, while chunks are encoded": f"{spread(shown)}; {KEYS} keys",
        "from Enter to the answer's first word": f"{spread(answered)}; {QUESTIONS} questions",
        "the same, in chunks": f"{spread(answered, 1 / chunk_s, '')}, of {1000 * chunk_s:.0f} ms each",
    }


def spread(values: list[float], scale: float = 1000.0, unit: str = " ms") -> str:
    """Median and 95th percentile."""
    ordered = sorted(values)
    middle, high = statistics.median(ordered), ordered[math.ceil(0.95 * len(ordered)) - 1]
    return f"median {scale * middle:.3g}{unit}, p95 {scale * high:.3g}{unit}"


def main() -> None:
    """Measure everything, and print the table."""
    with tempfile.TemporaryDirectory() as made:
        os.environ["HERMES_STATE_DIR"] = made
        rows, chunk_s = throughput(film(Path(made, "short"), SHORT))
        rows |= {"drawing prompt and panel": drawn(), "drawing the prompt alone": drawn("--panel", "off")}
        rows |= typed(film(Path(made, "long"), LONG), chunk_s)
    print(f"{os.cpu_count()} CPUs, 1 thread of torch, load {os.getloadavg()[0]:.1f} at the end\n")
    print("| what | cost |\n|---|---|")
    for what, cost in rows.items():
        print(f"| {what} | {cost} |")


if __name__ == "__main__":
    main()
