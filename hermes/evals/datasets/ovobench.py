"""OVO-Bench (arXiv 2501.05510): the tasks of backward tracing and real-time perception."""

from __future__ import annotations

from pathlib import Path

from hermes.evals.annotations import (
    Collector,
    RowError,
    find_annotations,
    find_video,
    mapping,
    options,
    read_rows,
    seconds,
    shown,
    text,
    worded,
)
from hermes.evals.question import Clip, Question, Questions

ANNOTATIONS = ("ovo_bench_new.json", "data/ovo_bench_new.json", "ovo_bench.json")
GROUPS = {
    **dict.fromkeys(("EPM", "ASI", "HLD"), "backward"),
    **dict.fromkeys(("OCR", "ACR", "ATR", "STU", "FPD", "OJR"), "real-time"),
}
FORWARD = ("REC", "SSR", "CRR")


def load(data: Path, annotations: Path | None, still_fps: float | None) -> Questions:
    """Read all rows; those of forward tasks are counted only. Arguments and errors as `hermes.evals.datasets.Loader`."""
    path = find_annotations(data, annotations, ANNOTATIONS)
    rows = Collector(path)
    for number, entry in enumerate(read_rows(path), start=1):
        with rows.row(f"row {number}"):
            row = mapping(entry)
            task = text(row, "task")
            if task in FORWARD:
                asked = row.get("test_info")
                rows.leave_out(f"forward task {task}", len(asked) if isinstance(asked, list) else 1)
                continue
            if task not in GROUPS:
                raise RowError(f"its task {shown(task)} is unknown")
            name = text(row, "video")
            choices = options(row.get("options"))
            right = row.get("gt")
            if not isinstance(right, int) or isinstance(right, bool) or not 0 <= right < len(choices):
                right = worded(text(row, "answer"), choices)
            rows.add(
                Question(
                    id=text(row, "id"),
                    video=Clip(find_video(data, name, f"src_videos/{name}")),
                    at_s=seconds(row, "realtime"),
                    question=text(row, "question"),
                    choices=choices,
                    answer=choices[right],
                    right=right,
                    task=task,
                    group=GROUPS[task],
                )
            )
    return rows.done()
