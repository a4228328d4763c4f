"""Shares of right answers out of a benchmark's records: by task, and every average by its full name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.evals.statistics import Accuracy

RULES = ("official", "right", "judged")
"""What a record may say about an answer: right by the benchmark's own rule, by ours, or by a judge."""


_TEXTS = ("id", "policy", "group", "task", "question", "expected", "answer")


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether a record that was read from a file holds what is counted, and what a judge needs."""
    score, judge = record.get("judge_score"), record.get("judge")
    return (
        all(isinstance(record.get(name), str) for name in _TEXTS)
        and all(isinstance(record.get(rule), bool | None) for rule in RULES)
        and isinstance(record.get("open"), bool)
        and isinstance(judge, str | None)
        and (score is None or (isinstance(score, int | float) and 0 <= score <= 5))
    )


@dataclass(frozen=True)
class Row:
    """One policy and task.

    Attributes:
        accuracy: by rule; only rules that say something about these answers.
        judge_score: mean score of the judge, 0 to 5; None where nothing was judged.
        asked: answers, unscored ones included.
    """

    policy: str
    group: str
    task: str
    accuracy: Mapping[str, Accuracy]
    judge_score: float | None
    asked: int


@dataclass(frozen=True)
class Average:
    """An average over tasks of one policy, by rule.

    Attributes:
        name: of what it is the average.
        shares: by rule, in [0, 1].
    """

    policy: str
    name: str
    shares: Mapping[str, float]


def score_rows(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """A row for each policy and task, and one over all questions of the policy (its task is empty), policies in the order of
    first appearance, tasks by name within their groups."""
    sorted_in: dict[str, dict[tuple[str, str], list[Mapping[str, Any]]]] = {}
    for record in records:
        tasks = sorted_in.setdefault(record["policy"], {})
        tasks.setdefault((record["group"], record["task"]), []).append(record)
    rows = []
    for policy, tasks in sorted_in.items():
        rows += [_row(policy, group, task, tasks[group, task]) for group, task in sorted(tasks)]
        rows.append(_row(policy, "", "", [record for task in tasks.values() for record in task]))
    return rows


def averages(rows: Sequence[Row]) -> list[Average]:
    """Over tasks alike and, where there are groups, over groups alike, each the mean of its tasks."""
    found = []
    for policy in dict.fromkeys(row.policy for row in rows):
        groups: dict[str, list[Row]] = {}
        for row in rows:
            if row.policy == policy and row.task:
                groups.setdefault(row.group, []).append(row)
        tasks = [row for group in groups.values() for row in group]
        if len(tasks) > 1:
            found.append(Average(policy, f"mean of {len(tasks)} tasks", _means(tasks)))
        if len(groups) > 1:
            within = {group: _means(members) for group, members in groups.items()}
            found += [Average(policy, f"mean of the tasks of {group}", shares) for group, shares in within.items()]
            rules = [rule for rule in RULES if all(rule in shares for shares in within.values())]
            means = {rule: _mean([shares[rule] for shares in within.values()]) for rule in rules}
            found.append(Average(policy, f"mean of the means of {' and '.join(within)}", means))
    return [average for average in found if average.shares]


def _row(policy: str, group: str, task: str, records: Sequence[Mapping[str, Any]]) -> Row:
    accuracy = {}
    for rule in RULES:
        hits = [record[rule] for record in records if record.get(rule) is not None]
        if hits:
            accuracy[rule] = Accuracy(sum(hits), len(hits))
    scores = [record["judge_score"] for record in records if record.get("judge_score") is not None]
    return Row(policy, group, task, accuracy, _mean(scores) if scores else None, len(records))


def _means(rows: Sequence[Row]) -> dict[str, float]:
    """Of each rule that says something about every row."""
    rules = [rule for rule in RULES if all(rule in row.accuracy for row in rows)]
    return {rule: _mean([row.accuracy[rule].share for row in rows]) for rule in rules}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
