"""`hermes sessions`: what was watched and asked, looked through, exported and deleted."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table
from typer.core import TyperGroup

from hermes.errors import SourceError, UsageError
from hermes.sources.opening import printable
from hermes.timecode import format_time
from hermes_cli.export import FORMATS, exported
from hermes_cli.options import OutputOptions
from hermes_cli.screen import Screen
from hermes_cli.tables import rendered, short
from hermes_cli.terminal import json_line, piped_lines, write_out
from hermes_cli.writing import expanded, write_text

if TYPE_CHECKING:
    from hermes.sessions import Log, Session, SessionStore


class _ListByDefault(TyperGroup):
    """`hermes sessions` and `hermes sessions --json` are short for `hermes sessions list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        wants_help = bool(args) and args[0] in self.get_help_option_names(ctx)
        if not wants_help and (not args or args[0].startswith("-")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


sessions = typer.Typer(cls=_ListByDefault, help="What was watched and asked: list (the default), show, export, delete.")

OneSession = Annotated[str | None, typer.Argument(metavar="[ID]", help="ID, its start, or a name; the newest if left out.")]
SeveralSessions = Annotated[list[str], typer.Argument(metavar="ID...", help="IDs, their starts, or names.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
Format = Annotated[
    Literal["txt", "srt", "vtt", "tsv", "json", "md"] | None,
    typer.Option("--format", "-f", help="Of the file.", show_default="by the name of the file, else txt"),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE|FOLDER", help="Where to.", show_default="standard output"),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")]


@sessions.command("list")
def list_sessions(json: Annotated[bool, typer.Option("--json", help="Write one JSON object a line.")] = False) -> None:
    """List the sessions, newest first."""
    store = _store()
    records = [_record(session, _log(session)) for session in store.sessions()]
    for error in store.damaged():
        _warn(error.message)
    if not records and not json:
        Screen(OutputOptions()).note(f"no sessions in {store.folder}; hermes watch SRC makes one")
        return
    write_out("".join(map(json_line, records)) if json else _table(records))


@sessions.command("show")
def show(
    session: OneSession = None, json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False
) -> None:
    """Show what a session is about, the moments that its memory was saved at, and what was asked."""
    chosen = _chosen(session)
    log = _log(chosen)
    record = _record(chosen, log)
    checkpoints = [
        {"time": checkpoint.time_s, "frames": checkpoint.frames, "bytes": checkpoint.nbytes}
        for checkpoint in chosen.checkpoints
    ]
    if json:
        settings = {"settings": chosen.info.settings}
        write_out(json_line({**record, **settings, "checkpoints": checkpoints, "log": list(log.records)}))
        return
    write_out(_facts(chosen, record))
    if checkpoints:
        table = Table("saved at", "frames", "size", box=None, pad_edge=False, header_style="bold")
        for saved in checkpoints:
            table.add_row(format_time(saved["time"]), str(saved["frames"]), short(int(saved["bytes"])))
        write_out(f"\n{rendered(table)}")
    if log.answers:
        write_out(f"\n{exported('txt', chosen.info, log.answers).rstrip()}\n")


@sessions.command("rm")
def remove(several: SeveralSessions, yes: Yes = False) -> None:
    """Delete sessions, with everything in them; a damaged one by its whole ID."""
    store = _store()
    folders = list(dict.fromkeys(map(store.folder_of, several)))
    if yes or _agreed(folders):
        store.remove(*folders)


@sessions.command("path")
def path(session: OneSession = None) -> None:
    """Print the folder of a session."""
    write_out(f"{_chosen(session).folder}\n")


@sessions.command("export")
def export(session: OneSession = None, kind: Format = None, output: Output = None, force: Force = False) -> None:
    """Write questions and answers as text, subtitles, a table, JSON or Markdown."""
    chosen = _chosen(session)
    answers = _log(chosen).answers
    suffix = output.suffix.removeprefix(".").lower() if output else ""
    wanted = kind or (suffix if suffix in FORMATS else "txt")
    text = exported(wanted, chosen.info, answers)
    if output is None:
        write_out(text)
    else:
        folder = expanded(output)
        write_text(folder / f"{chosen.info.id}.{wanted}" if folder.is_dir() else output, text, force)


def _store() -> SessionStore:
    from hermes.sessions import SessionStore  # noqa: PLC0415 - it has no part in --help

    return SessionStore()


def _chosen(written: str | None) -> Session:
    store = _store()
    return store.latest() if written is None else store.find(written)


def _log(session: Session) -> Log:
    """The log; damage to it is told."""
    log = session.log()
    if log.notice:
        _warn(f"session {session.info.id}: {log.notice}")
    return log


def _warn(text: str) -> None:
    Screen(OutputOptions()).warn(text)


def _record(session: Session, log: Log) -> dict[str, Any]:
    info = session.info
    return {
        "type": "session",
        "id": info.id,
        "name": info.name,
        "source": info.source.name,
        "path": info.source.path,
        "model": info.model,
        "revision": info.revision,
        "watched": session.last_s or 0.0,
        "questions": len(log.answers),
        "checkpoints": len(session.checkpoints),
        "bytes": session.nbytes,
        "live": session.is_live,
        "created": info.created,
        "created_local": f"{info.created_at.astimezone():%Y-%m-%d %H:%M}",
        "folder": str(session.folder),
    }


def _table(records: Iterable[dict[str, Any]]) -> str:
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")  # so that 80 columns do
    for heading in ("id", "name", "source", "watched", "asked", "size", "state", "created"):
        folds = heading in ("name", "source")
        justify: Literal["left", "right"] = "right" if heading in ("watched", "asked", "size") else "left"
        table.add_column(heading, justify=justify, no_wrap=not folds, overflow="fold")
    for record in records:
        table.add_row(
            record["id"],
            printable(record["name"] or "-"),
            printable(record["source"]),
            _clock(record["watched"]),
            str(record["questions"]),
            short(record["bytes"]),
            "live" if record["live"] else "ended",
            record["created_local"],
        )
    return rendered(table)


def _clock(seconds: float) -> str:
    """`00:03:12`."""
    return format_time(math.floor(seconds)).removesuffix(".000")


def _facts(session: Session, record: dict[str, Any]) -> str:
    info = session.info
    change = info.source.change()
    facts = {
        "session": info.id,
        "name": info.name,
        "source": f"{info.source.path or info.source.name}{f' ({change})' if change else ''}",
        "model": f"{info.model}{f' ({info.revision})' if info.revision else ''}",
        "watched": _clock(record["watched"]),
        "created": record["created_local"],
        "state": "live" if record["live"] else "ended",
        "size": short(record["bytes"]),
        "folder": str(session.folder),
        "settings": ", ".join(f"{name} {value}" for name, value in _flat(info.settings).items()),
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value:
            table.add_row(name, printable(value))
    return rendered(table)


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Groups of settings without the names of the groups."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value) if isinstance(value, dict) else {name: value}
    return flat


def _agreed(folders: list[Path]) -> bool:
    """Ask on the terminal whether to delete; raises `UsageError` where there is none."""
    if piped_lines() is not None or sys.stdin is None or not sys.stderr.isatty():
        raise UsageError(
            "deleting asks first, and there is no terminal to ask on", "add --yes to delete without being asked"
        )
    from hermes.sessions.session import bytes_in  # noqa: PLC0415 - it has no part in --help

    names, size = ", ".join(map(_named, folders)), short(sum(map(bytes_in, folders)))
    return typer.confirm(f"Delete {names}, {size}?", err=True)


def _named(folder: Path) -> str:
    from hermes.sessions import Session  # noqa: PLC0415

    try:
        info = Session(folder).info
    except SourceError:
        return f"{printable(folder.name)} (damaged)"
    return f"{info.id} ({printable(info.name or info.source.name)})"
