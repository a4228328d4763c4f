"""Measurements of `hermes bench` as JSON objects, as CSV and as Markdown tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes.sources.base import counted
from hermes_cli.terminal import clean

if TYPE_CHECKING:
    from hermes.bench.bound import Speed, Work
    from hermes.bench.profiling import Profile
    from hermes.bench.run import Row

SOAKED = ("ttft_ms", "tpot_ms", "compress_ms")
"""Figures that must not grow while a film goes on, apart from the peak of memory."""

_FIGURES = (
    "encode_fps", "vision_ms", "prefill_ms", "compress_ms", "compress_share", "ttft_ms", "ttft_plus_step_ms", "tpot_ms",
)  # fmt: skip
_BOUNDED = {"prefill_ms", "ttft_ms", "tpot_ms"}


def row_record(row: Row, peak_key: str, work: Work, speed: Speed) -> dict[str, Any]:
    """What was measured in a row; figures are objects with mean, std, p50, p99 and samples, or null."""
    record: dict[str, Any] = {"type": "bench", "arm": row.arm, "frames": row.frames, "status": row.status}
    record["message"] = row.message or None
    if row.samples is None:
        return record
    answer, chunk, held = row.samples.answers[-1], row.samples.chunks[-1], row.samples.held
    record |= {"kv_tokens": held, "kv_mib": row.samples.kv_mib, peak_key: row.samples.peak_mib}
    record |= {
        "chunk_tokens": chunk.tokens,
        "question_tokens": answer.question_tokens,
        "answer_tokens": answer.answer_tokens,
    }
    record |= {name: spread.record() if spread else None for name, spread in row.figures.items()}
    record["least"] = {
        "prefill_ms": work.least_prefill_ms(speed, chunk.behind, chunk.tokens),
        "ttft_ms": work.least_ttft_ms(speed, held, answer.question_tokens),
        "tpot_ms": work.least_tpot_ms(speed, held + answer.question_tokens),
    }
    return record


def soak_record(records: Sequence[Mapping[str, Any]], peak_key: str) -> dict[str, Any] | None:
    """Means at the last mark over those at the first; None for fewer than two. A figure that is missing there is null."""
    measured = [record for record in records if record["status"] == "ok"]
    if len(measured) < 2:
        return None
    first, last = measured[0], measured[-1]
    ratios = {name: _ratio(first[name], last[name]) for name in SOAKED}
    ratios[peak_key] = last[peak_key] / first[peak_key]
    return {"type": "soak", "arm": first["arm"], "frames": [first["frames"], last["frames"]], "last_over_first": ratios}


def _ratio(first: Mapping[str, float] | None, last: Mapping[str, float] | None) -> float | None:
    return last["mean"] / first["mean"] if first and last and first["mean"] else None


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """A line a record, nested names joined by dots; samples are only in JSON."""
    flat = [dict(_flattened(record)) for record in records]
    columns = list(dict.fromkeys(name for record in flat for name in record))
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return file.getvalue()


def _flattened(record: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in record.items():
        if isinstance(value, Mapping):
            found += _flattened(value, f"{prefix}{name}.")
        elif name != "samples":
            found.append((prefix + name, value))
    return found


def markdown(records: Sequence[Mapping[str, Any]], peak_key: str, soak: Mapping[str, Any] | None = None) -> str:
    """A row a record: mean ± standard deviation, and in brackets the least that the device allows; then what it rests on."""
    head = ["arm", "frames", "kv_tokens", "kv_mib", peak_key, *_FIGURES]
    lines = [_line(head), "|" + "---|" * 2 + "---:|" * (len(head) - 2)]
    lines += [_line(_cells(record, peak_key)) for record in records]
    if soak:
        ratios = {**dict.fromkeys(head[2:], ""), **{name: _times(x) for name, x in soak["last_over_first"].items()}}
        lines.append(_line([soak["arm"], "last / first", *(ratios[name] for name in head[2:])]))
    return "\n".join([*lines, "", *_remarks(records)]) + "\n"


def _cells(record: Mapping[str, Any], peak_key: str) -> list[str]:
    if record["status"] != "ok":
        return [record["arm"], str(record["frames"]), record["status"], *[""] * (len(_FIGURES) + 2)]
    sizes = [str(record["kv_tokens"]), f"{record['kv_mib']:.1f}", f"{record[peak_key]:.0f}"]
    return [record["arm"], str(record["frames"]), *sizes, *(_cell(record, name) for name in _FIGURES)]


def _cell(record: Mapping[str, Any], name: str) -> str:
    spread = record[name]
    if spread is None:
        return ""
    if name == "compress_share":
        return f"{spread['mean']:.0%}"
    bound = f" (≥ {_number(record['least'][name])})" if name in _BOUNDED else ""
    return f"{_number(spread['mean'])} ± {_number(spread['std'])}{bound}"


def _number(value: float) -> str:
    """Three digits that count, as far as they are behind the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"x {ratio:.2f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _remarks(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the figures were measured on and with, as a list."""
    record = records[0]
    settings, machine, versions, device = (record[name] for name in ("settings", "machine", "versions", "device"))
    memory, plan = settings["memory"], settings["plan"]
    where = machine["gpu"] or f"{machine['cpu']}, {machine['logical_cores']} cores, {counted(machine['threads'], 'thread')}"
    passes = "one pass" if plan["soak"] or plan["repetitions"] == 1 else f"{plan['repetitions']} passes"
    failed = {record["arm"]: clean(f"- {record['arm']}: {record['message']}") for record in records if record["message"]}
    beside = ["- vision_ms of a policy passes beside its work on the chunk before; stock does one after the other"]
    return [
        *failed.values(),
        f"- {settings['model']}, {settings['dtype']}, quant {settings['quant']}, budget {memory['budget']}, chunks of"
        f" {memory['chunk_frames']} frames, guidance {memory['guidance']}, frames: {settings['frames']}; {passes} after"
        f" {plan['warmup']} for warming up, mean ± standard deviation; {settings['answer_tokens']} tokens an answer",
        f"- {where}; Python {versions['python']}, PyTorch {versions['torch']}, transformers {versions['transformers']},"
        f" hermes {versions['hermes']} ({versions['commit'] or 'no checkout'})",
        f"- ≥ is the least at the {device['copy_gb_s']:.1f} GB/s of a copy and the {device['matrix_tflop_s']:.3g} TFLOP/s"
        " of a matrix product, both measured just before",
        *(beside if settings["looks_ahead"] else []),
        "- figures of reading are those of the chunk that ends there; ttft_ms goes from the question's text to the choice of"
        " the first token, ttft_plus_step_ms adds one decode step, as the HERMES authors' code does",
    ]


