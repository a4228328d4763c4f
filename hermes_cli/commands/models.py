"""`hermes models`: the models that have a short name, and which of them this machine can run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from hermes.catalog import CATALOG, PRECISIONS, TINY, KnownModel
from hermes_cli.choosing import Room
from hermes_cli.hub import cached
from hermes_cli.options import CacheFolder
from hermes_cli.tables import rendered, short
from hermes_cli.terminal import json_line, write_out

_DISPENSABLE = ("Hugging Face id", "on disk", "tokens a frame", "parameters", "8bit", "4bit", "memory bf16")
"""Columns that a narrow terminal does without, in this order; --json and a pipe have them all."""

AsJson = Annotated[bool, typer.Option("--json", help="Write one JSON object a line; sizes are in bytes.")]


def models(as_json: AsJson = False, cache_dir: CacheFolder = None) -> None:
    """List the models that have a short name, best first.

    Memory is what playing a video takes at the default budget: weights, KV cache, and room to work in. A machine without a
    GPU is for the two smallest only; they run there in float32.
    """
    room = Room.here()
    records = [_record(model, room) for model in CATALOG]
    write_out("".join(map(json_line, records)) if as_json else _table(records, room))


def _record(model: KnownModel, room: Room) -> dict[str, Any]:
    return {
        "alias": model.alias,
        "model": model.hub_id,
        "parameters": model.parameters,
        "disk_bytes": model.disk_bytes,
        "frame_tokens": model.frame_tokens,
        "frame_tokens_vary": model.frame_tokens_vary,
        "memory_bytes": {precision: model.memory_bytes(precision) for precision in PRECISIONS},
        "cached": model is TINY or cached(str(model.hub_id)) is not None,
        "fits": list(room.precisions(model)),
    }


def _table(records: list[dict[str, Any]], room: Room) -> str:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("alias", "Hugging Face id"):
        table.add_column(heading, no_wrap=True)
    for heading in ("parameters", "on disk", "tokens a frame", "memory bf16", "8bit", "4bit"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("cached", "fits this machine"):
        table.add_column(heading, no_wrap=True)
    for record in records:
        table.add_row(*_cells(record))
    return f"{rendered(table, _DISPENSABLE)}\n{_machine(room)}\n"


def _cells(record: dict[str, Any]) -> Iterator[str]:
    yield record["alias"]
    yield record["model"] or "in this package"
    yield short(record["parameters"], ("B", "M"))
    yield short(record["disk_bytes"])
    yield f"up to {record['frame_tokens']}" if record["frame_tokens_vary"] else str(record["frame_tokens"])
    yield from (short(record["memory_bytes"][precision]) for precision in ("bf16", "8bit", "4bit"))
    yield "yes" if record["cached"] else "no"
    yield ", ".join(record["fits"]) or "no"


def _machine(room: Room) -> str:
    """What the last column is about."""
    found = [f"{accelerator.label} with {short(accelerator.total_bytes)}" for accelerator in room.accelerators]
    return f"This machine: {', '.join(found) or f'no GPU, {short(room.host_bytes)} of memory'}."
