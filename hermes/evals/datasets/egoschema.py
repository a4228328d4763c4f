"""EgoSchema (arXiv 2308.09126), the 500 questions with published answers."""

from __future__ import annotations

from pathlib import Path

from hermes.errors import SourceError
from hermes.evals.annotations import (
    Collector,
    RowError,
    find_annotations,
    find_video,
    mapping,
    options,
    read_json,
    read_rows,
    shown,
    text,
)
from hermes.evals.question import Clip, Question, Questions

_ANSWERS = "subset_answers.json"


def load(data: Path, annotations: Path | None, still_fps: float | None) -> Questions:
    """Read questions, and the answers in the same folder; arguments and errors as `hermes.evals.datasets.Loader`."""
    path = find_annotations(data, annotations, ("questions.json",))
    answers = read_json(find_annotations(data, path.parent / _ANSWERS, ()))
    if not isinstance(answers, dict):
        raise SourceError(f"{path.parent / _ANSWERS} holds no answers", "download it again")
    rows = Collector(path)
    for number, entry in enumerate(read_rows(path), start=1):
        with rows.row(f"row {number}"):
            row = mapping(entry)
            name = text(row, "q_uid")
            if name not in answers:
                rows.leave_out("without a published answer", 1)
                continue
            choices = options([text(row, f"option {index}") for index in range(5)])
            right = answers[name]
            if not isinstance(right, int) or isinstance(right, bool) or not 0 <= right < len(choices):
                raise RowError(f"its answer {shown(right)} is none of its {len(choices)} options")
            clip = Clip(find_video(data, f"{name}.mp4"))
            rows.add(Question(name, clip, None, text(row, "question"), choices, choices[right], right, "all"))
    return rows.done()