def profile_record(profile: Profile) -> dict[str, Any]:
    """Where the time of one chunk and one answer went."""
    return {
        "type": "profile",
        "frames": profile.frames,
        "stages_ms": profile.stages_ms,
        "operators": [{"name": each.name, "calls": each.calls, "self_ms": each.self_ms} for each in profile.operators],
    }


def profile_markdown(profile: Profile) -> str:
    """Two tables: stages, and operators by their own time."""
    total = sum(profile.stages_ms.values())
    lines = ["| stage | ms | share |", "|---|---:|---:|"]
    lines += [_line([name, f"{ms:.2f}", f"{ms / total:.0%}"]) for name, ms in profile.stages_ms.items()]
    lines += ["", "| operator | calls | ms in itself |", "|---|---:|---:|"]
    lines += [_line([each.name, str(each.calls), f"{each.self_ms:.2f}"]) for each in profile.operators]
    return "\n".join(lines) + "\n"


def means(records: Sequence[Mapping[str, Any]], arm: str, figure: str) -> list[tuple[int, float, float]]:
    """Frames, mean and standard deviation of a figure of an arm, where it was measured."""
    return [
        (record["frames"], record[figure]["mean"], record[figure]["std"])
        for record in records
        if record["arm"] == arm and record.get(figure)
    ]
