"""The options of `hermes bench`, in groups that turn themselves into what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes.bench.pictures import check_repeatable, looped, noise
from hermes.bench.ranges import LARGEST, numbers
from hermes.config import MemoryConfig
from hermes.errors import UsageError
from hermes.sources import open_source
from hermes.sources.opening import printable
from hermes_cli.loading import load_checkpoint
from hermes_cli.options import SOURCE_HELP, ModelOptions
from hermes_cli.report import Format

if TYPE_CHECKING:
    from hermes.bench.arms import Task
    from hermes.bench.run import Plan
    from hermes.frames import Frame
    from hermes.models import VideoModel

SOAK_MARKS = 10
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class PlanOptions:
    """After how many frames is measured, and how often."""

    frames: Annotated[
        str,
        typer.Option(
            metavar="N,...", help="Numbers of frames after which it is measured: 16,64,256 or 16-256*2 or 16-64+16."
        ),
    ] = "16,64,256"
    soak: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=LARGEST,
            help="One pass of so many frames through the first policy instead, measured at ten places: does anything grow?",
            show_default=False,
        ),
    ] = None
    repetitions: Annotated[
        int, typer.Option("--repetitions", "-r", metavar="N", min=1, max=10_000, help="Passes that are measured.")
    ] = 5
    warmup: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=10_000, help="Passes before them, which take what only first uses cost."),
    ] = 1

    def plan(self, config: MemoryConfig) -> Plan:
        """The same for the library; raises `UsageError` for frames that are no whole chunks."""
        marks = numbers(self.frames)
        if self.soak is not None:
            marks = _soak_marks(self.soak, config)
        from hermes.bench.run import Plan  # noqa: PLC0415 - loads torch

        plan = Plan(marks, self.repetitions, self.warmup, self.soak is not None)
        plan.check_chunks(config.chunk_frames)
        return plan


@dataclass(frozen=True)
class WorkOptions:
    """What is compared, and asked."""

    policy: Annotated[str, typer.Option("--policy", metavar="NAME,...", help="Memory policies to compare.")] = (
        "hermes,fifo,full"
    )
    reference: Annotated[
        bool,
        typer.Option(
            "--reference",
            help="Measure stock transformers on the same work too: keeping everything, and cut to as many tokens as"
            " --budget.",
        ),
    ] = False
    question_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens of the question, with its prompt.")] = 40
    answer_tokens: Annotated[
        int, typer.Option(metavar="N", min=2, help="Tokens of every answer; nothing ends it earlier.")
    ] = 32
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Look which moments an answer drew on too, as hermes watch does.")
    ] = False

    def policies(self) -> list[str]:
        """Their names; raises `UsageError` for one that is unknown."""
        from hermes.bench.arms import check_policies  # noqa: PLC0415 - loads torch

        names = list(dict.fromkeys(name.strip() for name in self.policy.split(",")))
        check_policies(names)
        return names

    def check_room(self, config: MemoryConfig) -> None:
        """Raises `UsageError` where question and answer need more than the memory keeps free: an answer would end early."""
        room = config.position_room
        if self.question_tokens + self.answer_tokens > room:
            what = f"a question of {self.question_tokens} tokens and an answer of {self.answer_tokens} do not fit"
            raise UsageError(
                f"{what}: the memory keeps room for {room}",
                f"give --question-tokens and --answer-tokens that are {room} together, or fewer",
            )

    def task(self, config: MemoryConfig, prompt_style: str) -> Task:
        """The same for the library."""
        from hermes.bench.arms import Task  # noqa: PLC0415 - loads torch

        return Task(config, prompt_style, self.question_tokens, self.answer_tokens, self.evidence)


@dataclass(frozen=True)
class SubjectOptions:
    """What is played, through which weights where it is no model that is named."""

    random_weights: Annotated[
        str | None,
        typer.Option(
            metavar="ALIAS",
            help="A model of hermes models with random weights, which are as fast as its own and not downloaded.",
            show_default=False,
        ),
    ] = None
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="SRC", help=f"{SOURCE_HELP} Again from its start when it ends.", show_default="noise"
        ),
    ] = None
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Names the noise and the random weights.")] = 0

    def __post_init__(self) -> None:
        if self.seed > LARGEST_SEED:
            raise UsageError(f"seed {self.seed} is out of range", "0 to 2**63 - 1")

    @property
    def name(self) -> str:
        """Of what is played."""
        return printable(self.source) if self.source else f"noise, seed {self.seed}"

    def pictures(self) -> Callable[[], Iterator[Frame]]:
        """What begins the frames anew; raises as `open_source`, and `UsageError` for a live source."""
        if self.source is None:
            return lambda: noise(self.seed)
        opened = open_source(self.source)
        check_repeatable(opened)
        return lambda: looped(opened)

    def load(self, options: ModelOptions) -> VideoModel:
        """The model; raises `UsageError` where random weights exclude what else is asked for."""
        if self.random_weights is None:
            return load_checkpoint(options)
        if options.model is not None:
            raise UsageError("--random-weights excludes --model and HERMES_MODEL", "leave one of them out")
        if options.quant != "none":
            raise UsageError("random weights are not quantised", "leave --quant out, or give a checkpoint with --model")
        from hermes.models.random_weights import random_model  # noqa: PLC0415 - loads torch

        model = random_model(self.random_weights, options.device, options.dtype, self.seed)
        if options.max_pixels is not None:
            model.limit_pixels(options.max_pixels)
        return model


@dataclass(frozen=True)
class ResultOptions:
    """Where the measurements go."""

    output: Annotated[
        Format, typer.Option("--output", "-o", help="What standard output gets; jsonl: each row once measured.")
    ] = "md"
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.jsonl", help="Write each row to a file too, once measured.", show_default=False),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png|svg", help="Draw the time to the first token over frames.", show_default=False),
    ] = None
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="TRACE.json",
            help="Instead, say where the time of the first policy's last chunk and of an answer goes; the trace is for"
            " chrome://tracing or Perfetto.",
            show_default=False,
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False


def _soak_marks(frames: int, config: MemoryConfig) -> tuple[int, ...]:
    """Ten places evenly over so many frames, at the ends of chunks."""
    chunks = frames // config.chunk_frames
    if chunks < SOAK_MARKS:
        least = SOAK_MARKS * config.chunk_frames
        raise UsageError(f"{frames} frames are too few for {SOAK_MARKS} places", f"give --soak {least} or more")
    return tuple(chunks * place // SOAK_MARKS * config.chunk_frames for place in range(1, SOAK_MARKS + 1))
