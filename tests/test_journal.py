"""Results on the disk: kept as they come, gone on with, never mixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.errors import UsageError
from hermes.evals.journal import Journal


def test_a_later_run_finds_what_an_earlier_one_finished(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Journal(path, {"budget": 4}).add({"id": "a/1", "right": True})
    with path.open("a") as file:
        file.write('{"type": "sample", "id": "cut sh')  # the machine went down here
    later = Journal(path, {"budget": 4}, resume=True)
    assert list(later.done) == ["a/1"]
    later.add({"id": "a/2", "right": False})
    assert list(Journal(path, {"budget": 4}, resume=True).done) == ["a/1", "a/2"]


def test_results_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Journal(path, {"budget": 4, "seed": "x"})
    with pytest.raises(UsageError, match=r"other settings \(budget\)"):
        Journal(path, {"budget": 5, "seed": "x"}, resume=True)
    with pytest.raises(UsageError, match="there already"):
        Journal(path, {"budget": 4, "seed": "x"})
