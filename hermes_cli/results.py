"""A file of results that an evaluation keeps: what stands against it, and opening it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.errors import UsageError
from hermes.sources.opening import printable
from hermes_cli.failures import NO_SPACE
from hermes_cli.writing import expanded

if TYPE_CHECKING:
    from hermes.evals.journal import Journal


def check_results(file: Path | None, resume: bool, option: str) -> None:
    """Say what stands against a file of results before minutes are spent on loading a model; raises `UsageError`.

    Args:
        option: the one that names the file.
    """
    if file is None:
        if resume:
            raise UsageError("--resume has no file to go on with", f"name it: {option} results.jsonl")
        return
    name, path = printable(str(file)), expanded(file)
    try:
        is_there, has_folder = path.exists(), path.absolute().parent.is_dir()
    except OSError as error:
        raise UsageError(f"cannot write {name}: {error.strerror}", "give another name") from error
    if not has_folder:
        raise UsageError(f"cannot write {name}: its folder is not there", f"make it, or give another name to {option}")
    if is_there and not resume:
        raise UsageError(f"{name} is there already", "give --resume to go on with it, or another name")


def open_results(
    file: Path | None,
    settings: Mapping[str, Any],
    resume: bool,
    is_whole: Callable[[Mapping[str, Any]], bool] = lambda record: True,
) -> Journal:
    """Begin a file of results, or go on with it; arguments as of `Journal`.

    Raises:
        UsageError: as `Journal`, or it cannot be written.
        OSError: the disk is full.
    """
    from hermes.evals.journal import Journal  # noqa: PLC0415 - loads torch

    try:
        return Journal(expanded(file) if file else None, settings, resume, is_whole)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        reason = f"cannot write {printable(str(file))}: {error.strerror}"
        raise UsageError(reason, "check its name and its folder") from error
