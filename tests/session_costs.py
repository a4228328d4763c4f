"""`python -m tests.session_costs [FOLDER]`: what sessions cost on this machine, as a Markdown table.

FOLDER is on the disk to be measured; the folder for temporary files if left out. Nothing else should run meanwhile.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch

from hermes.cache import SlabCache, SlotShape
from hermes.config import MemoryConfig
from hermes.engine import EngineState, StreamEngine
from hermes.sessions import Checkpoint, SessionStore, rewind
from hermes.sessions.checkpoints import read_checkpoint, write_checkpoint
from hermes_cli.app import main as hermes
from hermes_cli.loading import load_checkpoint
from hermes_cli.options import ModelOptions

BUDGET = 96
WATCH = ("watch", "assets/demo.mp4", "-m", "tiny", "--budget", str(BUDGET))
RUNS, RESTORES = 11, 7
LAYERS, KV_HEADS, HEAD_DIM, TOKENS = 28, 4, 128, 4000  # of a model of 7 billion weights


@dataclass(frozen=True)
class Restoring:
    """How long it took to have a saved memory back.

    Attributes:
        nbytes: of the file.
        seconds: median.
        from_disk: share of the bytes that the system fetched from the disk; the others were still in the page cache.
    """

    nbytes: int
    seconds: float
    from_disk: float

    def __str__(self) -> str:
        share = min(self.from_disk, 1.0)
        return f"{1000 * self.seconds:.0f} ms ({self.nbytes / 1e6:.1f} MB, {share:.0%} of it from the disk)"


@dataclass(frozen=True)
class Watching:
    """Seconds that watching the demo took, from the loading of the model to the last save: on the wall, and of CPUs."""

    wall_s: float
    cpu_s: float


def watched(*options: str) -> Watching:
    """Watch the demo."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        code = hermes([*WATCH, *options])
        taken = Watching(time.perf_counter() - start_s, time.process_time() - start_cpu_s)
    assert code == 0
    return taken


def added() -> dict[str, str]:
    """What saving adds to watching; the ways take turns, so that a slow moment of the machine meets them all."""
    ways = {"saving": (), "saving and recording": ("--record",)}
    watched("--no-save")  # imports
    taken = [(watched("--no-save"), *(watched(*options) for options in ways.values())) for _ in range(RUNS)]
    without, *saving = map(fastest, zip(*taken, strict=True))
    return {
        f"{way} adds to watching the demo": f"{one.wall_s / without.wall_s - 1:+.1%} of {without.wall_s:.2f} s"
        f" ({one.cpu_s / without.cpu_s - 1:+.1%} of the CPUs' time); minima of {RUNS} runs"
        for way, one in zip(ways, saving, strict=True)
    }


def fastest(several: Iterable[Watching]) -> Watching:
    """The least of each."""
    runs = list(several)
    return Watching(min(run.wall_s for run in runs), min(run.cpu_s for run in runs))


def restored(checkpoint: Checkpoint, restore: Callable[[], None]) -> Restoring:
    """Time a restore, each after the page cache was asked to forget the file."""
    seconds, fetched = [], []
    for _ in range(RESTORES):
        with checkpoint.path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before, start_s = fetched_bytes(), time.perf_counter()
        restore()
        seconds.append(time.perf_counter() - start_s)
        fetched.append((fetched_bytes() - before) / checkpoint.nbytes)
    return Restoring(checkpoint.nbytes, statistics.median(seconds), statistics.median(fetched))


def fetched_bytes() -> int:
    """Bytes that the system has fetched from disks for this process."""
    numbers = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(numbers["read_bytes"])


def restored_embedded() -> Restoring:
    """The newest memory of the newest session, into an engine that is there."""
    session = SessionStore().latest()
    engine = StreamEngine(load_checkpoint(ModelOptions(model="tiny")), MemoryConfig(budget=BUDGET))
    return restored(session.checkpoints[-1], lambda: void(rewind(engine, session, session.checkpoints[-1].time_s)))


def restored_large(folder: Path, names: tuple[str, ...]) -> Restoring:
    """A memory of a large model, of which only some slabs are saved."""
    cache = SlabCache(SlotShape(KV_HEADS, HEAD_DIM, 1, torch.bfloat16), TOKENS, [torch.device("cpu")] * LAYERS)
    for layer in cache.layers:
        layer.length = layer.raw_length = TOKENS
        for slab in (layer.keys, layer.values, layer.raw_keys):
            slab.normal_()
    whole = cache.snapshot()
    saved = {name: tensor for name, tensor in whole.items() if name.split(".")[-1] in names}
    checkpoint = write_checkpoint(folder, EngineState("large", saved, (0.0,), (), None))
    return restored(checkpoint, lambda: cache.restore(whole | read_checkpoint(checkpoint).cache))


def void(_: object) -> None:
    """Nothing, of whatever was returned."""


def main(folder: Path) -> None:
    """Measure everything, and print the table."""
    os.environ["HERMES_STATE_DIR"] = str(folder)
    sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - for as long as the process lasts
    rows = added()
    rows["restoring a memory of the embedded model"] = str(restored_embedded())
    rows["restoring keys and values of 7B shapes"] = str(restored_large(folder, ("keys", "values")))
    rows["restoring a whole memory of 7B shapes, with the keys unrotated too"] = str(
        restored_large(folder, ("keys", "values", "raw_keys"))
    )
    print(f"{os.cpu_count()} CPUs, threads of torch: {torch.get_num_threads()}, load {os.getloadavg()[0]:.1f} at the end\n")
    print("| what | cost |\n|---|---|")
    for what, cost in rows.items():
        print(f"| {what} | {cost} |")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as made:
        main(Path(made))
