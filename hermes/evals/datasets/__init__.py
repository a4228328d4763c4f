"""The public benchmarks that can be run: how each is read, worded and scored. A new one is a loader and a line here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from hermes.evals.datasets import egoschema, mvbench, ovobench, streamingbench, unified, videomme
from hermes.evals.multiple_choice import (
    Rule,
    Wording,
    before_bracket,
    contains_letter,
    first_capital,
    first_character,
    first_word,
)
from hermes.evals.question import Questions


class Loader(Protocol):
    """Reads the annotations of a benchmark."""

    def __call__(self, data: Path, annotations: Path | None, still_fps: float | None) -> Questions:
        """All questions that can be asked.

        Args:
            data: folder of the benchmark.
            annotations: the annotation file; None looks for its usual names.
            still_fps: pictures a second of arrays and folders of pictures that state none.

        Raises:
            UsageError: there is no such folder.
            SourceError: the annotations are missing, or hold nothing that can be asked.
        """


@dataclass(frozen=True)
class Benchmark:
    """A public benchmark.

    Attributes:
        title: what it is, in a line.
        load: reads it.
        wording: how its multiple choices are put.
        official: its own rule for whether a reply is right.
        average: of what its published average is.
    """

    title: str
    load: Loader
    wording: Wording
    official: Rule
    average: str = ""


_REKV = Wording("({letter}) {text}", "Only give the best option.", "Best option: (")

DATASETS = {
    "streamingbench": Benchmark(
        "StreamingBench, real-time visual understanding: multiple choice at moments of a video",
        streamingbench.load,
        Wording(ending="The best option is:"),
        first_character,
        "published averages are over all questions alike",
    ),
    "ovobench": Benchmark(
        "OVO-Bench, backward tracing and real-time perception: multiple choice at moments of a video",
        ovobench.load,
        Wording(between="; "),
        contains_letter,
        "the HERMES paper's 'Avg' is the mean of real-time and backward; forward tasks are not in it",
    ),
    "rvs-ego": Benchmark(
        "RVS-Ego: open questions at moments of long first-person videos",
        partial(unified.load, names=("ego4d_oe.json", "rvs/ego/ego4d_oe.json", "ego/ego4d_oe.json")),
        _REKV,
        before_bracket,
    ),
    "rvs-movie": Benchmark(
        "RVS-Movie: open questions at moments of films",
        partial(unified.load, names=("movienet_oe.json", "rvs/movie/movienet_oe.json", "movie/movienet_oe.json")),
        _REKV,
        before_bracket,
    ),
    "videomme": Benchmark(
        "Video-MME without subtitles: multiple choice at the end of short, medium and long videos",
        videomme.load,
        Wording(ending="The best answer is:"),
        first_capital,
        "published averages are over all questions alike",
    ),
    "mvbench": Benchmark(
        "MVBench: multiple choice about short clips, 20 tasks",
        mvbench.load,
        Wording("({letter}) {text}", "Only give the best option.", "Best option:("),
        first_word,
        "the published average is over all questions alike, 200 a task",
    ),
    "egoschema": Benchmark(
        "EgoSchema, the 500 questions with published answers: multiple choice about 3 minutes",
        egoschema.load,
        _REKV,
        before_bracket,
    ),
    "unified": Benchmark("Questions in the JSON format of ReKV and HERMES", unified.load, _REKV, before_bracket),
}
"""By the name that `hermes eval` knows them by."""
