"""Small made-up benchmarks in the exact formats of the published ones, with videos of the embedded world."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hermes.tiny.clip import write_clip
from hermes.tiny.render import video_frames
from hermes.tiny.world import RandomSource, Video, make_video

CHOICES = ["a red circle", "a blue square", "a green ring", "a pink cross"]


def world(name: str, seconds: int = 8) -> Video:
    return make_video(seconds, RandomSource(name))


def film(path: Path, seconds: int = 8) -> Path:
    """A clip of so many seconds of the world, named by its path's last part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_clip(world(path.name, seconds), path, size=48, fps=4)
    return path


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def streamingbench(folder: Path) -> Path:
    """Two videos; of six questions two have malformed stamps, one of which cannot be read, and one has no options."""
    questions = [
        {
            "task_type": "Object Perception",
            "question": "What is it?",
            "time_stamp": stamp,
            "answer": answer,
            "options": options,
        }
        for stamp, answer, options in (
            ("00:00:03", "A", [f"{letter}. {text}" for letter, text in zip("ABCD", CHOICES, strict=True)]),
            ("00:05", "B.", [f"({letter}) {text}" for letter, text in zip("ABCD", CHOICES, strict=True)]),
            ("00:12450", "B", CHOICES),
        )
    ]
    for number in (1, 2):
        film(folder / f"real/sample_{number}/video.mp4")
    rows = [
        {"time": "0:00:00 - 0:00:08", "video_path": "./data/real/sample_1/video.mp4", "questions": questions},
        {
            "time": "[0:00:00 - 0:00:08]",
            "video_path": "./data/real/sample_2/video.mp4",
            "questions": [
                {
                    "task_type": "Counting",
                    "question": "How many?",
                    "time_stamp": "00:00:30",
                    "answer": "C",
                    "options": CHOICES,
                },
                {"task_type": "Counting", "question": "How many?", "time_stamp": "00:00:02", "answer": "C", "options": []},
                {
                    "task_type": "Counting",
                    "question": "Which?",
                    "time_stamp": "00:00:02",
                    "answer": "D",
                    "options": str(CHOICES),
                },
            ],
        },
    ]
    write_json(folder / "questions_real.json", rows)
    return folder


def streamingbench_csv(folder: Path) -> Path:
    film(folder / "real/sample_7/video.mp4")
    with (folder / "Real_Time_Visual_Understanding.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question_id", "task_type", "question", "time_stamp", "answer", "options"])
        name = "Real-Time Visual Understanding_sample_7"
        writer.writerow([f"{name}_1", "Object Perception", "What is it?", "00:00:04", "B", str(CHOICES)])
        writer.writerow([f"{name}_2", "Object Perception", "What is it?", "00:00:04", "B", "[unreadable"])
    return folder


def ovobench(folder: Path) -> Path:
    """Five questions: two real-time tasks, one backward task twice, and a forward one that asks three times."""
    film(folder / "src_videos/kitchen/a.mp4")
    asked: list[tuple[str, float, dict[str, Any]]] = [
        ("OCR", 3, {"answer": CHOICES[2], "gt": 2}),
        ("OJR", 5.5, {"answer": CHOICES[0], "gt": 0}),
        ("EPM", 7, {"answer": CHOICES[1].upper(), "gt": None}),
        ("EPM", 2, {"answer": "nothing of these", "gt": 9}),
    ]
    rows: list[dict[str, Any]] = [
        {"id": n, "task": task, "video": "kitchen/a.mp4", "realtime": at, "question": "What?", "options": CHOICES, **right}
        for n, (task, at, right) in enumerate(asked)
    ]
    rows.append(
        {"id": 9, "task": "REC", "video": "kitchen/a.mp4", "test_info": [{"realtime": t, "count": 0} for t in (1, 2, 3)]}
    )
    write_json(folder / "ovo_bench_new.json", rows)
    return folder


def unified(folder: Path, name: str = "annotations.json") -> Path:
    """A video file with a clip, an array, and a folder of pictures; open questions and choices."""
    film(folder / "films/a.mp4")
    np.save(folder / "b.npy", np.asarray(video_frames(world("b"), 48)))
    (folder / "c").mkdir()
    for number, picture in enumerate(video_frames(world("c", 11), 48), start=1):
        Image.fromarray(picture).save(folder / f"c/{number}.png")
    rows = [
        {
            "video_id": "a",
            "video_path": "films/a.mp4",
            "clip": [2.0, 7.0],
            "conversations": [
                {"question": "What is on screen?", "answer": "A red circle.", "end_time": 1.0, "question_type": "now"},
                {"question": "Which?", "choices": CHOICES, "answer": CHOICES[3], "task": "which"},
            ],
        },
        {
            "video_id": "b",
            "video_path": "b.npy",
            "duration": 4.0,
            "conversations": [{"question": "What was first?", "answer": "A ring.", "end_time": 2.0}],
        },
        {
            "video_id": "c",
            "video_path": "c",
            "fps": 2,
            "conversations": [{"question": "What was last?", "answer": "A ring."}, {"question": "And?", "answer": None}],
        },
    ]
    write_json(folder / name, rows)
    return folder


def videomme(folder: Path) -> Path:
    import pyarrow  # noqa: PLC0415 - as the reader, only where it is needed
    from pyarrow import parquet  # noqa: PLC0415

    film(folder / "videos/abc_1.mp4")
    options = [f"{letter}. {text}" for letter, text in zip("ABCD", CHOICES, strict=True)]
    rows = [
        {
            "video_id": "001",
            "duration": "short",
            "domain": "Knowledge",
            "sub_category": "History",
            "url": "https://example.org",
            "videoID": "abc_1",
            "question_id": f"001-{number}",
            "task_type": task,
            "question": "What is it?",
            "options": options,
            "answer": answer,
        }
        for number, (task, answer) in enumerate((("Counting Problem", "C"), ("OCR Problems", "E")), start=1)
    ]
    (folder / "videomme").mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "videomme/test-00000-of-00001.parquet")
    return folder


def mvbench(folder: Path) -> Path:
    film(folder / "video/star/Charades_v1_480/a.mp4")
    stills = folder / "video/tvqa/frames_fps3_hq/show"
    stills.mkdir(parents=True)
    for number, picture in enumerate(video_frames(world("show"), 48), start=1):
        Image.fromarray(picture).save(stills / f"{number:05}.jpg")
    asked = {"question": "What?", "candidates": CHOICES}
    write_json(
        folder / "json/action_sequence.json",
        [
            {"video": "a.mp4", "answer": CHOICES[1], "start": 2.0, "end": 6.0, **asked},
            {"video": "a.mp4", "answer": CHOICES[1], "start": 6.0, "end": 2.0, **asked},
        ],
    )
    write_json(
        folder / "json/episodic_reasoning.json", [{"video": "show", "answer": CHOICES[0], "start": 0, "end": 2, **asked}]
    )
    return folder


def egoschema(folder: Path) -> Path:
    film(folder / "videos/u-1.mp4")
    options = {f"option {index}": text for index, text in enumerate([*CHOICES, "nothing"])}
    write_json(folder / "questions.json", [{"q_uid": name, "question": "What?", **options} for name in ("u-1", "u-2")])
    write_json(folder / "subset_answers.json", {"u-1": 4})
    return folder
