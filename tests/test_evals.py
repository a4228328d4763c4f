"""The evaluation on the embedded world: when questions are asked, and how shares of right answers are summed up."""

from __future__ import annotations

import importlib.util
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from hermes.config import MemoryConfig
from hermes.engine import StreamEngine
from hermes.errors import UsageError
from hermes.evals.breakdown import comparisons, labels, shares
from hermes.evals.choices import OPTIONS, options
from hermes.evals.journal import Journal
from hermes.evals.shapes import PICTURE_SIZE, Sample, ShapesTask, evaluate_shapes, normalise
from hermes.evals.statistics import Accuracy, Paired, cluster_interval
from hermes.evals.sweeps import SWEEPS
from hermes.frames import Frame
from hermes.models import VideoModel, load_model
from hermes.policies import make_policy
from hermes.tiny import checkpoint_folder
from hermes.tiny.language import listing, sentence
from hermes.tiny.questions import QUESTION_TYPES, sample_questions
from hermes.tiny.render import video_frames
from hermes.tiny.world import RandomSource, make_video
from hermes_cli import INTERRUPTED
from hermes_cli.app import main

SMALL = ["eval", "shapes", "--frames", "8,12", "--videos", "2", "--questions", "3", "--budget", "16", "--chunk", "4"]


@pytest.fixture(scope="module")
def embedded() -> VideoModel:
    return load_model(checkpoint_folder(), device="cpu")


def test_wilson_interval_of_a_known_case() -> None:
    low, high = Accuracy(15, 20).interval  # Newcombe 1998 tabulates such cases; by hand: (0.5313, 0.8881)
    assert (round(low, 4), round(high, 4)) == (0.5313, 0.8881)
    assert Accuracy(0, 0).interval == (0.0, 1.0)
    assert math.isnan(Accuracy(0, 0).share)


def test_paired_answers_of_a_known_case() -> None:
    paired = Paired(gained=9, lost=1, total=40)
    assert paired.difference == 0.2
    assert paired.p_value == 2 * (1 + 10) / 2**10  # none or one of ten coins, on either side
    assert Paired(1, 9, 40).p_value == paired.p_value
    assert Paired(3, 3, 40).p_value == 1.0
    low, high = paired.interval  # by hand: 8/42 with a variance of (12/42 - (8/42)^2) / 42
    assert (round(low, 4), round(high, 4)) == (0.0394, 0.3415)
    assert (Paired(0, 0, 0).interval, Paired(0, 0, 0).p_value) == ((-1.0, 1.0), 1.0)


def test_whole_videos_are_drawn_again() -> None:
    alike = [(video, float(question % 2)) for video in range(20) for question in range(10)]
    assert cluster_interval(alike) == (0.5, 0.5)  # every video is like the others: nothing to be unsure of
    clustered = [(video, float(video % 2)) for video in range(20) for _ in range(10)]
    low, high = cluster_interval(clustered) or (0.0, 0.0)
    wilson = Accuracy(100, 200).interval
    assert low < wilson[0] - 0.1
    assert wilson[1] + 0.1 < high
    assert cluster_interval(clustered) == (low, high)
    assert cluster_interval([("only", 1.0), ("only", 0.0)]) is None


def test_every_policy_meets_the_same_questions_at_their_moments(embedded: VideoModel) -> None:
    config = MemoryConfig(budget=24, chunk_frames=4)
    task = ShapesTask(frames=24, videos=2, questions=5)
    samples = list(evaluate_shapes(embedded, config, ["full", "fifo", "hermes"], task))
    by_policy = {
        policy: [(s.video, s.number, s.question, s.at_frame, s.expected) for s in samples if s.policy == policy]
        for policy in ("full", "fifo", "hermes")
    }
    assert len(by_policy["full"]) == 10
    assert by_policy["full"] == by_policy["fifo"] == by_policy["hermes"]
    assert all(s.right == (normalise(s.answer) == normalise(s.expected)) for s in samples)
    assert all(s.age is None or 0 <= s.age <= s.at_frame for s in samples)
    assert [s.answer for s in evaluate_shapes(embedded, config, ["full"], task)] == [
        s.answer for s in samples if s.policy == "full"
    ]


@pytest.mark.parametrize("size", [(1, 1, 1), (8, 0, 1), (8, 1, 0)])
def test_an_empty_evaluation_is_refused(size: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError):
        ShapesTask(*size)


def test_answers_are_compared_without_case_and_full_stop() -> None:
    assert normalise(" A red circle. ") == normalise("a RED circle")
    assert normalise("A red circle") != normalise("A red square")


