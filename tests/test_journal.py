"""Results on the disk: kept as they come, gone on with, never mixed."""

from __future__ import annotations

import os
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


def test_what_is_no_sample_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Journal(path, {"budget": 4}).add({"id": "a/1", "right": True})
    with path.open("a") as file:
        file.write('{"type": "sample", "id": ["a/2"], "right": true}\n{"type": "sample", "id": "a/3", "right": "x"}\n')
    later = Journal(path, {"budget": 4}, True, lambda record: isinstance(record["right"], bool))
    assert list(later.done) == ["a/1"]


def test_a_run_that_ended_before_its_first_line_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.touch()
    Journal(path, {"budget": 4}, resume=True).add({"id": "a/1"})
    assert list(Journal(path, {"budget": 4}, resume=True).done) == ["a/1"]


def test_a_device_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # reading it would wait for a writer
    with pytest.raises(UsageError, match="it is no file"):
        Journal(pipe, {}, resume=True)
