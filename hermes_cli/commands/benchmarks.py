"""`hermes eval BENCHMARK`: public benchmarks, every video played once, results on the disk as they come."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import typer

from hermes import __version__
from hermes.config import MemoryConfig, Sampling
from hermes.errors import PartialError, SourceError, UsageError
from hermes.evals.annotations import is_there
from hermes.evals.datasets import DATASETS, Benchmark
from hermes.evals.judge import Judge
from hermes.evals.question import Question, Questions
from hermes.evals.summary import is_record
from hermes_cli.knobs import grouped
from hermes_cli.loading import load_checkpoint
from hermes_cli.marking import Marking, note, warn
from hermes_cli.options import MethodOptions, ModelOptions
from hermes_cli.results import check_results, open_results
from hermes_cli.scores import write_scores

if TYPE_CHECKING:
    from hermes.evals.benchmark import Asking
    from hermes.models import VideoModel

Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder of the benchmark: annotations and videos.")]
Policies = Annotated[str, typer.Option("--policy", metavar="NAME,...", help="Memory policies to compare.")]


@dataclass(frozen=True)
class DataOptions:
    """Which questions are asked, and where results go."""

    annotations: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The annotation file.", show_default="its usual name in the folder")
    ] = None
    fps: Annotated[float, typer.Option(metavar="RATE", min=0.001, max=1000, help="Frames taken per second of video.")] = 1.0
    still_fps: Annotated[
        float | None,
        typer.Option(
            metavar="RATE", min=0.001, max=1000, help="Pictures a second of .npy arrays and folders that state none."
        ),
    ] = None
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the first N videos.")] = None
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Only every N-th video, from the I-th on; hermes eval merge puts results together.",
            show_default="the process of accelerate launch or torchrun, 1/1 without",
        ),
    ] = None
    results: Annotated[
        Path | None,
        typer.Option("--results", "-o", metavar="FILE", help="Write each answer there as it comes, as JSON lines."),
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the results that are in that file.")] = False
    json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False


@dataclass(frozen=True)
class AskingOptions:
    """How questions are put, and how open answers are judged."""

    open: Annotated[bool, typer.Option("--open", help="Ask multiple choices without their options; a judge compares.")] = (
        False
    )
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Longest answer, in tokens.", show_default="16 for a choice, 256 for an open answer"
        ),
    ] = None
    judge_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="An endpoint of OpenAI's kind that judges open answers; its key is in HERMES_JUDGE_KEY."
        ),
    ] = None
    judge_model: Annotated[str | None, typer.Option(metavar="NAME", help="The model that judges.")] = None

    def judge(self) -> Judge | None:
        """Who judges open answers; raises `UsageError` for half of it."""
        if self.judge_url is None and self.judge_model is None:
            return None
        if self.judge_url is None or self.judge_model is None:
            raise UsageError("a judge is an address and a model", "give both --judge-url and --judge-model")
        return Judge(self.judge_url, self.judge_model, os.environ.get("HERMES_JUDGE_KEY"))


@dataclass(frozen=True)
class Shard:
    """A part of the videos, `index` of `count`, counted from 1; `rank` is that of the process where a launcher set it."""

    index: int
    count: int
    rank: int | None = None

    @classmethod
    def of(cls, written: str | None) -> Shard:
        """The part that is asked for, or else this process's of those that a launcher started; raises `UsageError`."""
        if written is None:
            rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
            if rank.isdecimal() and world.isdecimal() and int(rank) < int(world) and int(world) > 1:
                return cls(int(rank) + 1, int(world), int(rank))
            return cls(1, 1)
        index, slash, count = written.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise UsageError(f"{written!r} is no part of the videos", "write it as 1/4, 2/4, ... 4/4")
        return cls(int(index), int(count))

    def file(self, results: Path | None) -> Path | None:
        """Where this part's results go; raises `UsageError` where they would be lost."""
        if self.rank is None:
            return results
        if results is None:
            raise UsageError("several processes need a place for their results", "give one: -o results.jsonl")
        return results.with_name(f"{results.stem}.rank{self.rank}{results.suffix}")


