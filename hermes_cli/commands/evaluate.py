"""`hermes eval`: how often answers are right, memories side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class TaskOptions:
    """What is asked about which videos."""

    frames: Annotated[
        str,
        typer.Option(
            metavar="N,...", help="Lengths of the videos, at one frame a second; 64,256,1024 takes several times as long."
        ),
    ] = "64,256"
    videos: Annotated[int, typer.Option(metavar="N", min=1, help="Videos of each length.")] = 20
    questions: Annotated[int, typer.Option(metavar="N", min=1, help="Questions about each video.")] = 20
    seed: Annotated[str, typer.Option(metavar="TEXT", help="Names the videos and questions.")] = "shapes"
    choices: Annotated[
        bool,
        typer.Option("--choices", help="Ask as multiple choice too: which of up to four answers is the most likely one."),
    ] = False

    def lengths(self) -> list[int]:
        """Of the videos, in frames; raises `UsageError` where they are no numbers."""
        try:
            return list(dict.fromkeys(int(length) for length in self.frames.split(",")))
        except ValueError as error:
            raise UsageError(f"{self.frames!r} is not a list of lengths", "write it as 64,256,1024") from error

    def tasks(self) -> list[ShapesTask]:
        """One for each length; raises `UsageError` as `lengths`, and for one out of range."""
        lengths = self.lengths()
        from hermes.evals.shapes import ShapesTask  # noqa: PLC0415 - loads torch

        return [ShapesTask(length, self.videos, self.questions, self.seed, self.choices) for length in lengths]


@dataclass(frozen=True)
class ResultOptions:
    """What is shown of the answers, and what is kept."""

    by: Annotated[
        Literal["group", "type", "age"],
        typer.Option(
            help="What a table sorts by: realtime and backward, the type of question, or the age of the evidence in frames."
        ),
    ] = "group"
    evidence: Annotated[
        bool,
        typer.Option(
            "--evidence",
            help="Say how often a right answer about the past names the scene it is read from among the moments it drew on.",
        ),
    ] = False
    output: Annotated[
        Literal["md", "json", "jsonl"],
        typer.Option(
            "--output", "-o", help="md: tables; json: the tables as an object; jsonl: every question as it is answered."
        ),
    ] = "md"
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE.jsonl", help="Keep every answer in a file as it comes.", show_default=False),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the file of --save; what is in it is not asked again.")
    ] = False
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE.png|svg",
            help="Draw right answers over the age of their evidence, all lengths together.",
            show_default=False,
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Overwrite the picture if it is there.")] = False

    def __post_init__(self) -> None:
        if self.evidence and self.by != "group":
            raise UsageError(f"--evidence and --by {self.by} exclude each other", "leave one of them out")

    def check_files(self) -> None:
        """Raises `UsageError` where an answer or the picture could not be written later."""
        check_results(self.save, self.resume, "--save")
        if self.plot:
            check_drawable(self.plot, self.force)


@evaluations.command("shapes")
@grouped
def shapes(
    *,
    model: ModelOptions,
    method: MethodOptions,
    policy: Policies = None,
    sweep: Sweep = None,
    against: Against = None,
    asked: TaskOptions,
    result: ResultOptions,
) -> None:
    """Ask about videos of the embedded model's own world while they play; all memories meet the same questions.

    Realtime questions are about what is on screen, backward ones about what was there before. Intervals are 95 %: Wilson's
    for a share, Bonett and Price's for a difference, whose p is that of McNemar's exact test, not corrected for several
    comparisons. Both take the questions as independent; -o json adds intervals that draw whole videos.
    """
    config, lengths = method.config(), asked.lengths()
    result.check_files()
    from hermes.evals.shapes import evaluate_shapes  # noqa: PLC0415 - loads torch

    arms = _arms(policy, sweep, config)
    reference, tasks = _reference(against, arms), asked.tasks()
    loaded = load_checkpoint(model)
    settings = _settings(loaded, model, config, arms if sweep else (), asked)
    journal = open_results(result.save, settings, result.resume)
    asking = {"videos": asked.videos, "questions": asked.questions, "seed": asked.seed}
    run = {"model": loaded.name, "memory": asdict(config), **asking}
    samples: list[Sample] = []
    is_complete = False
    try:
        for task in tasks:
            for sample in _tracked(evaluate_shapes(loaded, config, arms, task, model.prompt_style, journal), arms, task):
                samples.append(sample)
                if result.output == "jsonl":
                    write_out(json_line(asdict(sample)))
        is_complete = True
    finally:  # whatever ended it, what was answered is shown
        if samples:
            compared = sweep.capitalize() if sweep else "Policy"
            results = Results(samples, arms, reference, lengths, result.by, compared, result.evidence)
            _write(results, result.output, {**run, "sweep": sweep, "complete": is_complete})
        if samples and not is_complete:
            note(f"ended early: {len(samples)} questions were answered{_going_on(result.save)}")
    if result.plot:
        _draw(result.plot, samples, arms, result.force)


def _arms(policies: str | None, sweep: str | None, config: MemoryConfig) -> tuple[Arm, ...]:
    """What is compared; raises `UsageError` for what is unknown or, with these constants, out of range."""
    from hermes.policies import make_policy  # noqa: PLC0415 - loads torch

    if sweep is not None and policies is not None:
        raise UsageError("--policy and --sweep exclude each other", "a sweep names its own policies")
    if sweep is None:
        names = [name.strip() for name in (_POLICIES if policies is None else policies).split(",")]
        arms = tuple(Arm(name, name) for name in dict.fromkeys(names))
    else:
        arms = sweep_arms(sweep)
    for arm in arms:
        make_policy(arm.policy, arm.config(config))
    return arms


def _reference(against: str | None, arms: Sequence[Arm]) -> str:
    names = [arm.name for arm in arms]
    if against is not None and against not in names:
        raise UsageError(f"{against!r} is not among what is compared", f"choose one of: {', '.join(names)}")
    return against or names[0]


def _settings(
    model: VideoModel, options: ModelOptions, config: MemoryConfig, arms: Sequence[Arm], asked: TaskOptions
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
        "seed": asked.seed,
        "choices": asked.choices,
        "sweep": {arm.name: {"policy": arm.policy, "remember": arm.remember, **arm.changes} for arm in arms},
        **{f"memory.{name}": value for name, value in asdict(config).items()},
    }


def _write(results: Results, output: str, run: dict[str, Any]) -> None:
    """Tables or an object at the end; as JSON lines all is written already."""
    if output == "md":
        write_out(results.markdown())
    elif output == "json":
        write_out(json_line({**run, **results.json()}))


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
