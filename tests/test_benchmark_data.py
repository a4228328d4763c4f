"""Benchmarks as published: read with their known faults, worded, and scored by their own rules and by ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from hermes.errors import HermesError, SourceError, UsageError
from hermes.evals.annotations import RowError, options
from hermes.evals.datasets import DATASETS
from hermes.evals.multiple_choice import chosen, means_right
from hermes.evals.pictures import open_clip
from hermes.evals.question import Clip, Question, Questions
from hermes.evals.summary import averages, score_rows
from hermes.tiny.render import video_frames
from tests import datasets


def read(name: str, folder: Path, **options: float) -> Questions:
    return DATASETS[name].load(folder, None, options.get("still_fps"))


def test_streamingbench_repairs_what_is_plain_and_skips_the_rest(tmp_path: Path) -> None:
    found = read("streamingbench", datasets.streamingbench(tmp_path))
    assert [(q.id, q.at_s, q.letter, q.choices) for q in found.questions] == [
        ("real/sample_1/video.mp4/1", 3.0, "A", tuple(datasets.CHOICES)),
        ("real/sample_1/video.mp4/2", 5.0, "B", tuple(datasets.CHOICES)),
        ("real/sample_2/video.mp4/1", 30.0, "C", tuple(datasets.CHOICES)),
        ("real/sample_2/video.mp4/3", 2.0, "D", tuple(datasets.CHOICES)),
    ]
    assert all(q.video.path.exists() for q in found.questions)
    assert found.skipped == (
        "row 1, question 3: its time '00:12450' cannot be read",
        "row 2, question 2: has 0 options",
    )


def test_streamingbench_as_a_table(tmp_path: Path) -> None:
    found = read("streamingbench", datasets.streamingbench_csv(tmp_path))
    (question,) = found.questions
    assert (question.at_s, question.answer, question.task) == (4.0, "a blue square", "Object Perception")
    assert question.video.path == tmp_path / "real/sample_7/video.mp4"
    assert found.skipped == ("line 3: its options cannot be read",)


def test_ovobench_groups_tasks_and_counts_those_left_out(tmp_path: Path) -> None:
    found = read("ovobench", datasets.ovobench(tmp_path))
    assert [(q.id, q.group, q.task, q.at_s, q.right) for q in found.questions] == [
        ("0", "real-time", "OCR", 3.0, 2),
        ("1", "real-time", "OJR", 5.5, 0),
        ("2", "backward", "EPM", 7.0, 1),
    ]
    assert len(found.skipped) == 1 and "none of its 4 options" in found.skipped[0]
    assert found.left_out == (("forward task REC", 3),)


def test_the_unified_format_takes_files_arrays_and_folders(tmp_path: Path) -> None:
    found = read("unified", datasets.unified(tmp_path))
    a, b, c = (next(q.video for q in found.questions if q.id.startswith(name)) for name in "abc")
    assert (a.path, a.fps, a.start_s, a.end_s) == (tmp_path / "films/a.mp4", None, 2.0, 7.0)
    assert (b.path, b.fps) == (tmp_path / "b.npy", 2.0)  # eight pictures in four seconds
    assert (c.path, c.fps) == (tmp_path / "c", 2.0)
    assert [(q.id, q.at_s, q.task, q.right) for q in found.questions] == [
        ("a/1", 3.0, "now", None),  # a second after the clip begins
        ("a/2", None, "which", 3),
        ("b/1", 2.0, "all", None),
        ("c/1", None, "all", None),
    ]
    assert found.skipped == ("row 3, question 2: has no answer",)


def test_an_array_without_a_rate_needs_one(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.zeros((4, 8, 8, 3), np.uint8))
    row = {"video_id": "b", "video_path": "b.npy", "conversations": [{"question": "What?", "answer": "x"}]}
    datasets.write_json(tmp_path / "movienet_oe.json", [row])
    with pytest.raises(SourceError, match=r"row 1: states no fps .*--still-fps"):
        read("rvs-movie", tmp_path)
    assert read("rvs-movie", tmp_path, still_fps=0.5).questions[0].video.fps == 0.5


def test_videomme_mvbench_and_egoschema(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("videomme", "mvbench", "egoschema")}
    for folder in folders.values():
        folder.mkdir()
    found = read("videomme", datasets.videomme(folders["videomme"]))
    assert [(q.id, q.group, q.task, q.at_s, q.letter) for q in found.questions] == [
        ("001-1", "short", "Counting Problem", None, "C")
    ]
    assert found.skipped == ("row 2: its answer 'E' is none of its 4 options",)

    found = read("mvbench", datasets.mvbench(folders["mvbench"]))
    assert [(q.id, q.video.fps, q.video.start_s, q.video.end_s) for q in found.questions] == [
        ("action_sequence/1", None, 2.0, 6.0),
        ("episodic_reasoning/1", 3.0, 0.0, 2.0),
    ]
    assert all(q.video.path.exists() for q in found.questions)
    assert [skipped.partition(":")[0] for skipped in found.skipped] == ["action_sequence.json, row 2", "18 tasks"]

    found = read("egoschema", datasets.egoschema(folders["egoschema"]))
    assert [(q.id, q.answer, q.letter) for q in found.questions] == [("u-1", "nothing", "E")]
    assert found.left_out == (("without a published answer", 1),)


@pytest.mark.parametrize("name", DATASETS)
def test_what_is_missing_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        read(name, tmp_path / "nowhere")
    with pytest.raises(SourceError, match="looked for"):
        read(name, tmp_path)


def test_annotations_that_are_none_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "annotations.json").write_text("[{")
    with pytest.raises(SourceError, match="it is not JSON"):
        read("unified", tmp_path)
    datasets.write_json(tmp_path / "annotations.json", ["text", {"video_id": 3}])
    with pytest.raises(SourceError, match="row 1: is no object"):
        read("unified", tmp_path)


def test_letters_are_taken_off_only_where_every_option_has_its_own() -> None:
    assert options(["A. red", "(B) blue", "C: green"]) == ("red", "blue", "green")
    assert options(["A. Lincoln", "G. Washington"]) == ("A. Lincoln", "G. Washington")
    with pytest.raises(RowError):
        options(["A. red"])


def asked(right: int, choices: tuple[str, ...] = tuple(datasets.CHOICES)) -> Question:
    return Question("1", Clip(Path("a.mp4")), None, "What is it?", choices, choices[right], right, "all")


@pytest.mark.parametrize(
    ("reply", "option"),
    [
        ("B", 1),
        ("(B) a blue square", 1),
        ("(b).", 1),
        ("c or d, I think", None),  # lower-case letters are words like others
        ("B: it is blue", 1),
        ("The best option is C.", 2),
        ("Answer: D", 3),
        ("I think it is (A), since it is red", 0),
        ("A red circle.", 0),
        ("A blue square", 1),  # the article is no letter
        ("It is a green ring, on the left.", 2),
        ("a red circle and a blue square", None),
        ("A and B", None),
        ("It must be option C", 2),
        ("", None),
        ("no idea", None),
        ("E", None),
    ],
)
def test_our_rule_finds_the_option_that_a_reply_names(reply: str, option: int | None) -> None:
    assert chosen(reply, datasets.CHOICES) == option


def test_an_option_inside_another_is_not_mistaken_for_it() -> None:
    choices = ("square", "red square", "Yes", "No")
    assert chosen("It is a red square", choices) == 1
    assert chosen("It is a square", choices) == 0
    assert chosen("Not that: no", choices) == 3


@pytest.mark.parametrize(
    ("name", "reply", "official", "ours"),
    [
        ("streamingbench", "B. a blue square", True, True),
        ("streamingbench", "The answer is B", False, True),
        ("streamingbench", "Blue, perhaps", True, False),  # its first character is a B
        ("ovobench", "A, B, C or D", True, False),
        ("ovobench", "a blue square", False, True),
        ("videomme", "The best answer is B.", True, True),
        ("videomme", "A square that is blue", False, False),
        ("mvbench", "", True, False),
        ("mvbench", "B. a blue square", True, True),
        ("unified", "It is B)", True, True),
        ("unified", "Option B", False, True),
    ],
)
def test_official_rules_are_kept_beside_ours(name: str, reply: str, official: bool, ours: bool) -> None:
    question = asked(1)
    assert (DATASETS[name].official(reply, question), means_right(reply, question)) == (official, ours)


def test_prompts_end_as_the_benchmarks_have_it() -> None:
    prompt = DATASETS["streamingbench"].wording.prompt(asked(1))
    assert "\nA. a red circle\nB. a blue square\n" in prompt and prompt.endswith("\nThe best option is:")
    assert DATASETS["videomme"].wording.prompt(asked(1)).endswith("\nThe best answer is:")
    assert DATASETS["mvbench"].wording.prompt(asked(1)).endswith("\nBest option:(")
    assert "(A) a red circle\n" in DATASETS["unified"].wording.prompt(asked(1))
    assert "A. a red circle; B. a blue square; " in DATASETS["ovobench"].wording.prompt(asked(1))


def test_pictures_come_at_their_rate_and_damage_is_named(tmp_path: Path) -> None:
    datasets.unified(tmp_path)
    array = open_clip(Clip(tmp_path / "b.npy", fps=2.0))
    assert [frame.time_s for frame in array.frames(1.0)] == [0.0, 1.0, 2.0, 3.0]
    assert [frame.time_s for frame in array.frames(2.0, 1.0, 2.5)] == [1.0, 1.5, 2.0]
    folder = open_clip(Clip(tmp_path / "c", fps=2.0))
    tenth = next(folder.frames(2.0, 4.5))  # by number: 10.png comes after 9.png
    assert np.array_equal(tenth.rgb, video_frames(datasets.world("c", 11), 48)[9])
    (tmp_path / "c/3.png").write_bytes(b"no picture")
    with pytest.raises(SourceError, match=r"3\.png is no picture"):
        list(folder.frames(2.0))
    np.save(tmp_path / "b.npy", np.zeros((4, 8, 8), np.uint8))
    with pytest.raises(HermesError, match="no array of pictures"):
        open_clip(Clip(tmp_path / "b.npy", fps=2.0))


def test_pyarrow_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.videomme(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError) as refused:
        read("videomme", tmp_path)
    assert refused.value.hint == "pip install 'hermes-video[bench]'"


def test_averages_say_of_what() -> None:
    def record(group: str, task: str, official: bool, right: bool) -> dict[str, object]:
        return {"policy": "hermes", "group": group, "task": task, "official": official, "right": right}

    records = [record("real-time", "OCR", True, True)] * 3 + [record("real-time", "OJR", False, False)]
    records += [record("backward", "EPM", False, True)] * 4
    rows = score_rows(records)
    everything = rows[-1]
    assert (everything.task, everything.accuracy["official"].share, everything.accuracy["right"].share) == ("", 3 / 8, 7 / 8)
    shares = {average.name: average.shares for average in averages(rows)}
    assert shares["mean of 3 tasks"] == pytest.approx({"official": 1 / 3, "right": 2 / 3})
    assert shares["mean of the tasks of real-time"] == pytest.approx({"official": 0.5, "right": 0.5})
    assert shares["mean of the means of backward and real-time"] == pytest.approx({"official": 0.25, "right": 0.75})


@pytest.mark.parametrize(
    ("field", "value"),
    [("video", "x" * 5000), ("realtime", 10**400), ("realtime", 1e300), ("question", "\ud800"), ("id", 10**400)],
)
def test_no_value_of_a_field_ends_the_reading(field: str, value: object, tmp_path: Path) -> None:
    file = datasets.ovobench(tmp_path) / "ovo_bench_new.json"
    rows = json.loads(file.read_text())
    rows[0][field] = value
    file.write_text(json.dumps(rows))
    found = DATASETS["ovobench"].load(tmp_path, None, None)
    assert len(found.questions) + len(found.skipped) == 4
    assert all(len(line) < 150 for line in found.skipped)


def test_long_numbers_name_a_question_in_full(tmp_path: Path) -> None:
    file = datasets.ovobench(tmp_path) / "ovo_bench_new.json"
    rows = json.loads(file.read_text())
    rows[0]["id"], rows[1]["id"] = 12345678, 12345679
    file.write_text(json.dumps(rows))
    names = [question.id for question in DATASETS["ovobench"].load(tmp_path, None, None).questions]
    assert names[:2] == ["12345678", "12345679"]