def add_benchmarks(evaluations: typer.Typer) -> None:
    """Make a command of every benchmark, and one that puts results together."""
    for name, benchmark in DATASETS.items():
        evaluations.command(name, help=_help(benchmark))(grouped(_command(name)))
    evaluations.command("merge")(merge)


def _help(benchmark: Benchmark) -> str:
    return (
        f"{benchmark.title}.\n\nEvery video is played once and asked at the questions' moments; an answer depends on "
        "nothing later, nor on other questions. Every record is scored by the benchmark's own rule and by ours."
    )


def _command(name: str) -> Callable[..., None]:
    def run(
        data: Data,
        chosen: DataOptions,
        asked: AskingOptions,
        model: ModelOptions,
        method: MethodOptions,
        policy: Policies = "hermes",
    ) -> None:
        shard, judge, config = Shard.of(chosen.shard), asked.judge(), method.config()
        file = shard.file(chosen.results)
        check_results(file, chosen.resume, "-o")
        found = DATASETS[name].load(data, chosen.annotations, chosen.still_fps)
        videos = _videos(found, chosen.limit, shard)
        policies = _policies(policy)
        if judge is None and any(asked.open or question.choices is None for video in videos for question in video):
            note("open answers are recorded without a score; --judge-url and --judge-model have them judged")
        loaded = load_checkpoint(_placed(model))
        asking = _asking(DATASETS[name], chosen, asked, model)
        settings = _settings(name, found, loaded, config, asking, model)
        journal = open_results(file, settings | {"shard": f"{shard.index}/{shard.count}"}, chosen.resume, is_record)
        marking = Marking(DATASETS[name], asking, judge, journal)
        try:
            marking.judge_again()
            marking.over(loaded, config, policies, videos)
        finally:
            records = marking.records(policies, videos)
            if shard.rank is None:
                write_scores(name, settings, records, marking.counts, chosen.json)
            else:
                note(f"{len(records)} answers in {file}; hermes eval merge puts those of all processes together")
        if any(marking.counts.values()):
            missing = "{not_asked} questions were not asked, {unjudged} answers not judged".format(**marking.counts)
            raise PartialError(missing, "the warnings say why; --resume tries only those again")

    return run


def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results of the parts of one evaluation.")],
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
) -> None:
    """Put several files of results together, made with the same settings, and show their summary."""
    settings: dict[str, Any] | None = None
    records: dict[str, Mapping[str, Any]] = {}
    for file in files:
        own, found = _read_results(file)
        if settings is not None and own != settings:
            names = ", ".join(sorted(key for key in {*own, *settings} if own.get(key) != settings.get(key)))
            reason = f"{file} was made with other settings than {files[0]} ({names})"
            raise UsageError(reason, "merge parts of one evaluation")
        settings = own
        records |= {record["id"]: record for record in found}
    assert settings is not None
    judges = sorted({record["judge"] for record in records.values() if record.get("judge")})
    if len(judges) > 1:
        raise UsageError(f"the files hold verdicts of several judges ({', '.join(judges)})", "merge those of one judge")
    total = settings["questions"]
    for policy, count in Counter(record["policy"] for record in records.values()).items():
        if count < total:
            warn(f"{policy}: {total - count} of {total} questions have no answer in these files")
    write_scores(settings["benchmark"], settings, list(records.values()), {}, as_json)


