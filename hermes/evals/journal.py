"""Results on the disk, one JSON line a sample as it finishes, so that a run that ends early goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes.errors import UsageError
from hermes.sessions.log import Log, append_record, read_log


class Journal:
    """A file of finished samples, begun by a line that says with which settings they were made.

    Args:
        path: of the file; None keeps everything in this process only.
        settings: all that a result depends on, as JSON; results of other settings are never mixed in.
        resume: go on with a file that is already there.
        is_whole: whether a record that is found there holds what a sample should; others are made again.

    Attributes:
        done: finished samples by their `id`, those found in the file and those added since.

    Raises:
        UsageError: the file exists and `resume` is not set, or it holds results of other settings.
        OSError: it cannot be read or written.
    """

    def __init__(
        self,
        path: Path | None,
        settings: Mapping[str, Any],
        resume: bool = False,
        is_whole: Callable[[Mapping[str, Any]], bool] = lambda record: True,
    ) -> None:
        self.path = path
        self.done: dict[str, dict[str, Any]] = {}
        header = {"type": "settings", "fingerprint": fingerprint(settings), "settings": json.loads(json.dumps(settings))}
        if path is None:
            return
        is_new = not path.exists()
        if not (is_new or resume):
            raise UsageError(f"{path} is there already", "give --resume to go on with it, or another name")
        log = read_log(path)
        if is_new or log == Log(path, ()):  # nothing was kept where a run ended before its first line
            append_record(path, header)
            return
        if log.fault is not None:
            raise UsageError(f"{path} cannot be read: {log.fault}", "give another name")
        first = next(iter(log), None)
        if first is None or first.get("fingerprint") != header["fingerprint"]:
            raise UsageError(f"{path} holds results of other settings{_difference(first, header)}", "give another name")
        samples = [record for record in log if record.get("type") == "sample" and isinstance(record.get("id"), str)]
        self.done = {record["id"]: record for record in samples if is_whole(record)}

    def add(self, sample: Mapping[str, Any]) -> None:
        """Keep a finished sample, a JSON object with an `id` of its own; it is on the disk before this returns."""
        record = {"type": "sample", **sample}
        if self.path is not None:
            append_record(self.path, record)
        self.done[record["id"]] = record


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Tells settings apart."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, allow_nan=False).encode()).hexdigest()[:16]


def _difference(first: Mapping[str, Any] | None, header: Mapping[str, Any]) -> str:
    old, new = (first or {}).get("settings"), header["settings"]
    if not isinstance(old, dict):
        return ""
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return f" ({', '.join(names)})"
