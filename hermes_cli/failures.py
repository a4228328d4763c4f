"""Every way a run can fail, as one line, one hint and an exit code."""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass

import typer

from hermes.errors import HermesError, ResourceError, UsageError
from hermes_cli import INTERRUPTED
from hermes_cli.terminal import ReaderGoneError, clean

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Failure:
    """What a user is told.

    Attributes:
        exit_code: of the process.
        message: one line; empty when there is nothing to say.
        hint: what to do about it; may be empty.
        expected: whether this is one of the ways in which we know that a run can fail.
    """

    exit_code: int
    message: str = ""
    hint: str = ""
    expected: bool = True

    @property
    def lines(self) -> list[str]:
        """What is written on standard error."""
        labelled = (("error", self.message), ("hint", self.hint))
        return [f"{label}: {clean(text)}" for label, text in labelled if text]

    @property
    def record(self) -> dict[str, str | int | None]:
        """The same as a JSON object."""
        return {"type": "error", "code": self.exit_code, "message": self.message, "hint": self.hint or None}


def describe(error: BaseException) -> Failure:
    """Turn whatever ended the run into what a user is told."""
    match error:
        case ReaderGoneError():
            return Failure(0)
        case KeyboardInterrupt() | typer.Abort():
            return Failure(INTERRUPTED)
        case HermesError():
            return Failure(error.exit_code, error.message, error.hint)
        case typer.TyperException():
            return Failure(UsageError.exit_code, *_misused(error))
        case OSError() if error.errno in _NO_SPACE:
            return Failure(ResourceError.exit_code, f"cannot write: {error.strerror}", "free some space, or write elsewhere")
    if _out_of_memory(error):
        return Failure(
            ResourceError.exit_code,
            f"out of memory: {_first_line(error)}",
            "keep less with --budget, read less at once with --chunk, or halve the weights with --dtype bf16",
        )
    name = type(error).__name__
    hint = "this is a bug: run it again with -vv to see where it happened, and report that"
    return Failure(1, f"unexpected {name}: {_first_line(error)}", hint, expected=False)


def _misused(error: typer.TyperException) -> tuple[str, str]:
    message = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    if not message:  # a bare `hermes` has printed its help
        return "", ""
    command = getattr(getattr(error, "ctx", None), "command_path", "hermes")
    hint = f"see {command} --help"
    if message.lower().startswith("no such option"):
        hint += "; a name that starts with a dash is written ./-name, or comes after --"
    return message[0].lower() + message[1:], hint


def _out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")  # if it was never imported, it has not run out of memory
    on_device = torch is not None and isinstance(error, torch.OutOfMemoryError)
    return on_device or isinstance(error, MemoryError) or "DefaultCPUAllocator: can't allocate memory" in str(error)


def _first_line(error: BaseException) -> str:
    lines = clean(str(error)).strip().splitlines()
    return lines[0] if lines else "no message"
