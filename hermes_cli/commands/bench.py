"""`hermes bench`: how fast it is on this machine, memory policies side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hermes.errors import UsageError
from hermes.sources.opening import printable
from hermes_cli.bench_options import PlanOptions, ResultOptions, SubjectOptions, WorkOptions
from hermes_cli.drawing.curves import Curve, check_drawable, draw
from hermes_cli.knobs import grouped
from hermes_cli.measurements import means, profile_markdown, profile_record
from hermes_cli.options import MethodOptions, ModelOptions
from hermes_cli.report import Format, Report
from hermes_cli.terminal import json_line, write_out
from hermes_cli.writing import expanded, open_bytes, open_text

if TYPE_CHECKING:
    from hermes.bench.arms import Arm, Task
    from hermes.bench.run import Plan
    from hermes.frames import Frame
    from hermes.models import VideoModel


@grouped
def bench(
    model: ModelOptions,
    method: MethodOptions,
    schedule: PlanOptions,
    work: WorkOptions,
    subject: SubjectOptions,
    result: ResultOptions,
) -> None:
    """Measure speed and memory: how fast frames are read, what forgetting costs, how soon and how fast an answer comes.

    All policies see the same frames. Every number is printed beside the least that this device could do, from its measured
    copy bandwidth and matrix rate. Rows are kept when it is interrupted; a policy that runs out of memory is a row too.
    Without a model it is the embedded one that is measured.
    """
    config = method.config()
    work.check_room(config)
    if result.plot:
        check_drawable(result.plot, result.force)
    plan, names, pictures = schedule.plan(config), work.policies(), subject.pictures()
    from hermes.bench.arms import arms  # noqa: PLC0415 - loads torch

    with ExitStack() as files:
        saved = files.enter_context(open_text(result.save, result.force)) if result.save else None
        if result.profile:
            _prepare_trace(result.profile, result.force)
        loaded = subject.load(model)
        task = work.task(config, model.prompt_style)
        made = arms(loaded, names[:1] if plan.soak or result.profile else names, task, work.reference)
        if result.profile:
            _profile(made[names[0]], pictures, plan, result.profile, result.output)
            return
        report = Report(loaded, _settings(loaded, model, task, plan, subject.name), result.output, saved)
        with report, _told(result.quiet or result.output == "jsonl") as told:
            for name, make in made.items():
                report.measure(name, make, plan, pictures, told)
    if result.plot:
        _draw(result.plot, report.records, list(made), result.force)
    report.check_complete()


def _settings(model: VideoModel, options: ModelOptions, task: Task, plan: Plan, played: str) -> dict[str, Any]:
    """All that the rows depend on."""
    from hermes.tower import runs_beside  # noqa: PLC0415 - loads torch

    return {
        "model": model.name,
        "revision": model.revision,
        "dtype": str(model.dtype).removeprefix("torch."),
        "quant": options.quant,
        "memory": asdict(task.config),
        "plan": asdict(plan),
        "frames": played,
        "prompt_style": task.prompt_style,
        "question_tokens": task.question_tokens,
        "answer_tokens": task.answer_tokens,
        "evidence": task.evidence,
        "looks_ahead": runs_beside(model),
    }


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


def _prepare_trace(trace: Path, force: bool) -> None:
    """Refuse a place that the trace cannot have, and keep torch's profiler from talking on standard error."""
    if expanded(trace).exists() and not expanded(trace).is_file():  # torch would put another file in a device's place
        raise UsageError(f"{trace} is no ordinary file", "give --profile a name of its own")
    open_bytes(trace, force).close()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # above all levels: a missing GPU is an error there, each start a line


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
