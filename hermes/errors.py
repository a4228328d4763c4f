"""Errors a user can cause or meet, each with the exit code that a script can test.

One tree: the command line turns any `HermesError` into one `error:` line, one `hint:` line and its exit code.
An `assert` is for our own invariants; everything else that a user can trigger raises from here.
"""

import sys


class HermesError(Exception):
    """Base of every error that is shown to a user.

    Args:
        message: what happened and why, one line, no trailing full stop.
        hint: what to do about it, one line; empty when there is nothing to add.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(HermesError):
    """A bad option, question or time."""

    exit_code = 2


class SourceError(HermesError):
    """The source cannot be opened, or holds no picture that can be decoded."""

    exit_code = 3


class ModelError(HermesError):
    """The model cannot be loaded or run."""

    exit_code = 4


class ResourceError(HermesError):
    """Out of memory or disk."""

    exit_code = 5


class PartialError(HermesError):
    """The work ended early; everything written so far is good."""

    exit_code = 6


def out_of_memory(error: BaseException) -> str | None:
    """What could not be had, in a sentence or two, where the machine or an accelerator ran out of memory; None elsewhere."""
    torch = sys.modules.get("torch")  # if it was never imported, it has not run out of memory
    on_device = torch is not None and isinstance(error, torch.OutOfMemoryError)
    on_cpu = isinstance(error, MemoryError) or "DefaultCPUAllocator: can't allocate memory" in str(error)
    if not (on_device or on_cpu):
        return None
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ". ".join(line.split(". ")[:2])  # torch goes on with a paragraph about its allocator
