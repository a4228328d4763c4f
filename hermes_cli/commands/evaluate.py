"""`hermes eval`: how often answers are right, memories side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import track

from hermes import __version__
from hermes.config import MemoryConfig
from hermes.errors import UsageError
from hermes.evals.sweeps import SWEEPS, Arm, sweep_arms
from hermes.sources.opening import printable
from hermes_cli.drawing.curves import Curve, check_drawable, draw
from hermes_cli.knobs import choice, grouped
from hermes_cli.loading import load_checkpoint
from hermes_cli.marking import note
from hermes_cli.options import MethodOptions, ModelOptions
from hermes_cli.results import check_results, open_results
from hermes_cli.shares import Results
from hermes_cli.terminal import json_line, write_out

if TYPE_CHECKING:
    from hermes.evals.shapes import Sample, ShapesTask
    from hermes.models import VideoModel

evaluations = typer.Typer(no_args_is_help=True, help="How often are answers right?")

_POLICIES = "full,hermes,fifo"

Policies = Annotated[
    str | None,
    typer.Option("--policy", metavar="NAME,...", help="Memory policies to compare.", show_default=_POLICIES),
]
Sweep = Annotated[
    str | None,
    typer.Option(
        "--sweep",
        **choice(tuple(SWEEPS)),
        help="Compare values of one setting of the memory instead of policies.",
        show_default=False,
    ),
]
Against = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The one that the others are compared with.", show_default="the first"),
]
Frames = Annotated[
    str,
    typer.Option(
        metavar="N,...", help="Lengths of the videos, at one frame a second; 64,256,1024 takes several times as long."
    ),
]
Videos = Annotated[int, typer.Option(metavar="N", min=1, help="Videos of each length.")]
Questions = Annotated[int, typer.Option(metavar="N", min=1, help="Questions about each video.")]
Seed = Annotated[str, typer.Option(metavar="TEXT", help="Names the videos and questions.")]
By = Annotated[
    Literal["group", "type", "age"],
    typer.Option(
        help="What a table sorts by: realtime and backward, the type of question, or the age of the evidence in frames."
    ),
]
Choices = Annotated[
    bool,
    typer.Option("--choices", help="Ask as multiple choice too: which of up to four answers is the most likely one."),
]
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
        "--output", "-o", help="md: tables; json: the tables as an object; jsonl: every question as it is answered."
    ),
]
Save = Annotated[
    Path | None,
    typer.Option("--save", metavar="FILE.jsonl", help="Keep every answer in a file as it comes.", show_default=False),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the file of --save; what is in it is not asked again.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE.png|svg",
        help="Draw right answers over the age of their evidence, all lengths together.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the picture if it is there.")]


@evaluations.command("shapes")
@grouped
def shapes(
    model: ModelOptions,
    method: MethodOptions,
    policy: Policies = None,
    sweep: Sweep = None,
    against: Against = None,
    frames: Frames = "64,256",
    videos: Videos = 20,
    questions: Questions = 20,
    seed: Seed = "shapes",
    by: By = "group",
    choices: Choices = False,
    evidence: Evidence = False,
    output: Output = "md",
    save: Save = None,
    resume: Resume = False,
    plot: Plot = None,
    force: Force = False,
) -> None:
    """Ask about videos of the embedded model's own world while they play; all memories meet the same questions.

    Realtime questions are about what is on screen, backward ones about what was there before. Intervals are 95 %: Wilson's
    for a share, Bonett and Price's for a difference, whose p is that of McNemar's exact test, not corrected for several
    comparisons. Both take the questions as independent; -o json adds intervals that draw whole videos.
    """
    config, lengths = method.config(), _lengths(frames)
    check_results(save, resume, "--save")
    if evidence and by != "group":
        raise UsageError(f"--evidence and --by {by} exclude each other", "leave one of them out")
    if plot:
        check_drawable(plot, force)
    from hermes.evals.shapes import ShapesTask, evaluate_shapes  # noqa: PLC0415 - loads torch
    from hermes.policies import make_policy  # noqa: PLC0415 - loads torch

    arms = _arms(policy, sweep)
    for arm in arms:
        make_policy(arm.policy, arm.config(config))  # what is unknown or out of range ends the run before it begins
    reference = _reference(against, arms)
    tasks = [ShapesTask(length, videos, questions, seed, choices) for length in lengths]
    loaded = load_checkpoint(model)
    settings = _settings(loaded, model, config, arms if sweep else (), seed, choices)
    journal = open_results(save, settings, resume)
    run = {"model": loaded.name, "memory": asdict(config), "videos": videos, "questions": questions, "seed": seed}
    samples: list[Sample] = []
    is_complete = False
    try:
        for task in tasks:
            for sample in _tracked(evaluate_shapes(loaded, config, arms, task, model.prompt_style, journal), arms, task):
                samples.append(sample)
                if output == "jsonl":
                    write_out(json_line(asdict(sample)))
        is_complete = True
    finally:  # whatever ended it, what was answered is shown
        if samples and output != "jsonl":
            results = Results(samples, arms, reference, lengths, by, sweep.capitalize() if sweep else "Policy", evidence)
            as_json = {**run, "sweep": sweep, "complete": is_complete} if output == "json" else None
            write_out(results.markdown() if as_json is None else json_line({**as_json, **results.json()}))
        if samples and not is_complete:
            note(f"ended early: {len(samples)} questions were answered{_going_on(save)}")
    if plot:
        _draw(plot, samples, arms, force)


def _arms(policies: str | None, sweep: str | None) -> tuple[Arm, ...]:
    if sweep is None:
        names = [name.strip() for name in (_POLICIES if policies is None else policies).split(",")]
        return tuple(Arm(name, name) for name in dict.fromkeys(names))
    if policies is not None:
        raise UsageError("--policy and --sweep exclude each other", "a sweep names its own policies")
    return sweep_arms(sweep)


def _reference(against: str | None, arms: Sequence[Arm]) -> str:
    names = [arm.name for arm in arms]
    if against is not None and against not in names:
        raise UsageError(f"{against!r} is not among what is compared", f"choose one of: {', '.join(names)}")
    return against or names[0]


def _lengths(frames: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(length) for length in frames.split(",")))
    except ValueError as error:
        raise UsageError(f"{frames!r} is not a list of lengths", "write it as 64,256,1024") from error


def _settings(
    model: VideoModel, options: ModelOptions, config: MemoryConfig, arms: Sequence[Arm], seed: str, choices: bool
) -> dict[str, Any]:
    """All that one answer depends on. Lengths, videos, questions and policies are in each answer's name, so that a later run
    can go on with the file for more of them."""
    return {
        "hermes": __version__,
        "model": model.name,
        "revision": model.revision,
        "dtype": str(model.dtype),
        "quant": options.quant,
        "prompt_style": options.prompt_style,
        "seed": seed,
        "choices": choices,
        "sweep": {arm.name: {"policy": arm.policy, "remember": arm.remember, **arm.changes} for arm in arms},
        **{f"memory.{name}": value for name, value in asdict(config).items()},
    }


def _going_on(save: Path | None) -> str:
    return f"; --save {printable(str(save))} --resume goes on with the others" if save else ""


def _tracked(samples: Iterator[Sample], arms: Sequence[Arm], task: ShapesTask) -> Iterator[Sample]:
    """The samples, with a bar on standard error where that is a terminal. A video may give fewer questions than wanted."""
    total = task.videos * task.questions * len(arms)
    console = Console(file=sys.stderr)
    return iter(
        track(samples, f"{task.frames} frames", total, console=console, transient=True, disable=not console.is_terminal)
    )


def _draw(path: Path, samples: Sequence[Sample], arms: Sequence[Arm], force: bool) -> None:
    """Right answers in per cent over the age of their evidence, a curve an arm."""
    from hermes.evals.breakdown import labels, shares  # noqa: PLC0415 - loads torch

    ages = labels(samples, "age")
    curves = []
    for arm in arms:
        mine = [s.accuracy for s in shares(samples, "age", [arm.name], [None]) if s.measure == "open"]
        points = [(place, 100 * each.share, *(100 * end for end in each.interval)) for place, each in enumerate(mine)]
        x, y, low, high = zip(*points, strict=True) if points else ((),) * 4
        curves.append(Curve(arm.name, x, y, low, high))
    draw(path, curves, "age of the evidence, frames", "right answers, %", places=ages, y_range=(-3, 103), force=force)
    sys.stderr.write(f"{printable(str(path))} shows right answers over the age of their evidence\n")
