"""The evaluation on the embedded world: when questions are asked, and how shares of right answers are summed up."""

from __future__ import annotations

import math

import pytest

from hermes.config import MemoryConfig
from hermes.errors import UsageError
from hermes.evals import Accuracy, ShapesTask, accuracy, evaluate_shapes, normalise
from hermes.models import load_model
from hermes.tiny import checkpoint_folder


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


@pytest.mark.parametrize("size", [{"frames": 1}, {"frames": 8, "videos": 0}, {"frames": 8, "questions": 0}])
def test_an_empty_evaluation_is_refused(size: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        ShapesTask(**size)


def test_answers_are_compared_without_case_and_full_stop() -> None:
    assert normalise(" A red circle. ") == normalise("a RED circle")
    assert normalise("A red circle") != normalise("A red square")
