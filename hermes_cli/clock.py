"""Moments as people read them: to the second."""

from __future__ import annotations

from hermes.events import Moment
from hermes.timecode import format_time


def clock(seconds: float) -> str:
    """`00:03:12`."""
    return format_time(seconds)[: -len(".000")]


def moment_text(moment: Moment) -> str:
    """`00:10-00:19 (62 %)`, with hours where there are any; one time where only the newest frame counts."""
    times = dict.fromkeys(clock(second).removeprefix("00:") for second in (moment.start_s, moment.end_s))
    return f"{'-'.join(times)} ({100 * moment.share:.0f} %)"
