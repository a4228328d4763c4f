"""The evaluation on the embedded world: when questions are asked, and how shares of right answers are summed up."""

from __future__ import annotations

import json
import math

import pytest

from hermes.config import MemoryConfig
from hermes.errors import UsageError
from hermes.evals.shapes import ShapesTask, accuracy, evaluate_shapes, normalise
from hermes.evals.statistics import Accuracy
from hermes.models import load_model
from hermes.tiny import checkpoint_folder
from hermes_cli.app import main


def test_wilson_interval_of_a_known_case() -> None:
    low, high = Accuracy(15, 20).interval  # Newcombe 1998 tabulates such cases; by hand: (0.5313, 0.8881)
    assert (round(low, 4), round(high, 4)) == (0.5313, 0.8881)
    assert Accuracy(0, 0).interval == (0.0, 1.0)
    assert math.isnan(Accuracy(0, 0).share)


def test_every_policy_meets_the_same_questions_at_their_moments() -> None:
    model = load_model(checkpoint_folder(), device="cpu")
    config = MemoryConfig(budget=24, chunk_frames=4)
    task = ShapesTask(frames=24, videos=2, questions=5)
    samples = list(evaluate_shapes(model, config, ["full", "fifo", "hermes"], task))
    by_policy = {
        policy: [(s.video, s.question, s.at_frame, s.expected) for s in samples if s.policy == policy]
        for policy in ("full", "fifo", "hermes")
    }
    assert len(by_policy["full"]) == 10
    assert by_policy["full"] == by_policy["fifo"] == by_policy["hermes"]
    assert all(s.right == (normalise(s.answer) == normalise(s.expected)) for s in samples)
    assert all(s.age is None or 0 <= s.age <= s.at_frame for s in samples)
    assert accuracy(samples, "realtime", 24, "full").total + accuracy(samples, "backward", 24, "full").total == 10
    assert [s.answer for s in evaluate_shapes(model, config, ["full"], task)] == [
        s.answer for s in samples if s.policy == "full"
    ]


@pytest.mark.parametrize("size", [(1, 1, 1), (8, 0, 1), (8, 1, 0)])
def test_an_empty_evaluation_is_refused(size: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError):
        ShapesTask(*size)


def test_answers_are_compared_without_case_and_full_stop() -> None:
    assert normalise(" A red circle. ") == normalise("a RED circle")
    assert normalise("A red circle") != normalise("A red square")


def test_the_command_prints_a_table_an_object_or_every_sample(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["eval", "shapes", "--frames", "8,12", "--videos", "1", "--questions", "3", "--policy", "full,fifo"]
    printed = {}
    for form in ("md", "json", "jsonl"):
        assert main([*small, "--budget", "16", "--chunk", "4", "-o", form]) == 0
        printed[form] = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1:3] for line in printed["md"][2:]] == [
        [" 8 ", " full "], [" 8 ", " fifo "], [" 12 ", " full "], [" 12 ", " fifo "]
    ]  # fmt: skip
    results = json.loads(printed["json"][0])["results"]
    samples = [json.loads(line) for line in printed["jsonl"]]
    assert len(samples) == 12
    for result in results:
        mine = [
            s
            for s in samples
            if (s["frames"], s["policy"], s["group"]) == tuple(result[k] for k in ("frames", "policy", "group"))
        ]
        assert (result["right"], result["total"]) == (sum(s["right"] for s in mine), len(mine))


@pytest.mark.parametrize("wrong", [["--policy", "full,best"], ["--frames", "many"], ["--frames", "1"], ["--budget", "1"]])
def test_the_command_refuses_what_it_does_not_know(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "shapes", *wrong]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