def test_every_type_of_question_has_its_options() -> None:
    places, asked = Counter[int](), set[str]()
    for index in range(60):
        video = make_video(40, RandomSource(f"choices/{index}"))
        for number, question in enumerate(sample_questions(video, RandomSource(f"choices/{index}/q"), 20)):
            offered = options(question, video, RandomSource(f"{index}/{number}"))
            assert offered == options(question, video, RandomSource(f"{index}/{number}"))
            assert offered.count(question.answer) == 1, question
            assert len(set(offered)) == len(offered)
            two = question.type in ("appear", "order", "count_now")
            assert len(offered) == (2 if two else OPTIONS), question
            asked.add(question.type)
            places[offered.index(question.answer)] += not two
            if question.type == "first" and question.frames_seen == video.frames:
                seen = {sentence(listing(scene)) for scene in video.scenes}
                assert set(offered) <= seen  # there are enough scenes: having been seen does not make an answer right
    assert asked == set(QUESTION_TYPES)
    assert len(places) == OPTIONS
    assert max(places.values()) < 1.3 * min(places.values())  # the place of the right one tells nothing


@pytest.mark.parametrize("text", ["A red circle.", "A", ""])  # the end of an answer is unlikely where it is not finished
def test_log_likelihood_is_that_of_the_whole_prompt_read_anew(embedded: VideoModel, text: str) -> None:
    frames = [Frame(float(s), p) for s, p in enumerate(video_frames(make_video(6, RandomSource("likely")), PICTURE_SIZE))]
    engine = StreamEngine(embedded, MemoryConfig(chunk_frames=4))
    for frame in frames:
        engine.push(frame)  # the last two wait for their chunk
    before = engine.snapshot()
    question = "What is on screen now?"
    ids = embedded.tokenize(text)
    expected = 0.0
    for length in range(len(ids) + 1):
        fresh = StreamEngine(embedded, MemoryConfig())
        with torch.inference_mode():
            fresh.cache.reserve(200)
            embedded.forward(embedded.embed_frames(frames, 0, [f.time_s for f in frames]), fresh.cache)
            embedded.forward(embedded.plain(embedded.end_of_video()), fresh.cache)
            hidden = embedded.forward(embedded.text([*engine.prompt.question_ids(question), *ids[:length]]), fresh.cache)
            chances = embedded.logits(hidden).softmax(dim=-1)
        following = [ids[length]] if length < len(ids) else sorted(embedded.stop_ids)
        expected += math.log(float(chances[following].sum()))
    assert engine.log_likelihood(question, text) == pytest.approx(expected, abs=1e-3)
    after = engine.snapshot()
    assert all(torch.equal(tensor, after.cache[name]) for name, tensor in before.cache.items())
    with pytest.raises(UsageError, match="tokens"):
        engine.log_likelihood(question, "red " * 600)


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_compares_settings_that_differ_with_the_default(name: str) -> None:
    settings = MemoryConfig(budget=64, chunk_frames=8)
    configs = [arm.config(settings) for arm in SWEEPS[name]]
    assert configs[0] == settings
    told_apart = {(config, arm.remember) for config, arm in zip(configs, SWEEPS[name], strict=True)}
    assert len(told_apart) == len(configs) == len({arm.name for arm in SWEEPS[name]})
    assert {(config.budget, config.chunk_frames) for config in configs} == {(64, 8)}
    for arm, config in zip(SWEEPS[name], configs, strict=True):
        make_policy(arm.policy, config)


def _sample(video: int, number: int, arm: str, right: bool, age: int | None = None) -> Sample:
    group = "realtime" if age is None else "backward"
    kind = "now" if age is None else "first"
    return Sample(arm, arm, 64, video, number, kind, group, 40, age, "?", "A.", "A.", right, None, None)


def test_ages_fall_into_bins_that_double() -> None:
    ages = [0, 15, 16, 31, 32, 63, 64, 127, 128, 1023]
    samples = [_sample(0, number, "full", True, age) for number, age in enumerate(ages)] + [_sample(0, 99, "full", False)]
    found = {share.label: share.accuracy for share in shares(samples, "age", ["full"], [64])}
    assert list(found) == ["0-15", "16-31", "32-63", "64-127", "128-255", "512-1023"]
    assert [accuracy.total for accuracy in found.values()] == [2, 2, 2, 2, 1, 1]
    assert labels(samples, "type") == ["now", "first"]


def test_arms_are_compared_question_by_question() -> None:
    right = {"full": [1, 1, 0, 0, 1, 1], "fifo": [0, 0, 1, 0, 1, 1]}
    samples = [
        _sample(number // 3, number % 3, arm, bool(value), 5) for arm in right for number, value in enumerate(right[arm])
    ]
    backward = [c for c in comparisons(samples, "group", ["full", "fifo"], [64], "full") if c.label == "backward"]
    assert [(c.arm, c.paired) for c in backward] == [("fifo", Paired(gained=1, lost=2, total=6))]
    samples.reverse()  # pairs go by question, not by order
    assert [c for c in comparisons(samples, "group", ["full", "fifo"], [64], "full") if c.label == "backward"] == backward


def test_the_command_prints_a_table_an_object_or_every_sample(capsys: pytest.CaptureFixture[str]) -> None:
    printed = {}
    for form in ("md", "json", "jsonl"):
        assert main([*SMALL, "--policy", "full,fifo", "-o", form]) == 0
        printed[form] = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1:3] for line in printed["md"][2:6]] == [
        [" 8 ", " full "], [" 8 ", " fifo "], [" 12 ", " full "], [" 12 ", " fifo "]
    ]  # fmt: skip
    assert [line.split("|")[1:3] for line in printed["md"][-2:]] == [[" 8 ", " fifo "], [" 12 ", " fifo "]]
    results = json.loads(printed["json"][0])["results"]
    samples = [json.loads(line) for line in printed["jsonl"]]
    assert len(samples) == 24
    for result in results:
        mine = [s for s in samples if all(s[key] == result[key] for key in ("frames", "arm", "group"))]
        assert (result["right"], result["total"]) == (sum(s["right"] for s in mine), len(mine))


