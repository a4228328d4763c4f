"""The one form that the questions of every benchmark are brought into."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase

LETTERS = ascii_uppercase
"""What the options of a multiple choice are called, in order."""

SLOWEST_FPS, FASTEST_FPS = 0.001, 1000.0
"""Pictures a second of arrays and folders of pictures."""


@dataclass(frozen=True)
class Clip:
    """The part of a video that questions are about; times are seconds after its first picture.

    Attributes:
        path: a video file, a `.npy` array of pictures or a folder of pictures; need not exist.
        fps: pictures a second, for arrays and folders; None for a video file, which has its own times.
        start_s, end_s: pictures from the first up to before the last are played; None plays to the end.
    """

    path: Path
    fps: float | None = None
    start_s: float = 0.0
    end_s: float | None = None


@dataclass(frozen=True)
class Question:
    """A question of a benchmark.

    Attributes:
        id: names it among those of its benchmark.
        video: what it is about.
        at_s: the moment it is asked, in seconds after the first picture of the video; None is the end of the clip.
        question: its text, without options.
        choices: the options of a multiple choice, without letters; None where the answer is open.
        answer: the expected answer, of a multiple choice the text of the right option.
        right: index of the right option; None where the answer is open.
        task: what kind of question it is, in the benchmark's words.
        group: what tasks are put together under; empty where the benchmark has one group only.
    """

    id: str
    video: Clip
    at_s: float | None
    question: str
    choices: tuple[str, ...] | None
    answer: str
    right: int | None
    task: str
    group: str = ""

    @property
    def letter(self) -> str | None:
        """The right option's letter; None where the answer is open."""
        return None if self.right is None else LETTERS[self.right]


@dataclass(frozen=True)
class Questions:
    """What could be read of a benchmark's annotations.

    Attributes:
        skipped: for each row or question that could not be used, which and why.
        left_out: how many questions are of a kind that is not asked here, by that kind.
    """

    annotations: Path
    questions: tuple[Question, ...]
    skipped: tuple[str, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()
