"""Samples sorted by what was asked or by how old the evidence is: shares of right answers, and arms compared in pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hermes.evals.shapes import GROUPS, Sample
from hermes.evals.statistics import Accuracy, Paired, cluster_interval
from hermes.tiny.questions import QUESTION_TYPES

By = Literal["group", "type", "age"]
Measure = Literal["open", "choice"]

FIRST_AGES = 16  # frames: bins are 0-15, 16-31, 32-63, 64-127 and so on


@dataclass(frozen=True)
class Share:
    """Right answers of one arm in one part of the samples.

    Attributes:
        frames: length of the videos; None for all lengths together.
        label: which group, type or bin of ages.
        measure: answers as written, or as chosen among options.
        by_video: 95 % bootstrap interval that draws whole videos; None where there is only one.
    """

    frames: int | None
    label: str
    arm: str
    measure: Measure
    accuracy: Accuracy
    by_video: tuple[float, float] | None


@dataclass(frozen=True)
class Comparison:
    """An arm against another one on the questions that both were asked; attributes as `Share`."""

    frames: int
    label: str
    arm: str
    against: str
    measure: Measure
    paired: Paired
    by_video: tuple[float, float] | None


def measures(samples: Sequence[Sample]) -> tuple[Measure, ...]:
    """How the samples were asked."""
    return ("open", "choice") if any(sample.options for sample in samples) else ("open",)


def labels(samples: Sequence[Sample], by: By) -> list[str]:
    """The parts that the samples fall into, in their order; both groups are always there."""
    present = {label_of(sample, by) for sample in samples}
    if by == "group":
        return list(GROUPS)
    if by == "type":
        return [name for name in QUESTION_TYPES if name in present]
    oldest = max((sample.age for sample in samples if sample.age is not None), default=0)
    return [label for label in _bins(oldest) if label in present]


def label_of(sample: Sample, by: By) -> str | None:
    """The part that a sample falls into; None by age for one that points at no evidence."""
    if by == "age":
        return None if sample.age is None else _bin(sample.age)
    return sample.group if by == "group" else sample.type


def shares(samples: Sequence[Sample], by: By, arms: Sequence[str], lengths: Sequence[int | None]) -> Iterator[Share]:
    """For every length (None: all together), arm and part the share of right answers, for every way they were asked."""
    for frames in lengths:
        for arm in arms:
            for label in labels(samples, by):
                part = _part(samples, by, frames, arm, label)
                for measure in measures(samples):
                    right = [_right(sample, measure) for sample in part]
                    by_video = cluster_interval((_video(s), value) for s, value in zip(part, right, strict=True))
                    yield Share(frames, label, arm, measure, Accuracy(sum(right), len(right)), by_video)


def comparisons(
    samples: Sequence[Sample], by: By, arms: Sequence[str], lengths: Sequence[int], against: str
) -> Iterator[Comparison]:
    """As `shares`, every other arm against the arm `against` on the same questions."""
    for frames in lengths:
        for arm in arms:
            if arm == against:
                continue
            for label in labels(samples, by):
                first = {_question(sample): sample for sample in _part(samples, by, frames, against, label)}
                second = [s for s in _part(samples, by, frames, arm, label) if _question(s) in first]
                for measure in measures(samples):
                    pairs = [(_right(first[_question(sample)], measure), _right(sample, measure)) for sample in second]
                    paired = Paired(pairs.count((False, True)), pairs.count((True, False)), len(pairs))
                    differences = [int(new) - int(old) for old, new in pairs]
                    by_video = cluster_interval((_video(s), value) for s, value in zip(second, differences, strict=True))
                    yield Comparison(frames, label, arm, against, measure, paired, by_video)


def chosen_by_chance(samples: Sequence[Sample]) -> float | None:
    """The share of right choices that guessing would give; None where nothing was asked as multiple choice."""
    guesses = [1 / len(sample.options) for sample in samples if sample.options]
    return sum(guesses) / len(guesses) if guesses else None


def _part(samples: Sequence[Sample], by: By, frames: int | None, arm: str, label: str) -> list[Sample]:
    return [s for s in samples if s.arm == arm and frames in (None, s.frames) and label_of(s, by) == label]


def _right(sample: Sample, measure: Measure) -> bool:
    return sample.right if measure == "open" else sample.chosen_right


def _video(sample: Sample) -> tuple[int, int]:
    return sample.frames, sample.video


def _question(sample: Sample) -> tuple[int, int, int]:
    return sample.frames, sample.video, sample.number


def _bin(age: int) -> str:
    low = 0 if age < FIRST_AGES else 1 << (age.bit_length() - 1)
    return f"{low}-{max(FIRST_AGES, 2 * low) - 1}"


def _bins(oldest: int) -> list[str]:
    ages = [0, FIRST_AGES]
    while ages[-1] <= oldest:
        ages.append(2 * ages[-1])
    return [_bin(age) for age in ages]