def test_a_sweep_by_type_with_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--sweep", "guidance", "--by", "type", "--choices"]) == 0
    head = next(iter(capsys.readouterr().out.splitlines()))
    assert [cell.strip() for cell in head.split("|")[3:-1]] == [
        "forward", "embedding", "forward by choice", "embedding by choice"
    ]  # fmt: skip
    assert main([*SMALL, "--sweep", "guidance", "--choices", "-o", "jsonl"]) == 0
    samples = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {s["arm"] for s in samples} == {"forward", "embedding"}
    assert all(s["chosen"] in s["options"] and s["expected"] in s["options"] for s in samples)


def test_a_run_that_was_cut_short_ends_like_a_whole_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "samples.jsonl"
    command = [*SMALL, "--policy", "full,hermes", "--choices", "--evidence", "-o", "json", "--save", str(file)]
    assert main(command) == 0
    whole, lines = capsys.readouterr().out, file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 24
    pushed: list[float] = []
    push = StreamEngine.push

    def counted(engine: StreamEngine, frame: Frame) -> object:
        pushed.append(frame.time_s)
        return push(engine, frame)

    monkeypatch.setattr(StreamEngine, "push", counted)
    for kept, played in ((len(lines), 0), (1 + 10, 5)):  # 8 plays of 3 questions: 10 answers are three whole plays and a bit
        pushed.clear()
        file.write_bytes(b"".join(lines[:kept]) + (lines[kept][:30] if kept < len(lines) else b""))
        assert main([*command, "--resume"]) == 0
        assert capsys.readouterr().out == whole
        assert pushed.count(0.0) == played
    assert main([*command, "--resume", "--budget", "20"]) == 2
    assert "other settings (memory.budget)" in capsys.readouterr().err
    assert main(command) == 2


def test_an_interrupted_run_shows_what_was_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Journal.add

    def interrupted(journal: Journal, sample: Mapping[str, object]) -> None:
        add(journal, sample)
        if len(journal.done) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "add", interrupted)
    command = [*SMALL, "--policy", "full", "-o", "json", "--save", str(tmp_path / "samples.jsonl")]
    assert main(command) == INTERRUPTED
    captured = capsys.readouterr()
    shown = json.loads(captured.out)
    assert not shown["complete"]
    assert sum(result["total"] for result in shown["results"]) == 4
    assert "--resume" in captured.err


@pytest.mark.parametrize(
    "edited", [{"answer": 5}, {"options": None}, {"age": "x"}, {"right": "x"}, {"traced_by_chance": "x"}]
)
def test_an_edited_sample_is_asked_again(
    edited: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "samples.jsonl"
    command = [*SMALL, "--policy", "full", "--evidence", "-o", "json", "--save", str(file)]
    assert main(command) == 0
    whole, (first, *lines) = capsys.readouterr().out, file.read_text().splitlines()
    file.write_text("\n".join([first, *(json.dumps(json.loads(line) | edited) for line in lines)]) + "\n")
    assert main([*command, "--resume"]) == 0
    assert capsys.readouterr().out == whole


def test_the_picture_names_every_arm_and_age(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ages.svg"
    assert main([*SMALL, "--frames", "40", "--policy", "full,fifo", "--plot", str(file)]) == 0
    drawn = file.read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("full", "fifo", "0-15", "age of the evidence, frames"))
    assert main([*SMALL, "--plot", str(file)]) == 2
    assert "--force" in capsys.readouterr().err


def test_without_matplotlib_a_picture_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find: Callable[..., object] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find(name, *rest))
    assert main([*SMALL, "--plot", str(tmp_path / "ages.png")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "pip install matplotlib" in captured.err


@pytest.mark.parametrize(
    "wrong",
    [
        ["--policy", "full,best"],
        ["--frames", "many"],
        ["--frames", "1"],
        ["--budget", "1"],
        ["--sweep", "everything"],
        ["--sweep", "guidance", "--policy", "full"],
        ["--against", "fifo", "--policy", "full,hermes"],
        ["--resume"],
        ["--evidence", "--by", "age"],
        ["--plot", "ages.pdf"],
        ["--plot", "no/such/folder/ages.png"],
        ["--save", "no/such/folder/samples.jsonl"],
        ["--save", "x" * 300],
        ["--policy", ""],
        ["--frames", "9999999999"],
    ],
)
def test_the_command_refuses_what_it_does_not_know(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "shapes", *wrong]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
