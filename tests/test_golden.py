"""The project's functions against numbers recorded from the authors' code (`python -m tests.golden DIR` checks more)."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.golden.__main__ import check, main

RECORDINGS = Path(__file__).parent / "golden" / "recordings"


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.npz")), ids=lambda path: path.stem)
def test_recorded_numbers_are_reproduced(path: Path) -> None:
    differences = check(path)
    assert differences is not None
    assert differences.passed, str(differences)


def test_the_runner_fails_on_a_recording_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "s1d_L4_lazy_above.npz"
    with np.load(RECORDINGS / name) as archive:
        arrays = dict(archive)
    arrays["k_out_03"] = arrays["k_out_03"] + 3e-5
    shutil.copy(RECORDINGS / "s1d_L10_difflens.npz", tmp_path)
    np.savez(tmp_path / name, **arrays)
    assert main(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ok", "FAIL", "1"]


def test_the_runner_fails_on_an_empty_folder(tmp_path: Path) -> None:
    assert main(tmp_path) == 1
