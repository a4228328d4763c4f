"""The JSON format of ReKV (arXiv 2503.00540) and HERMES, into which their authors brought many benchmarks, RVS among them.

A video is a file, a `.npy` array of pictures or a folder of pictures. `end_time` counts from the start of the clip.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hermes.evals.annotations import (
    Collector,
    RowError,
    find_annotations,
    find_video,
    is_folder,
    mapping,
    options,
    read_rows,
    seconds,
    shown,
    text,
    worded,
)
from hermes.evals.question import FASTEST_FPS, SLOWEST_FPS, Clip, Question, Questions


def load(
    data: Path, annotations: Path | None, still_fps: float | None, names: tuple[str, ...] = ("annotations.json",)
) -> Questions:
    """Read all videos and what is asked about them; arguments and errors as `hermes.evals.datasets.Loader`.

    Args:
        names: what the annotations are called in the folder of the data.
    """
    path = find_annotations(data, annotations, names)
    rows = Collector(path)
    for number, entry in enumerate(read_rows(path), start=1):
        with rows.row(f"row {number}"):
            row = mapping(entry)
            clip = _clip(data, row, still_fps)
            asked = row.get("conversations")
            if not isinstance(asked, list):
                raise RowError("has no conversations")
            for place, question in enumerate(asked, start=1):
                with rows.row(f"row {number}, question {place}"):
                    rows.add(_question(mapping(question), clip, f"{text(row, 'video_id')}/{place}"))
    return rows.done()


def _clip(data: Path, row: Mapping[str, Any], still_fps: float | None) -> Clip:
    name = text(row, "video_path")
    path = find_video(data, name, Path(name).name)
    start_s, end_s = 0.0, None
    if row.get("clip") is not None:
        ends = row["clip"]
        if not isinstance(ends, list) or len(ends) != 2:
            raise RowError(f"its clip {shown(ends)} is no start and end")
        start_s, end_s = (seconds({"clip": end}, "clip") for end in ends)
        if end_s <= start_s:
            raise RowError(f"its clip {shown(ends)} has no length")
    is_still = path.suffix == ".npy" or is_folder(path)
    return Clip(path, _still_fps(path, row, still_fps) if is_still else None, start_s, end_s)


def _still_fps(path: Path, row: Mapping[str, Any], still_fps: float | None) -> float:
    """Pictures a second: as stated, as the user says, or from the stated length of the video."""
    rate = seconds(row, "fps") if row.get("fps") is not None else still_fps
    if rate is None and row.get("duration") is not None and path.is_file():
        length_s = seconds(row, "duration")
        rate = _array_length(path) / length_s if length_s else None
    if not rate:
        raise RowError("states no fps of its pictures (--still-fps gives one)")
    if not SLOWEST_FPS <= rate <= FASTEST_FPS:
        raise RowError(f"its pictures come at {rate:g} a second ({SLOWEST_FPS:g} to {FASTEST_FPS:g} can be played)")
    return rate


def _array_length(path: Path) -> int:
    try:
        return len(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError, TypeError, OverflowError):
        return 0  # playing it will say what is wrong


def _question(row: Mapping[str, Any], clip: Clip, name: str) -> Question:
    choices = options(row["choices"]) if row.get("choices") is not None else None
    answer = text(row, "answer")
    right = worded(answer, choices) if choices else None
    asked_s = seconds(row, "end_time") if row.get("end_time") is not None else None
    return Question(
        id=name,
        video=clip,
        at_s=None if asked_s is None else clip.start_s + asked_s,
        question=text(row, "question"),
        choices=choices,
        answer=answer if choices is None or right is None else choices[right],
        right=right,
        task=text(row, "task", "question_type") if row.get("task") or row.get("question_type") else "all",
    )
