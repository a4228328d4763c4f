"""`python -m tests.golden DIR`: replay every recording of a folder; exit 1 when one is beyond tolerance."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.golden.llava import check_llava
from tests.golden.recording import Differences, Recording
from tests.golden.steps import check_step, check_trajectory

CHECKS: dict[str, Callable[[Recording], Differences]] = {
    "s": check_step,
    "t": check_trajectory,
    "e2e": check_llava,
}


def check(path: Path) -> Differences:
    """Replay one file; its kind is the start of its name, a leading `h` aside."""
    kind = path.stem.removeprefix("h")
    prefix = max((prefix for prefix in CHECKS if kind.startswith(prefix)), key=len)
    return CHECKS[prefix](Recording(path))


def main(folder: Path) -> int:
    """Check a folder, print a line a file and return the exit status."""
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        print(f"no recordings (*.npz) in {folder}", file=sys.stderr)
        return 1
    failed = 0
    for path in paths:
        differences = check(path)
        failed += not differences.passed
        print(f"{'ok  ' if differences.passed else 'FAIL'} {path.stem:28} {differences}")
    print(f"{len(paths) - failed} of {len(paths)} recordings within tolerance")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.golden DIR")
    sys.exit(main(Path(sys.argv[1])))
