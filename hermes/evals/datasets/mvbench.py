"""MVBench (arXiv 2311.17005): 20 tasks, a JSON file and a folder of videos each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes.errors import SourceError
from hermes.evals.annotations import (
    Collector,
    RowError,
    find_annotations,
    find_video,
    mapping,
    options,
    read_rows,
    seconds,
    text,
    worded,
)
from hermes.evals.question import Clip, Question, Questions

TASKS = {
    "action_sequence": "star/Charades_v1_480",
    "action_prediction": "star/Charades_v1_480",
    "action_antonym": "ssv2_video",
    "fine_grained_action": "Moments_in_Time_Raw/videos",
    "unexpected_action": "FunQA_test/test",
    "object_existence": "clevrer/video_validation",
    "object_interaction": "star/Charades_v1_480",
    "object_shuffle": "perception/videos",
    "moving_direction": "clevrer/video_validation",
    "action_localization": "sta/sta_video",
    "scene_transition": "scene_qa/video",
    "action_count": "perception/videos",
    "moving_count": "clevrer/video_validation",
    "moving_attribute": "clevrer/video_validation",
    "state_change": "perception/videos",
    "fine_grained_pose": "nturgbd",
    "character_order": "perception/videos",
    "egocentric_navigation": "vlnqa",
    "episodic_reasoning": "tvqa/frames_fps3_hq",
    "counterfactual_inference": "clevrer/video_validation",
}
"""Each task and where its videos are, in the folder of the data or its `video`."""

_STILLS = "episodic_reasoning"
_STILLS_FPS = 3.0  # its videos are folders of pictures


def load(data: Path, annotations: Path | None, still_fps: float | None) -> Questions:
    """Read the files of all tasks that are there; arguments and errors as `hermes.evals.datasets.Loader`.

    Args:
        annotations: the folder of the JSON files.
    """
    folder = find_annotations(data, annotations, ("json",))
    rows = Collector(folder)
    there = [task for task in TASKS if (folder / f"{task}.json").exists()]
    if not there:
        raise SourceError(f"no annotations: looked for {folder / next(iter(TASKS))}.json and others", "download them there")
    for task in there:
        for number, entry in enumerate(read_rows(folder / f"{task}.json"), start=1):
            with rows.row(f"{task}.json, row {number}"):
                rows.add(_question(data, mapping(entry), task, number))
    missing = [task for task in TASKS if task not in there]
    if missing:
        with rows.row(f"{len(missing)} tasks"):
            raise RowError(f"no file in {folder} ({', '.join(missing)})")
    return rows.done()


def _question(data: Path, row: Mapping[str, Any], task: str, number: int) -> Question:
    name = f"{TASKS[task]}/{text(row, 'video')}"
    path = find_video(data, f"video/{name}", name)
    start_s = seconds(row, "start") if row.get("start") is not None else 0.0
    end_s = seconds(row, "end") if row.get("end") is not None else None
    if end_s is not None and end_s <= start_s:
        raise RowError(f"it starts at {start_s:g} s and ends at {end_s:g} s")
    choices = options(row.get("candidates"))
    right = worded(text(row, "answer"), choices)
    clip = Clip(path, _STILLS_FPS if task == _STILLS else None, start_s, end_s)
    return Question(f"{task}/{number}", clip, None, text(row, "question"), choices, choices[right], right, task)
