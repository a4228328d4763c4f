"""`hermes eval`: how often answers are right, memory policies side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import track

from hermes.errors import UsageError
from hermes_cli.knobs import grouped
from hermes_cli.loading import load_checkpoint
from hermes_cli.options import MethodOptions, ModelOptions
from hermes_cli.terminal import json_line, write_out

if TYPE_CHECKING:
    from hermes.evals.shapes import Sample, ShapesTask
    from hermes.evals.statistics import Accuracy

evaluations = typer.Typer(no_args_is_help=True, help="How often are answers right?")

Policies = Annotated[str, typer.Option("--policy", metavar="NAME,...", help="Memory policies to compare.")]
Frames = Annotated[str, typer.Option(metavar="N,...", help="Lengths of the videos, at one frame a second.")]
Videos = Annotated[int, typer.Option(metavar="N", min=1, help="Videos of each length.")]
Questions = Annotated[int, typer.Option(metavar="N", min=1, help="Questions about each video.")]
Seed = Annotated[str, typer.Option(metavar="TEXT", help="Names the videos and questions.")]
Evidence = Annotated[
    bool,
    typer.Option(
        "--evidence",
        help="Say how often a right answer about the past names the scene it is read from among the moments it drew on.",
    ),
]
Output = Annotated[
    Literal["md", "json", "jsonl"],
    typer.Option(
        "--output", "-o", help="md: a table; json: the table as an object; jsonl: every question as it is answered."
    ),
]


@evaluations.command("shapes")
@grouped
def shapes(
    model: ModelOptions,
    method: MethodOptions,
    policy: Policies = "full,hermes,fifo",
    frames: Frames = "128,512",
    videos: Videos = 20,
    questions: Questions = 20,
    seed: Seed = "shapes",
    evidence: Evidence = False,
    output: Output = "md",
) -> None:
    """Ask about videos of the embedded model's own world while they play; all policies meet the same questions.

    Realtime questions are about what is on screen, backward ones about what was there before. The intervals are 95 % Wilson.
    """
    config = method.config()
    names, lengths = _names(policy), _lengths(frames)
    from hermes.evals.shapes import ShapesTask, evaluate_shapes  # noqa: PLC0415 - loads torch

    tasks = [ShapesTask(length, videos, questions, seed) for length in lengths]
    loaded = load_checkpoint(model)
    samples: list[Sample] = []
    for task in tasks:
        for sample in _tracked(evaluate_shapes(loaded, config, names, task, model.prompt_style), names, task):
            samples.append(sample)
            if output == "jsonl":
                write_out(json_line(asdict(sample)))
    if output == "json":
        settings = {"model": loaded.name, "memory": asdict(config), "videos": videos, "questions": questions, "seed": seed}
        traced = {"evidence": list(_traced(samples, names, lengths))} if evidence else {}
        write_out(json_line({**settings, "results": list(_results(samples, names, lengths)), **traced}))
    elif output == "md":
        write_out(_table(samples, names, lengths, evidence))


def _names(policies: str) -> list[str]:
    from hermes.policies import POLICIES  # noqa: PLC0415 - loads torch

    names = [name.strip() for name in policies.split(",")]
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise UsageError(f"unknown memory policy {unknown[0]!r}", f"choose among: {', '.join(POLICIES)}")
    return list(dict.fromkeys(names))


def _lengths(frames: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(length) for length in frames.split(",")))
    except ValueError as error:
        raise UsageError(f"{frames!r} is not a list of lengths", "write it as 128,512") from error


def _tracked(samples: Iterator[Sample], policies: Sequence[str], task: ShapesTask) -> Iterator[Sample]:
    """The samples, with a bar on standard error where that is a terminal. A video may give fewer questions than wanted."""
    total = task.videos * task.questions * len(policies)
    console = Console(file=sys.stderr)
    return iter(
        track(samples, f"{task.frames} frames", total, console=console, transient=True, disable=not console.is_terminal)
    )


def _results(samples: Sequence[Sample], policies: Sequence[str], lengths: Sequence[int]) -> Iterator[dict[str, Any]]:
    from hermes.evals.shapes import GROUPS, accuracy  # noqa: PLC0415 - loads torch

    for length in lengths:
        for policy in policies:
            for group in GROUPS:
                result = accuracy(samples, group, length, policy)
                yield {"frames": length, "policy": policy, "group": group, **_counts(result)}


def _traced(samples: Sequence[Sample], policies: Sequence[str], lengths: Sequence[int]) -> Iterator[dict[str, Any]]:
    from hermes.evals.shapes import tracing  # noqa: PLC0415 - loads torch

    for length in lengths:
        for policy in policies:
            result, by_chance = tracing(samples, length, policy)
            yield {"frames": length, "policy": policy, **_counts(result), "chance": by_chance if result.total else None}


def _counts(result: Accuracy) -> dict[str, Any]:
    low, high = result.interval
    return {
        "right": result.right,
        "total": result.total,
        "accuracy": result.share if result.total else None,
        "low": low,
        "high": high,
    }


def _table(samples: Sequence[Sample], policies: Sequence[str], lengths: Sequence[int], evidence: bool) -> str:
    """Markdown: a row per length and policy, per cent right with the interval behind it."""
    columns = ["Frames", "Policy", "Realtime", "Backward", *(["Evidence", "By chance"] if evidence else [])]
    lines = [_row(columns), "|" + "---|" * len(columns)]
    cells = [_cell(result) for result in _results(samples, policies, lengths)]
    for traced, realtime, backward in zip(_traced(samples, policies, lengths), cells[::2], cells[1::2], strict=True):
        by_chance = f"{100 * traced['chance']:.1f} %" if traced["total"] else ""
        named = [_cell(traced), by_chance] if evidence else []
        lines.append(_row([str(traced["frames"]), traced["policy"], realtime, backward, *named]))
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(result: dict[str, Any]) -> str:
    if not result["total"]:
        return "none asked"
    share, low, high = (100 * result[key] for key in ("accuracy", "low", "high"))
    return f"{share:.1f} % ({low:.1f} to {high:.1f}, n = {result['total']})"
