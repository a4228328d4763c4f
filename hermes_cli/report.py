"""The rows of `hermes bench`: taken as they are measured, written at once or as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, TextIO

from hermes.errors import PartialError
from hermes_cli.measurements import csv_text, markdown, row_record, soak_record
from hermes_cli.terminal import json_line, write_out

if TYPE_CHECKING:
    from hermes.bench.arms import Arm
    from hermes.bench.run import Plan
    from hermes.frames import Frame
    from hermes.models import VideoModel

Format = Literal["md", "csv", "json", "jsonl"]


class Report:
    """Takes rows as they are measured, and writes them: at once as JSON lines, at the end, whatever ended it, as a whole.

    Args:
        model: whose devices are measured first, for what they could do at best.
        settings: all that the rows depend on, the plan as `plan`; a part of every record.
        output: what standard output gets.
        saved: gets every row as a JSON line.

    Attributes:
        records: of the rows so far.
    """

    def __init__(self, model: VideoModel, settings: dict[str, Any], output: Format, saved: TextIO | None) -> None:
        from hermes.bench.bound import Work, measure  # noqa: PLC0415 - loads torch
        from hermes.bench.facts import machine, versions  # noqa: PLC0415 - loads torch
        from hermes.bench.peak import PeakMemory  # noqa: PLC0415 - loads torch

        self.records: list[dict[str, Any]] = []
        self._output, self._saved = output, saved
        self._peak = PeakMemory(model.layer_devices)
        self._speed, self._work = measure(model.device, model.dtype), Work.of(model)
        self._common = {
            "settings": settings,
            "device": asdict(self._speed),
            "machine": machine(model.device),
            "versions": versions(),
        }
        self._soaks = settings["plan"]["soak"]

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *unused: object) -> None:
        soak = soak_record(self.records, self._peak.key) if self._soaks else None
        if soak:
            self._write({**soak, **self._common})
        if not self.records:
            return
        if self._output == "json":
            write_out(json_line({"results": self.records, **({"soak": soak} if soak else {})}))
        elif self._output == "csv":
            write_out(csv_text(self.records))
        elif self._output == "md":
            write_out(markdown(self.records, self._peak.key, soak))

    def measure(
        self,
        name: str,
        make: Callable[[], Arm],
        plan: Plan,
        pictures: Callable[[], Iterator[Frame]],
        tell: Callable[[str], None],
    ) -> None:
        """Measure one arm; what it has measured is kept when it is interrupted. Arguments as `ArmRun`."""
        from hermes.bench.run import ArmRun, free_memory  # noqa: PLC0415 - loads torch

        run = ArmRun(name, make, plan, pictures, self._peak, tell)
        try:
            run.run()
        finally:
            for row in run.rows():
                now = datetime.now(timezone.utc).isoformat(timespec="seconds")
                record = row_record(row, self._peak.key, self._work, self._speed)
                self.records.append({**record, "utc": now, **self._common})
                self._write(self.records[-1])
        free_memory()

    def _write(self, record: dict[str, Any]) -> None:
        if self._output == "jsonl":
            write_out(json_line(record))
        if self._saved:
            self._saved.write(json_line(record))
            self._saved.flush()

    def check_complete(self) -> None:
        """Raises `PartialError` where a row could not be measured."""
        failed = [record for record in self.records if record["status"] != "ok"]
        if not failed:
            return
        first = failed[0]
        what = f"{first['arm']} at {first['frames']} frames: {first['message']}"
        kept = "the others are good; " if len(failed) < len(self.records) else ""
        hint = f"{kept}fewer --frames, a smaller --chunk or a smaller --budget need less"
        raise PartialError(f"{len(failed)} of {len(self.records)} rows could not be measured; {what}", hint)