def _read_results(file: Path) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
    """The settings of a file of results, without which part it is, and its records; raises `UsageError`."""
    from hermes.sessions.log import read_log  # noqa: PLC0415 - loads torch

    log = read_log(file)
    settings = next(iter(log), {}).get("settings")
    if log.fault is not None or not _is_settings(settings):
        reason = log.fault or ("it holds no results of a benchmark" if is_there(file) else "no such file")
        raise UsageError(f"{file} cannot be read: {reason}", "give files that hermes eval has written with -o")
    if log.notice:
        warn(log.notice)
    samples = [record for record in log if record.get("type") == "sample"]
    records: list[Mapping[str, Any]] = [record for record in samples if is_record(record)]
    if len(records) < len(samples):
        warn(f"{file}: {len(samples) - len(records)} of {len(samples)} records are damaged and not counted")
    return {key: value for key, value in settings.items() if key != "shard"}, records


def _is_settings(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it holds what is read of the settings of a file of results."""
    if not isinstance(value, dict) or not isinstance(value.get("left_out"), dict):
        return False
    counts = [value.get("questions"), value.get("skipped_rows"), *value["left_out"].values()]
    return value.get("benchmark") in list(DATASETS) and all(type(count) is int for count in counts)


def _videos(found: Questions, limit: int | None, shard: Shard) -> list[list[Question]]:
    """The questions of each video of this part; raises `SourceError` where none of the videos is there."""
    from hermes.evals.benchmark import by_video  # noqa: PLC0415 - loads torch

    for skipped in found.skipped:
        warn(f"skipped {skipped}")
    for kind, count in found.left_out:
        note(f"questions left out: {count} ({kind})")
    videos = by_video(found.questions)[:limit][shard.index - 1 :: shard.count]
    if videos and not any(is_there(questions[0].video.path) for questions in videos):
        where = videos[0][0].video.path
        raise SourceError(f"none of the {len(videos)} videos is there: looked for {where}", "download them there")
    return videos


def _policies(written: str) -> list[str]:
    from hermes.policies import POLICIES  # noqa: PLC0415 - loads torch

    names = [name.strip() for name in written.split(",")]
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise UsageError(f"unknown memory policy {unknown[0]!r}", f"choose among: {', '.join(POLICIES)}")
    return list(dict.fromkeys(names))


def _asking(benchmark: Benchmark, data: DataOptions, asked: AskingOptions, model: ModelOptions) -> Asking:
    from hermes.evals.benchmark import Asking  # noqa: PLC0415 - loads torch

    closed = Sampling(max_new_tokens=asked.max_new_tokens or 16, evidence=False)
    long = Sampling(max_new_tokens=asked.max_new_tokens or 256, evidence=False)
    return Asking(data.fps, benchmark.wording, closed, long, asked.open, model.prompt_style)


def _placed(model: ModelOptions) -> ModelOptions:
    """Each process of a launcher on a GPU of its own, where the user does not say which."""
    rank = os.environ.get("LOCAL_RANK", "")
    if model.device != "auto" or not rank.isdecimal():
        return model
    import torch  # noqa: PLC0415 - so that `--help` is quick

    return replace(model, device=f"cuda:{rank}") if int(rank) < torch.cuda.device_count() else model


def _settings(
    name: str,
    found: Questions,
    loaded: VideoModel,
    config: MemoryConfig,
    asking: Asking,
    options: ModelOptions,
) -> dict[str, Any]:
    """All that an answer depends on, as JSON; who judges it is in its record."""
    settings = {
        "benchmark": name,
        "hermes": __version__,
        "annotations": found.annotations.name,
        "questions": len(found.questions),
        "skipped_rows": len(found.skipped),
        "left_out": dict(found.left_out),
        "questions_sha256": hashlib.sha256(repr([_identity(question) for question in found.questions]).encode()).hexdigest(),
        "model": {"name": loaded.name, "revision": loaded.revision, "dtype": str(loaded.dtype), "quant": options.quant},
        "max_pixels": options.max_pixels,
        "memory": asdict(config),
        "asking": asdict(asking),
    }
    plain: dict[str, Any] = json.loads(json.dumps(settings))  # as it will be read back
    return plain


def _identity(question: Question) -> tuple[Any, ...]:
    """A question without where its video is on this machine."""
    clip = question.video
    return (replace(question, video=replace(clip, path=Path(clip.path.name))),)
