"""`hermes bench`: how fast it is on this machine, memory policies side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer
from rich.console import Console

from hermes.bench.pictures import check_repeatable, looped, noise
from hermes.bench.ranges import numbers
from hermes.config import MemoryConfig
from hermes.errors import PartialError, UsageError
from hermes.sources import open_source
from hermes.sources.opening import printable
from hermes_cli.drawing.curves import Curve, check_drawable, draw
from hermes_cli.knobs import grouped
from hermes_cli.loading import load_checkpoint
from hermes_cli.measurements import csv_text, markdown, means, profile_markdown, profile_record, row_record, soak_record
from hermes_cli.options import SOURCE_HELP, MethodOptions, ModelOptions
from hermes_cli.terminal import json_line, write_out
from hermes_cli.writing import expanded, open_bytes, open_text

if TYPE_CHECKING:
    from hermes.bench.arms import Arm
    from hermes.bench.run import Plan
    from hermes.frames import Frame
    from hermes.models import VideoModel

SOAK_MARKS = 10

Format = Literal["md", "csv", "json", "jsonl"]

Frames = Annotated[
    str,
    typer.Option(metavar="N,...", help="Numbers of frames after which it is measured: 16,64,256 or 16-256*2 or 16-64+16."),
]
Policies = Annotated[str, typer.Option("--policy", metavar="NAME,...", help="Memory policies to compare.")]
RandomWeights = Annotated[
    str | None,
    typer.Option(
        metavar="ALIAS",
        help="A model of hermes models with random weights, which are as fast as its own and not downloaded.",
        show_default=False,
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option("--source", metavar="SRC", help=f"{SOURCE_HELP} Again from its start when it ends.", show_default="noise"),
]
Repetitions = Annotated[int, typer.Option("--repetitions", "-r", metavar="N", min=1, help="Passes that are measured.")]
Warmup = Annotated[int, typer.Option(metavar="N", min=0, help="Passes before them, which take what only first uses cost.")]
QuestionTokens = Annotated[int, typer.Option(metavar="N", min=1, help="Tokens of the question, with its prompt.")]
AnswerTokens = Annotated[int, typer.Option(metavar="N", min=2, help="Tokens of every answer; nothing ends it earlier.")]
Evidence = Annotated[
    bool, typer.Option("--evidence", help="Look which moments an answer drew on too, as hermes watch does.")
]
Reference = Annotated[
    bool,
    typer.Option(
        "--reference",
        help="Measure stock transformers on the same work too: keeping everything, and cut to as many tokens as --budget.",
    ),
]
Soak = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="One pass of so many frames through the first policy instead, measured at ten places: does anything grow?",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Names the noise and the random weights.")]
Output = Annotated[Format, typer.Option("--output", "-o", help="What standard output gets; jsonl: each row once measured.")]
Save = Annotated[
    Path | None,
    typer.Option(metavar="FILE.jsonl", help="Write each row to a file too, once measured.", show_default=False),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE.png|svg", help="Draw the time to the first token over frames.", show_default=False),
]
ProfileFile = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="TRACE.json",
        help="Instead, say where the time of the first policy's last chunk and of an answer goes; the trace is for"
        " chrome://tracing or Perfetto.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


@grouped
def bench(
    model: ModelOptions,
    method: MethodOptions,
    frames: Frames = "16,64,256",
    policy: Policies = "hermes,fifo,full",
    random_weights: RandomWeights = None,
    source: SourceOption = None,
    repetitions: Repetitions = 5,
    warmup: Warmup = 1,
    question_tokens: QuestionTokens = 40,
    answer_tokens: AnswerTokens = 32,
    evidence: Evidence = False,
    reference: Reference = False,
    soak: Soak = None,
    seed: Seed = 0,
    output: Output = "md",
    save: Save = None,
    plot: Plot = None,
    profile: ProfileFile = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Measure speed and memory: how fast frames are read, what forgetting costs, how soon and how fast an answer comes.

    All policies see the same frames. Every number is printed beside the least that this device could do, from its measured
    copy bandwidth and matrix rate. Rows are kept when it is interrupted; a policy that runs out of memory is a row too.
    Without a model it is the embedded one that is measured.
    """
    config, marks = method.config(), numbers(frames)
    if plot:
        check_drawable(plot, force)
    from hermes.bench.arms import Task, arms, check_policies  # noqa: PLC0415 - loads torch
    from hermes.bench.run import Plan  # noqa: PLC0415 - loads torch

    names = list(dict.fromkeys(name.strip() for name in policy.split(",")))
    check_policies(names)
    task = Task(config, model.prompt_style, question_tokens, answer_tokens, evidence)
    plan = Plan(_soak_marks(soak, config) if soak else marks, repetitions, warmup, soak is not None)
    plan.check_chunks(config.chunk_frames)
    pictures = _pictures(source, seed)
    with ExitStack() as files:
        saved = files.enter_context(open_text(save, force)) if save else None
        if profile:
            _check_trace(profile)
            open_bytes(profile, force).close()
            os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # torch's profiler complains of a missing GPU otherwise
        loaded = _load(model, random_weights, seed)
        made = arms(loaded, names[:1] if soak or profile else names, task, reference)
        if profile:
            _profile(made[names[0]], pictures, plan, profile, output)
            return
        settings = {
            **_model_settings(loaded, model), "memory": asdict(config), "plan": asdict(plan),
            "frames": printable(source) if source else f"noise, seed {seed}", "prompt_style": model.prompt_style,
            "question_tokens": question_tokens, "answer_tokens": answer_tokens, "evidence": evidence,
        }  # fmt: skip
        report = _Report(loaded, settings, output, saved)
        with report, _told(quiet or output == "jsonl") as told:
            for name, make in made.items():
                report.measure(name, make, plan, pictures, told)
    if plot:
        _draw(plot, report.records, list(made), force)
    report.check_complete()


