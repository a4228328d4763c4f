"""The summary of a benchmark: shares of right answers as a Markdown table or as JSON, every average by its full name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes.evals.datasets import DATASETS
from hermes.evals.summary import RULES, Row, averages, score_rows
from hermes_cli.shares import share_cell, share_counts
from hermes_cli.terminal import json_line, write_out

_HEADINGS = {"official": "Official rule", "right": "Our rule", "judged": "Judge"}


def write_scores(
    name: str, settings: Mapping[str, Any], records: Sequence[Mapping[str, Any]], counts: Mapping[str, int], as_json: bool
) -> None:
    """Write the summary of a benchmark's records to standard output.

    Args:
        settings: those that the records were made with.
        counts: what else happened, by its name.
    """
    rows = score_rows(records)
    if as_json:
        results = [
            {
                "policy": row.policy,
                "group": row.group,
                "task": row.task or None,
                "asked": row.asked,
                "judge_score": row.judge_score,
            }
            | {rule: share_counts(accuracy) for rule, accuracy in row.accuracy.items()}
            for row in rows
        ]
        means = [{"policy": a.policy, "average": a.name, **a.shares} for a in averages(rows)]
        write_out(
            json_line({"settings": settings, "results": results, "averages": means, "answers": len(records), **counts})
        )
    else:
        write_out(_table(rows) + "\n" + _footnote(name, settings, records, counts))


def _table(rows: Sequence[Row]) -> str:
    """Markdown: a row per policy and task, per cent right with the interval behind it, then averages."""
    rules = [rule for rule in RULES if any(rule in row.accuracy for row in rows)]
    has_score = any(row.judge_score is not None for row in rows)
    columns = ["Policy", "Group", "Task", *(_HEADINGS[rule] for rule in rules), *(["Judge's score"] if has_score else [])]
    lines = [_line(columns), "|" + "---|" * len(columns)]
    blank = [""] if has_score else []
    for policy in dict.fromkeys(row.policy for row in rows):
        for row in (row for row in rows if row.policy == policy):
            cells = [share_cell(row.accuracy[rule]) if rule in row.accuracy else "" for rule in rules]
            score = blank if row.judge_score is None else [f"{row.judge_score:.2f} of 5"]
            lines.append(_line([policy, row.group, row.task or "all questions alike", *cells, *score]))
        for average in (average for average in averages(rows) if average.policy == policy):
            cells = [f"{100 * average.shares[rule]:.1f} %" if rule in average.shares else "" for rule in rules]
            lines.append(_line([policy, "", average.name, *cells, *blank]))
    return "\n".join(lines) + "\n"


def _footnote(
    name: str, settings: Mapping[str, Any], records: Sequence[Mapping[str, Any]], counts: Mapping[str, int]
) -> str:
    """What the numbers are made of, and what is not in them."""
    told = {
        "Answers": len(records),
        "open answers without a score": sum(all(record.get(rule) is None for rule in RULES) for record in records),
        "with a note on their moment": sum(record.get("note") is not None for record in records),
        "not asked": counts.get("not_asked", 0),
        "rows skipped": settings["skipped_rows"],
        **{f"left out ({kind})": count for kind, count in settings["left_out"].items()},
    }
    numbers = "; ".join(f"{what}: {count}" for what, count in told.items() if count or what == "Answers")
    about = (DATASETS[name].official.__doc__ or "").rstrip(".")
    parts = ["95 % Wilson intervals"]
    if any(record.get("official") is not None for record in records):
        parts += [f"official rule, {about}", "our rule, the one option that the reply names"]
    parts += [f"judged by {judge}" for judge in sorted({record["judge"] for record in records if record.get("judge")})]
    parts += [DATASETS[name].average] if DATASETS[name].average else []
    return f"{numbers}. {'; '.join(parts)}.\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
