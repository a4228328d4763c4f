"""Every way a run can fail, as one line, one hint and an exit code."""

from __future__ import annotations

import errno
import re
import sys
from dataclasses import dataclass

import typer

from hermes.errors import HermesError, ResourceError, UsageError, out_of_memory
from hermes_cli import INTERRUPTED
from hermes_cli.terminal import ReaderGoneError, clean

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of an `OSError` that says that nothing more can be written there."""


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
        case OSError() if error.errno in NO_SPACE:
            return Failure(ResourceError.exit_code, f"cannot write: {error.strerror}", "free some space, or write elsewhere")
    if (lacking := out_of_memory(error)) is not None:
        return Failure(
            ResourceError.exit_code,
            f"out of memory: {_fullness(error)}{lacking}",
            "try --quant 4bit, then a smaller --budget or --chunk, then a smaller model (hermes models lists them)",
        )
    name = type(error).__name__
    hint = "this is a bug: run it again with -vv to see where it happened, and report that"
    return Failure(1, f"unexpected {name}: {_first_line(error)}", hint, expected=False)


def spares_memory(error: Exception) -> bool:
    """Whether the video seen so far can still be asked about after this error of a chunk or an answer."""
    return isinstance(error, HermesError) or out_of_memory(error) is not None


def _misused(error: typer.TyperException) -> tuple[str, str]:
    message = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    if not message:  # a bare `hermes` has printed its help
        return "", ""
    command = getattr(getattr(error, "ctx", None), "command_path", "hermes")
    hint = f"see {command} --help"
    if message.lower().startswith("no such option"):
        hint += "; a name that starts with a dash is written ./-name, or comes after --"
    elif message.startswith("Got unexpected extra argument") and command.endswith(" watch"):
        hint += '; a time and its question go in one pair of quotes: --every "10s QUESTION", --ask "00:20 QUESTION"'
    return message[0].lower() + message[1:], hint


def _fullness(error: BaseException) -> str:
    """How full a GPU is that has run out of memory, to be put in front of what could not be had."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(error, torch.OutOfMemoryError) or not torch.cuda.is_initialized():
        return ""
    named = re.search(r"\bGPU (\d+)", _first_line(error))
    device = f"cuda:{named[1] if named else torch.cuda.current_device()}"
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:  # the device is in no state to be asked
        return ""
    return f"{(total - free) / 2**30:.1f} of {total / 2**30:.1f} GiB on {device} are in use; "


def _first_line(error: BaseException) -> str:
    lines = clean(str(error)).strip().splitlines()
    return lines[0] if lines else "no message"