class _Report:
    """Takes rows as they are measured, and writes them: at once as JSON lines, at the end, whatever ended it, as a whole."""

    def __init__(self, model: VideoModel, settings: dict[str, Any], output: Format, saved: TextIO | None) -> None:
        from hermes.bench.bound import Work, measure  # noqa: PLC0415 - loads torch
        from hermes.bench.facts import machine, versions  # noqa: PLC0415 - loads torch
        from hermes.bench.peak import PeakMemory  # noqa: PLC0415 - loads torch

        self.records: list[dict[str, Any]] = []
        self._output, self._saved = output, saved
        self._peak = PeakMemory(model.layer_devices)
        self._speed, self._work = measure(model.device, model.dtype), Work.of(model)
        self._common = {
            "settings": settings,
            "device": asdict(self._speed),
            "machine": machine(model.device),
            "versions": versions(),
        }
        self._soaks = settings["plan"]["soak"]

    def __enter__(self) -> _Report:
        return self

    def __exit__(self, *unused: object) -> None:
        soak = soak_record(self.records, self._peak.key) if self._soaks else None
        if soak:
            self._write({**soak, **self._common})
        if not self.records:
            return
        if self._output == "json":
            write_out(json_line({"results": self.records, **({"soak": soak} if soak else {})}))
        elif self._output == "csv":
            write_out(csv_text(self.records))
        elif self._output == "md":
            write_out(markdown(self.records, self._peak.key, soak))

    def measure(
        self,
        name: str,
        make: Callable[[], Arm],
        plan: Plan,
        pictures: Callable[[], Iterator[Frame]],
        tell: Callable[[str], None],
    ) -> None:
        """Measure one arm; what it has measured is kept when it is interrupted."""
        from hermes.bench.run import ArmRun, free_memory  # noqa: PLC0415 - loads torch

        run = ArmRun(name, make, plan, pictures, self._peak, tell)
        try:
            run.run()
        finally:
            for row in run.rows():
                now = datetime.now(timezone.utc).isoformat(timespec="seconds")
                record = row_record(row, self._peak.key, self._work, self._speed)
                self.records.append({**record, "utc": now, **self._common})
                self._write(self.records[-1])
        free_memory()

    def _write(self, record: dict[str, Any]) -> None:
        if self._output == "jsonl":
            write_out(json_line(record))
        if self._saved:
            self._saved.write(json_line(record))
            self._saved.flush()

    def check_complete(self) -> None:
        """Raises `PartialError` where a row could not be measured."""
        failed = [record for record in self.records if record["status"] != "ok"]
        if failed:
            first = failed[0]
            what = f"{first['arm']} at {first['frames']} frames: {first['message']}"
            hint = "the others are good; fewer --frames, a smaller --chunk or a smaller --budget need less"
            raise PartialError(f"{len(failed)} of {len(self.records)} rows could not be measured; {what}", hint)


