from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.errors import UsageError
from hermes.timecode import Anchor, TimePoint, format_time, parse, resolve


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("03:20", 200.0),
        ("1:02:03.5", 3723.5),
        ("00:03:20,500", 200.5),
        ("200", 200.0),
        ("200s", 200.0),
        ("0.2", 0.2),
        ("200ms", 0.2),
        ("250us", 0.00025),
        ("1.5h", 5400.0),
        ("90:00", 5400.0),
        ("100:00:00", 360_000.0),
        ("1h02m03.5s", 3723.5),
        ("2m", 120.0),
        ("1s500ms", 1.5),
        (" 1:02 ", 62.0),
        ("0", 0.0),
    ],
)
def test_absolute_times(text: str, seconds: float) -> None:
    assert parse(text) == TimePoint(Anchor.ABSOLUTE, seconds)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("-30s", TimePoint(Anchor.BACK, 30.0)),
        ("-0:30", TimePoint(Anchor.BACK, 30.0)),
        ("+10s", TimePoint(Anchor.FORWARD, 10.0)),
        ("+1:00:00", TimePoint(Anchor.FORWARD, 3600.0)),
        ("50%", TimePoint(Anchor.PERCENT, 50.0)),
        ("12.5%", TimePoint(Anchor.PERCENT, 12.5)),
        ("start", TimePoint(Anchor.START)),
        ("end", TimePoint(Anchor.END)),
        ("NOW", TimePoint(Anchor.NOW)),
        ("#120", TimePoint(Anchor.FRAME, 120.0)),
    ],
)
def test_anchored_times(text: str, point: TimePoint) -> None:
    assert parse(text) == point


NO_CLOCK = [
    "1:75",
    "12:60",
    "1:2:3:4",
    "1:60:00",
    "1:2.5:3",
    "1:",
    ":30",
    "1:-2",
    "3:2O",
    "1:" + "9" * 20,
    "9" * 400 + ":00",
    "3:20\n4",
]
NO_NUMBER = ["nan", "inf", "-inf", "1e3", ".5", "5.", "1,5", "0x10", "1_000", "\u0663", "9" * 400, "1 2"]
NO_SPAN = ["3x", "3s2m", "1h30", "1mm", "5ss", "s", "ms"]
NO_MARK = ["", " ", "-", "+", "--3", "+-3", "%", "101%", "-50%", "#", "#-1", "#1.5", "now-", "end+1"]


@pytest.mark.parametrize("text", [*NO_CLOCK, *NO_NUMBER, *NO_SPAN, *NO_MARK])
def test_what_is_no_time_says_so_and_shows_some_that_are(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert repr(text[:40]) in caught.value.message
    examples = caught.value.hint.removeprefix("write a time as ").replace(" or ", ", ").split(", ")
    assert len(examples) == 5
    for example in examples:
        parse(example)


@settings(deadline=None)
@given(st.integers(0, 10**12))
def test_a_printed_time_reads_back_as_the_same_time(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    text = format_time(seconds)
    assert parse(text) == TimePoint(Anchor.ABSOLUTE, seconds)
    assert format_time(parse(text).value) == text


@settings(deadline=None)
@given(st.floats(0, 1e7))
def test_a_printed_time_is_the_nearest_millisecond(seconds: float) -> None:
    assert abs(parse(format_time(seconds)).value - seconds) <= 0.0005 + 1e-9


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "00:00:00.000"),
        (59.9996, "00:01:00.000"),
        (3599.9999, "01:00:00.000"),
        (3723.5, "01:02:03.500"),
        (360_000.001, "100:00:00.001"),
        (-3.25, "-00:00:03.250"),
        (-0.0001, "00:00:00.000"),
    ],
)
def test_printed_form(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


@pytest.mark.parametrize(
    ("text", "playhead_s", "seconds"),
    [
        ("3", None, 3.0),
        ("3", 7.0, 3.0),
        ("-3", None, 9.0),  # from the end of the film
        ("-3", 7.0, 4.0),  # from the playhead
        ("-30", None, -18.0),  # before the first frame: for the caller to warn about
        ("+2", None, 2.0),
        ("+2", 7.0, 9.0),
        ("25%", 7.0, 3.0),
        ("start", 7.0, 0.0),
        ("end", 7.0, math.inf),
        ("now", 7.0, 7.0),
        ("now", None, math.inf),
        ("#5", None, 2.5),
    ],
)
def test_resolved_against_a_film_of_twelve_seconds(text: str, playhead_s: float | None, seconds: float) -> None:
    assert resolve(parse(text), duration_s=12.0, playhead_s=playhead_s, fps=2.0) == seconds


@pytest.mark.parametrize("text", ["50%", "-30s"])
def test_unknown_duration(text: str) -> None:
    with pytest.raises(UsageError, match=r"^duration of film\.webm is unknown; give a time$"):
        resolve(parse(text), duration_s=None, name="film.webm")
    assert resolve(parse("-30s"), duration_s=None, playhead_s=40.0) == 10.0
    assert resolve(parse("end"), duration_s=None) == math.inf


def test_a_sampled_frame_needs_a_sampling_rate() -> None:
    with pytest.raises(UsageError, match="sampling rate"):
        resolve(parse("#3"), duration_s=12.0)
