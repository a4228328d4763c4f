"""Video-MME (arXiv 2405.21075), without subtitles: a parquet table. Questions are asked at the end of their videos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes.errors import SourceError, UsageError
from hermes.evals.annotations import Collector, find_annotations, find_video, lettered, options, text
from hermes.evals.question import Clip, Question, Questions

_PARQUET = "test-00000-of-00001.parquet"
ANNOTATIONS = (_PARQUET, f"videomme/{_PARQUET}", "videomme.parquet")


def load(data: Path, annotations: Path | None, still_fps: float | None) -> Questions:
    """Read the table; arguments and errors as `hermes.evals.datasets.Loader`.

    Raises:
        UsageError: pyarrow is not installed.
    """
    path = find_annotations(data, annotations, ANNOTATIONS)
    rows = Collector(path)
    for number, row in enumerate(_rows(path), start=1):
        with rows.row(f"row {number}"):
            name = text(row, "videoID")
            choices = options(row.get("options"))
            right = lettered(text(row, "answer"), choices)
            files = [f"{folder}{name}{suffix}" for folder in ("", "data/") for suffix in (".mp4", ".mkv", ".webm")]
            rows.add(
                Question(
                    id=text(row, "question_id"),
                    video=Clip(find_video(data, *files)),
                    at_s=None,
                    question=text(row, "question"),
                    choices=choices,
                    answer=choices[right],
                    right=right,
                    task=text(row, "task_type"),
                    group=text(row, "duration"),
                )
            )
    return rows.done()


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow  # noqa: PLC0415 - it need not be installed
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"reading {path.name} needs pyarrow", "pip install 'hermes-video[bench]'") from error
    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
        raise SourceError(f"annotations {path} cannot be read: it is no parquet table", "download them again") from error
    return rows