def _load(options: ModelOptions, alias: str | None, seed: int) -> VideoModel:
    if alias is None:
        return load_checkpoint(options)
    if options.model is not None:
        raise UsageError("--random-weights excludes --model and HERMES_MODEL", "leave one of them out")
    if options.quant != "none":
        raise UsageError("random weights are not quantised", "leave --quant out, or give a checkpoint with --model")
    from hermes.models.random_weights import random_model  # noqa: PLC0415 - loads torch

    model = random_model(alias, options.device, options.dtype, seed)
    if options.max_pixels is not None:
        model.limit_pixels(options.max_pixels)
    return model


def _model_settings(model: VideoModel, options: ModelOptions) -> dict[str, Any]:
    dtype = str(model.dtype).removeprefix("torch.")
    return {"model": model.name, "revision": model.revision, "dtype": dtype, "quant": options.quant}


def _soak_marks(frames: int, config: MemoryConfig) -> tuple[int, ...]:
    """Ten places evenly over so many frames, at the ends of chunks."""
    chunks = frames // config.chunk_frames
    if chunks < SOAK_MARKS:
        least = SOAK_MARKS * config.chunk_frames
        raise UsageError(f"{frames} frames are too few for {SOAK_MARKS} places", f"give --soak {least} or more")
    return tuple(chunks * place // SOAK_MARKS * config.chunk_frames for place in range(1, SOAK_MARKS + 1))


def _pictures(source: str | None, seed: int) -> Callable[[], Iterator[Frame]]:
    if source is None:
        return lambda: noise(seed)
    opened = open_source(source)
    check_repeatable(opened)
    return lambda: looped(opened)


@contextmanager
def _told(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Where progress is told: one line that changes on a terminal, lines elsewhere."""
    console = Console(file=sys.stderr)
    if quiet:
        yield lambda line: None
    elif console.is_terminal:
        with console.status("measuring") as status:
            yield status.update
    else:
        yield partial(print, file=sys.stderr, flush=True)


def _check_trace(trace: Path) -> None:
    """torch puts another file in its place, which may not happen to a device."""
    if expanded(trace).exists() and not expanded(trace).is_file():
        raise UsageError(f"{trace} is no ordinary file", "give --profile a name of its own")


def _profile(
    make: Callable[[], Arm], pictures: Callable[[], Iterator[Frame]], plan: Plan, trace: Path, output: Format
) -> None:
    from hermes.bench.profiling import profile_arm  # noqa: PLC0415 - loads torch

    profile = profile_arm(make(), pictures(), plan.marks[-1], expanded(trace))
    write_out(profile_markdown(profile) if output == "md" else json_line(profile_record(profile)))
    sys.stderr.write(f"{printable(str(trace))} is the trace\n")


def _draw(path: Path, records: list[dict[str, Any]], names: list[str], force: bool) -> None:
    """The time to the first token over frames, a curve an arm, with one standard deviation to either side."""
    curves = []
    for name in names:
        points = means(records, name, "ttft_ms")
        x, y = [frames for frames, _, _ in points], [mean for _, mean, _ in points]
        low, high = [mean - std for _, mean, std in points], [mean + std for _, mean, std in points]
        curves.append(Curve(name, x, y, low, high))
    draw(path, curves, "frames seen", "time to the first token, ms", log_x=True, force=force)
    sys.stderr.write(f"{printable(str(path))} shows the time to the first token\n")
