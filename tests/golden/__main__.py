"""`python -m tests.golden DIR`: replay every recording of a folder; exit 1 when one is beyond tolerance."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.golden.llava import LlavaReplay
from tests.golden.qwen import QwenReplay
from tests.golden.recording import Differences, Recording
from tests.golden.steps import check_step, check_trajectory

CHECKS: dict[str, Callable[[Recording], Differences]] = {
    "s": check_step,
    "1d": check_step,
    "3d": check_step,
    "t": check_trajectory,
    "e2e": lambda recording: LlavaReplay(recording).run(),
    "q2e": lambda recording: QwenReplay(recording).run(),
}


def check(path: Path) -> Differences | None:
    """Replay one file; its kind is the start of its name (`h1d_*` is a step like `s1d_*`, `ht1d_*` is like `t1d_*`).

    Returns: None for a kind that has no replay.
    """
    kind = path.stem.removeprefix("h")
    kinds = [prefix for prefix in CHECKS if kind.startswith(prefix)]
    return CHECKS[max(kinds, key=len)](Recording(path)) if kinds else None


def main(folder: Path) -> int:
    """Check a folder, print a line a file and return the exit status."""
    results = {path: check(path) for path in sorted(folder.glob("*.npz"))}
    for path, differences in results.items():
        verdict = "skip" if differences is None else "ok" if differences.passed else "FAIL"
        print(f"{verdict:4} {path.stem:28} {differences or 'no adapter for this family of models'}")
    checked = [differences for differences in results.values() if differences is not None]
    passed = sum(differences.passed for differences in checked)
    print(f"{passed} of {len(checked)} recordings within tolerance, {len(results) - len(checked)} skipped")
    return 0 if checked and passed == len(checked) else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.golden DIR")
    sys.exit(main(Path(sys.argv[1])))
