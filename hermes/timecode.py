"""How a moment of a film is written: `03:20`, `1:02:03.5`, `1h02m`, `-30s`, `50%`, `start`, `end`, `now`, `#120`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from hermes.errors import UsageError

_EXAMPLES = "write a time as 03:20, 1:02:03.5, 50%, -30s or end"

_UNITS = {
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
    "us": Fraction(1, 1_000_000),
}
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"  # bounded, so that no text can make a number too large for a float
_SIGNED = re.compile(r"([+-]?)(.*)", re.DOTALL)
_CLOCK = re.compile(r"[0-9]{1,12}(?::[0-5]?[0-9]){1,2}(?:[.,][0-9]{1,12})?")
_SPAN = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _UNITS))
_PLAIN = re.compile(_NUMBER)
_PERCENT = re.compile(rf"({_NUMBER})%")
_FRAME = re.compile(r"#([0-9]{1,12})")


class Anchor(Enum):
    """What the value of a `TimePoint` is counted from."""

    ABSOLUTE = "absolute"  # seconds after the first frame
    FORWARD = "forward"  # seconds after the playhead
    BACK = "back"  # seconds before the playhead, or before the end
    PERCENT = "percent"  # 0 to 100, of the known duration
    FRAME = "frame"  # number of a sampling tick, the first is 0
    START = "start"
    END = "end"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class TimePoint:
    """A moment as it was written; `resolve` turns it into seconds once the film is known."""

    anchor: Anchor
    value: float = 0.0


def parse(text: str) -> TimePoint:
    """Read a time as a user writes it.

    Raises:
        UsageError: the text is not a time; the hint shows some that are.
    """
    written = text.strip().lower()
    if written in ("start", "end", "now"):
        return TimePoint(Anchor(written))
    if (percent := _PERCENT.fullmatch(written)) and float(percent[1]) <= 100:
        return TimePoint(Anchor.PERCENT, float(percent[1]))
    if frame := _FRAME.fullmatch(written):
        return TimePoint(Anchor.FRAME, float(frame[1]))
    signed = _SIGNED.fullmatch(written)
    assert signed is not None  # it matches every text
    seconds = _seconds(signed[2])
    if seconds is None:
        raise UsageError(f"{text[:40]!r} is not a time", _EXAMPLES)
    anchor = {"": Anchor.ABSOLUTE, "+": Anchor.FORWARD, "-": Anchor.BACK}[signed[1]]
    return TimePoint(anchor, float(seconds))


def _seconds(written: str) -> Fraction | None:
    """The length of an unsigned clock (`1:02:03.5`), span (`1h02m`) or plain number, None when it is none of them."""
    if _PLAIN.fullmatch(written):
        return Fraction(written)
    if _CLOCK.fullmatch(written):
        total = Fraction(0)
        for field in written.replace(",", ".").split(":"):
            total = total * 60 + Fraction(field)
        return total
    span = _SPAN.fullmatch(written)
    if span is None or not written:
        return None
    return sum((Fraction(number) * _UNITS[unit] for unit, number in span.groupdict().items() if number), Fraction(0))


def resolve(
    point: TimePoint,
    *,
    duration_s: float | None,
    playhead_s: float | None = None,
    fps: float | None = None,
    name: str = "the source",
) -> float:
    """The absolute time of `point`, in seconds after the first frame.

    The reference of `-30s` and `now` is the playhead where there is one (a running film) and the end otherwise;
    without a playhead the `+` of `+10s` is ignored. `end` is `math.inf`, which every `Source` takes as its last frame:
    a stated duration may be wrong. A result below zero means "before the first frame", for the caller to warn about.

    Args:
        duration_s: length of the film, None when unknown.
        playhead_s: time of the newest frame seen, None when no film is running.
        fps: sampling rate that `#120` counts in, None when frames are not sampled.
        name: what messages call the film.

    Raises:
        UsageError: `point` needs a duration or a sampling rate that is not known.
    """
    match point.anchor:
        case Anchor.START:
            return 0.0
        case Anchor.END:
            return math.inf
        case Anchor.NOW:
            return math.inf if playhead_s is None else playhead_s
        case Anchor.FORWARD:
            return (playhead_s or 0.0) + point.value
        case Anchor.BACK:
            return (_known(duration_s, name) if playhead_s is None else playhead_s) - point.value
        case Anchor.PERCENT:
            return _known(duration_s, name) * point.value / 100
        case Anchor.FRAME:
            if fps is None:
                raise UsageError("'#' counts sampled frames and no sampling rate is set", "add --fps, or give a time")
            return point.value / fps
        case Anchor.ABSOLUTE:
            return point.value


def _known(duration_s: float | None, name: str) -> float:
    if duration_s is None:
        raise UsageError(f"duration of {name} is unknown; give a time", _EXAMPLES)
    return duration_s


def format_time(seconds: float) -> str:
    """`HH:MM:SS.mmm`, with a minus sign before the start; `parse` reads back the same millisecond."""
    milliseconds = round(seconds * 1000)  # first round, then split: 59.9996 s is one minute, never 60.000
    hours, rest = divmod(abs(milliseconds), 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    sign = "-" if milliseconds < 0 else ""
    return f"{sign}{hours:02}:{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"
