"""StreamingBench, real-time visual understanding (arXiv 2411.03628): JSON by video, or CSV by question."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes.errors import SourceError
from hermes.evals.annotations import (
    Collector,
    RowError,
    clock,
    find_annotations,
    find_video,
    lettered,
    mapping,
    options,
    read_rows,
    shown,
    text,
)
from hermes.evals.question import Clip, Question, Questions

_CSV = "Real_Time_Visual_Understanding.csv"
ANNOTATIONS = ("questions_real.json", "data/questions_real.json", _CSV, f"StreamingBench/{_CSV}")


def load(data: Path, annotations: Path | None, still_fps: float | None) -> Questions:
    """Read either form; arguments and errors as `hermes.evals.datasets.Loader`."""
    path = find_annotations(data, annotations, ANNOTATIONS)
    rows = Collector(path)
    if path.suffix.lower() == ".csv":
        _read_csv(data, path, rows)
    else:
        _read_json(data, path, rows)
    return rows.done()


def _read_json(data: Path, path: Path, rows: Collector) -> None:
    for number, entry in enumerate(read_rows(path), start=1):
        with rows.row(f"row {number}"):
            video = mapping(entry)
            name = text(video, "video_path")
            clip = Clip(find_video(data, name, _inside(name)))
            asked = video.get("questions")
            if not isinstance(asked, list):
                raise RowError("has no questions")
            for place, question in enumerate(asked, start=1):
                with rows.row(f"row {number}, question {place}"):
                    rows.add(_question(mapping(question), clip, f"{_inside(name)}/{place}"))


def _read_csv(data: Path, path: Path, rows: Collector) -> None:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            entries = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"annotations {path} cannot be read: {error}", "download them again") from error
    for number, row in enumerate(entries, start=2):  # the first line has the names
        with rows.row(f"line {number}"):
            name = text(row, "question_id")
            sample = re.search(r"sample_\d+", name)
            if sample is None:
                raise RowError(f"its question_id {shown(name)} names no sample")
            places = [
                f"{folder}{sample[0]}{file}" for folder in ("", "real/", "data/real/") for file in ("/video.mp4", ".mp4")
            ]
            rows.add(_question(row, Clip(find_video(data, *places)), name))


def _question(row: Mapping[str, Any], clip: Clip, name: str) -> Question:
    choices = options(row.get("options"))
    right = lettered(text(row, "answer"), choices)
    at_s = clock(text(row, "time_stamp"))
    return Question(name, clip, at_s, text(row, "question"), choices, choices[right], right, text(row, "task_type"))


def _inside(name: str) -> str:
    """A path without what leads to the folder of the data: `./data/real/sample_1/video.mp4` is `real/sample_1/video.mp4`."""
    return re.sub(r"^(?:\./)?(?:data/)?", "", name)
