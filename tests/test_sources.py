from __future__ import annotations

import math
import os
import random
import struct
import sys
from collections.abc import Callable, Generator, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hermes.errors import SourceError, UsageError
from hermes.frames import Frame
from hermes.sources import FrameList, Picture, Report, Source, SourceInfo, VideoFile, open_source
from tests.clips import add_silence, audio, clip, corners, corners_clip, cut, hurt, number, numbers, rgb_clip, steady

REORDERED = {"qp": "-1", "crf": "1", "x264-params": "bframes=2:b-adapt=0"}  # stored in another order than shown
VARIABLE = [0.0, 0.1, 0.2, 2.0, 2.1, 6.0, 11.0]
UNEVEN = [0.0, 25.0, 85.0, 95.0, 160.0]
CLOSE_S = 0.0005  # moments nearer than this are one moment


def joined(path: Path, *offsets_s: int) -> Path:
    """Clips of six seconds written one behind the other into one file, each with its own offset of timestamps."""
    parts = [
        clip(path, steady(60), container_options={"output_ts_offset": str(offset)}).read_bytes() for offset in offsets_s
    ]
    path.write_bytes(b"".join(parts))
    return path


def begun_late(path: Path) -> Path:
    """A recording that starts between two key frames."""
    path.write_bytes(clip(path, steady(60)).read_bytes()[188 * 40 :])
    return path


FILMS: dict[str, Callable[[Path], Path]] = {
    "idx.mp4": lambda path: clip(path, steady(120)),
    "reordered.mp4": lambda path: clip(path, steady(60), options=REORDERED),
    "reordered.ts": lambda path: clip(path, steady(60), options=REORDERED),
    "reordered.avi": lambda path: clip(path, steady(60), options=REORDERED),
    "idx.mkv": lambda path: clip(path, steady(60, 30)),  # times rounded to milliseconds
    "live.mkv": lambda path: clip(path, steady(60), container_options={"live": "1"}),  # neither length nor index
    "idx.flv": lambda path: clip(path, steady(60)),
    "idx.webm": lambda path: clip(path, steady(60), codec="libvpx-vp9", options={"lossless": "1", "cpu-used": "8"}),
    "idx.mpg": lambda path: clip(path, steady(50, 25), codec="mpeg2video", clock=Fraction(1, 25)),
    "vfr.mp4": lambda path: clip(path, VARIABLE),
    "slow.mp4": lambda path: clip(path, [5.0 * number for number in range(12)]),
    "slow.ts": lambda path: clip(path, UNEVEN),
    "still.mkv": lambda path: clip(path, [0, 0.1, 0.2, 30, 30.1, 95]),
    "offset.ts": lambda path: clip(path, steady(60), container_options={"output_ts_offset": "5"}),
    "edit.mp4": lambda path: clip(path, steady(60, start=-1.3)),
    "negative.mkv": lambda path: clip(path, steady(60, start=-1.3), container_options={"avoid_negative_ts": "disabled"}),
    "negative.asf": lambda path: clip(path, steady(60, start=-1.3), container_options={"avoid_negative_ts": "disabled"}),
    "offset.mkv": lambda path: clip(path, steady(60), container_options={"output_ts_offset": "5"}),
    "wrap.ts": lambda path: clip(path, steady(100), container_options={"output_ts_offset": "95438"}),  # 2^33 / 90 kHz
    "leap.ts": lambda path: joined(path, 0, 500),
    "back.ts": lambda path: joined(path, 500, 0),
    "twice.ts": lambda path: joined(path, 0, 0),
    "late.ts": begun_late,
    "raw.h264": lambda path: clip(path, steady(60)),
    "one.mp4": lambda path: clip(path, [0.0]),
    "half.mp4": lambda path: cut(clip(path, steady(120), container_options={"movflags": "faststart"}), 0.6),
}


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], VideoFile]:
    """Makes the film of a name once."""
    folder = tmp_path_factory.mktemp("films")

    def open_film(name: str) -> VideoFile:
        path = folder / name
        if not path.exists():
            FILMS[name](path)
        return VideoFile(path)

    return open_film


def times(frames: Sequence[Frame]) -> list[float]:
    return [round(frame.time_s, 3) for frame in frames]


def content(frames: Sequence[Frame]) -> list[tuple[float, bytes]]:
    return [(frame.time_s, frame.rgb.tobytes()) for frame in frames]


def sampled(frames: Sequence[Frame], fps: float, end_s: float) -> list[tuple[float, Frame]]:
    """The rule for sampling, tick by tick: the newest frame at or before k / fps, each once."""
    taken: list[tuple[float, Frame]] = []
    tick, number_of_tick = 0.0, 0
    while tick < end_s - CLOSE_S or number_of_tick == 0:
        newest = [frame for frame in frames if frame.time_s <= tick + CLOSE_S][-1]
        if not taken or taken[-1][1] is not newest:
            taken.append((tick, newest))
        number_of_tick += 1
        tick = number_of_tick / fps
    return taken


class TestTime:
    @pytest.mark.parametrize(
        ("name", "first", "count", "last_s"),
        [
            ("idx.mp4", 0, 120, 11.9),
            ("reordered.mp4", 0, 60, 5.9),
            ("reordered.avi", 0, 60, 5.9),
            ("live.mkv", 0, 60, 5.9),
            ("idx.flv", 0, 60, 5.9),
            ("slow.mp4", 0, 12, 55.0),
            ("offset.ts", 0, 60, 5.9),
            ("edit.mp4", 13, 47, 4.6),
            ("negative.mkv", 13, 47, 4.6),
            ("offset.mkv", 0, 60, 5.9),
            ("wrap.ts", 0, 100, 9.9),
            ("late.ts", 20, 40, 3.9),
            ("raw.h264", 0, 60, 2.36),  # no timestamps: libav assumes 25 frames per second
            ("one.mp4", 0, 1, 0.0),
        ],
    )
    def test_counts_from_the_first_shown_frame(
        self, film: Callable[[str], VideoFile], name: str, first: int, count: int, last_s: float
    ) -> None:
        frames = list(film(name).frames())
        assert numbers(frames) == list(range(first, first + count))
        assert times(frames) == [round(last_s * order / max(1, count - 1), 3) for order in range(count)]

    def test_variable_rate_keeps_its_times(self, film: Callable[[str], VideoFile]) -> None:
        assert times(list(film("vfr.mp4").frames())) == VARIABLE

    def test_times_always_rise(self, film: Callable[[str], VideoFile]) -> None:
        frames = list(film("negative.asf").frames())  # libav gives the first two frames at or after zero one time
        assert numbers(frames) == [*range(12, 60)]
        assert all(earlier.time_s < later.time_s for earlier, later in pairwise(frames))

    def test_a_slow_film_in_a_format_that_may_leap_keeps_its_times(self, film: Callable[[str], VideoFile]) -> None:
        assert times(list(film("slow.ts").frames())) == UNEVEN

    def test_long_still_periods_of_one_timeline_keep_their_length(self, film: Callable[[str], VideoFile]) -> None:
        source = film("still.mkv")
        assert times(list(source.frames())) == [0, 0.1, 0.2, 30, 30.1, 95]
        assert source.report.notices == []

    @pytest.mark.parametrize("name", ["leap.ts", "back.ts", "twice.ts"])
    def test_a_jump_in_the_timestamps_becomes_continuous_time(self, film: Callable[[str], VideoFile], name: str) -> None:
        source = film(name)
        frames = list(source.frames())
        assert numbers(frames) == [*range(60), *range(60)]
        assert times(frames) == [round(order / 10, 3) for order in range(120)]
        assert source.report.jumps == 1
        assert source.report.notices == ["1 jump in the timestamps; time was made continuous"]

    def test_a_format_without_timestamps_says_so(self, film: Callable[[str], VideoFile]) -> None:
        source = film("raw.h264")
        list(source.frames())
        assert source.report.notices == ["no timestamps in this format; time is counted from its stated frame rate"]

    @pytest.mark.parametrize("name", sorted(set(FILMS) - {"half.mp4", "raw.h264", "leap.ts", "back.ts", "twice.ts"}))
    def test_a_sound_film_gives_no_notice(self, film: Callable[[str], VideoFile], name: str) -> None:
        source = film(name)
        list(source.frames())
        assert source.report.notices == []


class TestSampling:
    def test_takes_the_newest_frame_at_or_before_each_tick(self, tmp_path: Path) -> None:
        marks = {0: 0.0, 1: 0.1, 2: 0.2, 20: 2.0, 21: 2.1, 60: 6.0, 110: 11.0}
        source = FrameList([Frame(time, np.full((2, 2, 3), mark, np.uint8)) for mark, time in marks.items()])
        frames = list(source.frames(1))
        assert [int(frame.rgb[0, 0, 0]) for frame in frames] == [0, 2, 20, 21, 60, 110]
        assert times(frames) == [0.0, 0.2, 2.0, 2.1, 6.0, 11.0]
        assert times(list(VideoFile(clip(tmp_path / "vfr.mp4", VARIABLE)).frames(1))) == times(frames)

    def test_ten_seconds_at_one_a_second_are_ten_frames(self, film: Callable[[str], VideoFile]) -> None:
        assert times(list(film("wrap.ts").frames(1))) == [float(second) for second in range(10)]

    @pytest.mark.parametrize("name", ["idx.mp4", "idx.mkv", "slow.mp4", "one.mp4"])
    @pytest.mark.parametrize("fps", [30, 59.94, 1000])
    def test_a_rate_at_or_above_that_of_the_source_takes_every_frame(
        self, film: Callable[[str], VideoFile], name: str, fps: float
    ) -> None:
        source = film(name)
        assert times(list(source.frames(fps))) == times(list(source.frames()))

    @pytest.mark.parametrize("name", sorted(FILMS))
    def test_windows_hold_the_frames_of_their_ticks(self, film: Callable[[str], VideoFile], name: str) -> None:
        source = film(name)
        every = list(source.frames())
        *_, last = source.pictures(Fraction(0), Report())
        end_s = float(last.time + last.duration)
        chance = random.Random(name)
        for fps in (0.3, 1, 3, 29.97):
            taken = sampled(every, fps, end_s)
            assert content(list(source.frames(fps))) == content([frame for _, frame in taken])
            start = chance.choice([chance.uniform(0, end_s), chance.randrange(1 + int(end_s)), 0.1 * 3])
            stop = start + chance.uniform(0, end_s)
            inside = [frame for tick, frame in taken if start - CLOSE_S <= tick < stop - CLOSE_S]
            assert content(list(source.frames(fps, start, stop))) == content(inside)
            after = [frame for tick, frame in taken if tick >= start - CLOSE_S]
            assert content(list(source.frames(fps, start))) == content(after)
        later = [frame for frame in every if frame.time_s >= start - CLOSE_S]
        assert content(list(source.frames(None, start))) == content(later)

    @settings(deadline=None)
    @given(
        st.lists(st.integers(1, 4000), min_size=1, max_size=40),
        st.sampled_from([0.1, 1 / 3, 0.5, 1, 2, 7, 23.976, 60]),
        st.integers(0, 50_000),
    )
    def test_agrees_with_the_rule_tick_by_tick(self, gaps_ms: list[int], fps: float, start_ms: int) -> None:
        moments = [sum(gaps_ms[:order]) / 1000 for order in range(len(gaps_ms))]
        source = FrameList([Frame(moment, np.zeros((1, 1, 3), np.uint8)) for moment in moments])
        assert source.info.duration_s is not None
        taken = sampled(list(source.frames()), fps, source.info.duration_s)
        assert times(list(source.frames(fps))) == times([frame for _, frame in taken])
        start = start_ms / 1000
        after = [frame for tick, frame in taken if tick >= start - CLOSE_S]
        assert times(list(source.frames(fps, start))) == times(after)
        assert times([*source.frames(fps, 0, start), *source.frames(fps, start)]) == times(list(source.frames(fps)))

    def test_windows_meet_in_spite_of_rounding(self) -> None:
        arrays = [np.full((1, 1, 3), mark, np.uint8) for mark in range(10)]
        source = FrameList.from_arrays(arrays, 10)
        third = 0.1 * 3  # 0.30000000000000004
        for fps in (None, 10, 100):
            assert [int(frame.rgb[0, 0, 0]) for frame in source.frames(fps, end_s=third)] == [0, 1, 2]
            assert [int(frame.rgb[0, 0, 0]) for frame in source.frames(fps, start_s=third)] == [*range(3, 10)]

    @pytest.mark.parametrize("fps", [0, -1, math.nan, math.inf])
    def test_a_rate_that_is_none_is_refused_at_once(self, fps: float) -> None:
        source = FrameList.from_arrays([np.zeros((1, 1, 3), np.uint8)], 1)
        with pytest.raises(UsageError, match="sampling rate"):
            source.frames(fps)

    def test_only_frames_that_are_taken_are_converted(self) -> None:
        converted: list[int] = []

        class Counted(Source):
            info = SourceInfo("counted", 1, 1, 10.0, 10.0, "none")

            def pictures(self, begin: Fraction, report: Report) -> Generator[Picture, None, None]:
                for order in range(100):
                    yield Picture(Fraction(order, 10), Fraction(1, 10), lambda _side, order=order: self.convert(order))  # type: ignore[misc]

            def convert(self, order: int) -> NDArray[np.uint8]:
                converted.append(order)
                return np.zeros((1, 1, 3), np.uint8)

        list(Counted().frames(1))
        Counted().frame_at(5.55)
        assert converted == [*range(0, 100, 10), 55]


class TestMoment:
    @pytest.mark.parametrize("name", sorted(FILMS))
    def test_shows_the_newest_frame_at_or_before_it(self, film: Callable[[str], VideoFile], name: str) -> None:
        source = film(name)
        every = list(source.frames())
        report = source.report
        chance = random.Random(name)
        for moment in [chance.uniform(0, every[-1].time_s) for _ in range(6)] + [chance.choice(every).time_s]:
            shown = [frame for frame in every if frame.time_s <= moment + CLOSE_S][-1]
            assert content([source.frame_at(moment)]) == content([shown])
        assert content([source.frame_at(-3)]) == content(every[:1])
        assert content([source.frame_at(math.inf)]) == content(every[-1:])
        assert source.report is report

    @pytest.mark.parametrize(("moment", "frame"), [(3.34, 33), (7.77, 77), (11.95, 119), (12.0, 119), (12.1, 119), (-3, 0)])
    def test_by_luma(self, film: Callable[[str], VideoFile], moment: float, frame: int) -> None:
        assert number(film("idx.mp4").frame_at(moment)) == frame

    @pytest.mark.parametrize(("name", "frame"), [("offset.ts", 33), ("edit.mp4", 46), ("negative.mkv", 46), ("wrap.ts", 33)])
    def test_by_luma_in_films_that_do_not_start_at_zero(
        self, film: Callable[[str], VideoFile], name: str, frame: int
    ) -> None:
        assert number(film(name).frame_at(3.34)) == frame

    @pytest.mark.parametrize(("moment", "frame"), [(5, 4), (6, 5), (11.05, 6)])
    def test_by_luma_at_a_variable_rate(self, film: Callable[[str], VideoFile], moment: float, frame: int) -> None:
        assert number(film("vfr.mp4").frame_at(moment)) == frame

    @pytest.mark.parametrize("moment", [12.2, 50, 1e30])
    def test_past_the_end_names_the_end(self, film: Callable[[str], VideoFile], moment: float) -> None:
        with pytest.raises(UsageError, match=r"idx\.mp4 ends at 00:00:12\.000$"):
            film("idx.mp4").frame_at(moment)

    def test_past_the_end_of_a_film_whose_header_counts_in_small_steps(self, film: Callable[[str], VideoFile]) -> None:
        with pytest.raises(UsageError, match=r"reordered\.avi ends at 00:00:06\.000$"):
            film("reordered.avi").frame_at(50)

    def test_past_the_real_end_of_a_cut_film_names_the_real_one(self, film: Callable[[str], VideoFile]) -> None:
        with pytest.raises(UsageError, match=r"half\.mp4 ends at 00:00:04\.000$"):
            film("half.mp4").frame_at(10)

    def test_nan_is_no_moment(self, film: Callable[[str], VideoFile]) -> None:
        with pytest.raises(UsageError, match="nan"):
            film("idx.mp4").frame_at(math.nan)


class TestDamage:
    def test_keeps_true_time_across_a_hole(self, tmp_path: Path) -> None:
        source = VideoFile(hurt(clip(tmp_path / "hurt.mp4", steady(60)), lambda order: order in (30, 31)))
        frames = list(source.frames())
        assert source.report.damaged_packets == 2
        assert source.report.notices == ["2 damaged packets skipped"]
        whole = [frame for frame in frames if not 3.0 <= frame.time_s < 4.0]  # the next key frame is number 40
        assert numbers(whole) == [*range(30), *range(40, 60)]
        assert times(whole) == [order / 10 for order in numbers(whole)]

    def test_each_pass_counts_afresh(self, tmp_path: Path) -> None:
        source = VideoFile(hurt(clip(tmp_path / "hurt.mp4", steady(60)), lambda order: order == 30))
        list(source.frames())
        list(source.frames(1))
        assert source.report.damaged_packets == 1
        list(source.frames(1, start_s=5))
        assert source.report.damaged_packets == 0

    def test_what_lies_before_the_window_is_not_decoded(self, tmp_path: Path) -> None:
        path = clip(tmp_path / "hurt.avi", steady(60), codec="mpeg4", gop=10, clock=Fraction(1, 10))
        source = VideoFile(hurt(path, lambda order: order in (5, 15)))
        late = [frame for frame in source.frames() if frame.time_s >= 4.5]
        assert source.report.damaged_packets == 2
        assert content(list(source.frames(start_s=4.5))) == content(late)
        assert source.report.damaged_packets == 0

    def test_a_seek_to_a_damaged_key_frame_goes_further_back(self, tmp_path: Path) -> None:
        source = VideoFile(hurt(clip(tmp_path / "hurt.mp4", steady(80)), lambda order: order in (39, 40)))
        every = list(source.frames())
        damaged = source.report.damaged_packets
        later = [frame for frame in every if frame.time_s >= 4.5]
        assert times(list(source.frames(start_s=4.5))) == times(later)
        assert source.report.damaged_packets == damaged

    @pytest.mark.parametrize("bad", [36, 38, 39])
    def test_good_frames_behind_damage_near_the_end_are_kept(self, tmp_path: Path, bad: int) -> None:
        source = VideoFile(hurt(clip(tmp_path / "tail.mp4", steady(40), gop=1), lambda order: order == bad))
        assert numbers(list(source.frames())) == [order for order in range(40) if order != bad]
        assert source.report.notices == ["1 damaged packet skipped"]

    def test_damage_near_the_end_is_counted_once(self, tmp_path: Path) -> None:
        source = VideoFile(hurt(clip(tmp_path / "tail.mp4", steady(40)), lambda order: order in (25, 39)))
        list(source.frames())
        assert source.report.damaged_packets == 2

    def test_scattered_damage_is_no_reason_to_give_up(self, tmp_path: Path) -> None:
        source = VideoFile(hurt(clip(tmp_path / "odd.mp4", steady(220), gop=1), lambda order: order % 2 == 1))
        assert numbers(list(source.frames())) == [*range(0, 220, 2)]
        assert source.report.notices == ["110 damaged packets skipped"]

    def test_goes_on_after_many_bad_packets_and_gives_up_after_a_hundred(self, tmp_path: Path) -> None:
        whole = clip(tmp_path / "whole.mp4", steady(200), gop=1).read_bytes()
        for name, is_hurt, kept, damaged in [
            ("most.mp4", lambda order: 50 <= order < 149, [*range(50), *range(149, 200)], 99),
            ("all.mp4", lambda order: order >= 50, [*range(50)], 100),
        ]:
            (tmp_path / name).write_bytes(whole)
            source = VideoFile(hurt(tmp_path / name, is_hurt))
            assert numbers(list(source.frames())) == kept
            assert source.report.damaged_packets == damaged
            assert source.report.gave_up == (name == "all.mp4")

    def test_an_early_end_keeps_what_there_is_and_says_what_is_missing(self, film: Callable[[str], VideoFile]) -> None:
        source = film("half.mp4")
        assert source.info.duration_s == 12.0
        assert numbers(list(source.frames())) == [*range(40)]
        assert source.report.ended_early is not None
        assert (source.report.ended_early.end_s, source.report.ended_early.stated_s) == (4.0, 12.0)
        assert source.report.notices[-1] == "stream ended at 00:00:04.000, 8.0 s short of its stated length"

    def test_a_window_that_stops_before_the_early_end_says_nothing(self, film: Callable[[str], VideoFile]) -> None:
        source = film("half.mp4")
        list(source.frames())
        assert len(list(source.frames(end_s=3))) == 30
        assert source.report.ended_early is None

    def test_a_matroska_film_that_is_cut_is_noticed(self, tmp_path: Path) -> None:
        source = VideoFile(cut(clip(tmp_path / "cut.mkv", steady(120)), 0.5))
        frames = list(source.frames())
        assert source.report.ended_early is not None
        assert source.report.ended_early.end_s == pytest.approx(frames[-1].time_s + 0.1)
        assert source.report.ended_early.stated_s == 12.0

    @pytest.mark.parametrize("has_tag", [True, False])
    def test_sound_longer_than_the_picture_is_no_early_end(self, tmp_path: Path, has_tag: bool) -> None:
        path = tmp_path / "sound.mkv"
        with av.open(str(clip(tmp_path / "film.mkv", steady(20)))) as film, av.open(str(path), "w") as container:
            stream = container.add_stream_from_template(film.streams.video[0])
            add_silence(container, 6.0)
            for packet in film.demux(video=0):
                if packet.size:
                    packet.stream = stream
                    container.mux(packet)
        if not has_tag:
            path.write_bytes(path.read_bytes().replace(b"DURATION", b"DURATIOM"))
        source = VideoFile(path)
        assert source.info.duration_s == pytest.approx(2.0 if has_tag else 6.0, abs=0.2)
        assert len(list(source.frames())) == 20
        assert source.report.notices == []


SHOWN = {  # entries a, b, c, d of the matrix: (x, y) is shown at (a x + c y, b x + d y), y downwards; stored RG/BW
    (1, 0, 0, 1): "RG/BW",
    (0, 1, -1, 0): "BR/WG",  # a quarter turn clockwise
    (-1, 0, 0, -1): "WB/GR",
    (0, -1, 1, 0): "GW/RB",
    (-1, 0, 0, 1): "GR/WB",  # mirrored left to right
    (0, -1, -1, 0): "WG/BR",
    (1, 0, 0, -1): "BW/RG",
    (0, 1, 1, 0): "RB/GW",
}


class TestShape:
    @pytest.mark.parametrize(("matrix", "shown"), SHOWN.items())
    def test_all_eight_orientations(self, tmp_path: Path, matrix: tuple[int, int, int, int], shown: str) -> None:
        source = VideoFile(corners_clip(tmp_path / "corners.mp4", matrix))
        frames = list(source.frames())
        assert [corners(frame.rgb) for frame in frames] == [shown, shown]
        assert times(frames) == [0.0, 0.1]
        size = (24, 32) if matrix[0] == 0 else (32, 24)
        assert (source.info.width, source.info.height) == size
        assert frames[0].rgb.shape == (size[1], size[0], 3)

    def test_orientation_is_described_in_turns_clockwise(self, tmp_path: Path) -> None:
        info = VideoFile(corners_clip(tmp_path / "corners.mp4", (0, 1, -1, 0))).info
        assert (info.rotation, info.mirrored) == (90, False)
        info = VideoFile(corners_clip(tmp_path / "corners.mp4", (-1, 0, 0, 1))).info
        assert (info.rotation, info.mirrored) == (0, True)

    def test_a_forced_turn_replaces_what_the_file_says(self, tmp_path: Path) -> None:
        path = corners_clip(tmp_path / "corners.mp4", (0, -1, 1, 0))
        shown = {turn: corners(VideoFile(path, rotate=turn).frame_at(0).rgb) for turn in (0, 90, 180, 270)}
        assert shown == {0: "RG/BW", 90: "BR/WG", 180: "WB/GR", 270: "GW/RB"}
        with pytest.raises(UsageError, match="45 degrees"):
            VideoFile(path, rotate=45)

    @pytest.mark.parametrize(
        ("aspect", "size"), [(Fraction(2), (128, 48)), (Fraction(1, 2), (32, 48)), (Fraction(16, 15), (68, 48))]
    )
    def test_pixels_become_square(self, tmp_path: Path, aspect: Fraction, size: tuple[int, int]) -> None:
        source = VideoFile(clip(tmp_path / "aspect.mp4", steady(2), pixel_aspect=aspect))
        assert (source.info.width, source.info.height) == size
        assert [frame.rgb.shape for frame in source.frames()] == [(size[1], size[0], 3)] * 2

    def test_an_absurd_pixel_aspect_is_ignored(self, tmp_path: Path) -> None:
        source = VideoFile(clip(tmp_path / "aspect.mp4", steady(2), pixel_aspect=Fraction(20)))
        assert next(source.frames()).rgb.shape == (48, 64, 3)

    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.tuples(st.integers(1, 5000), st.integers(1, 16)), st.booleans(), st.integers(1, 400))
    def test_any_size(self, tmp_path: Path, sides: tuple[int, int], is_tall: bool, max_side: int) -> None:
        height, width = sides if is_tall else sides[::-1]
        rgb = np.random.default_rng(height * width).integers(0, 256, (height, width, 3), np.uint8)
        source = VideoFile(rgb_clip(tmp_path / "size.mkv", rgb))
        assert np.array_equal(source.frame_at(0).rgb, rgb)
        assert (source.info.width, source.info.height) == (width, height)
        small = source.frame_at(0, max_side=max_side).rgb
        scale = min(1, max_side / max(height, width))
        assert small.shape == (max(1, round(height * scale)), max(1, round(width * scale)), 3)

    def test_a_very_large_picture(self, tmp_path: Path) -> None:
        source = VideoFile(clip(tmp_path / "large.mp4", [0.0], size=(5000, 5000), options={"preset": "ultrafast"}))
        assert source.frame_at(0).rgb.shape == (5000, 5000, 3)
        assert source.frame_at(0, max_side=48).rgb.shape == (48, 48, 3)

    def test_scaling_down_averages_and_keeps_the_orientation(self, tmp_path: Path) -> None:
        source = VideoFile(corners_clip(tmp_path / "corners.mp4", (0, 1, -1, 0)))
        (first, *_) = source.frames(max_side=16)
        assert first.rgb.shape == (16, 12, 3)
        assert corners(first.rgb) == "BR/WG"


class TestStreams:
    def test_sound_alone(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"audio\.mp4 has no video stream \(1 audio stream: aac\)$"):
            VideoFile(audio(tmp_path / "audio.mp4"))

    def test_sound_with_a_cover_picture(self, tmp_path: Path) -> None:
        path = tmp_path / "cover.m4a"
        with av.open(str(path), "w", format="mp4") as container:
            picture = self._picture_stream(container)
            picture.disposition = av.stream.Disposition(av.stream.Disposition.attached_pic.value)
            add_silence(container, 1.0)
            self._mux_picture(container, picture)
        with pytest.raises(SourceError, match=r"no video stream \(1 audio stream: aac; 1 cover picture: mjpeg\)$"):
            VideoFile(path)

    def test_a_picture_in_front_of_the_film_is_not_the_film(self, tmp_path: Path) -> None:
        path = tmp_path / "art_first.mkv"
        with av.open(str(clip(tmp_path / "film.mkv", steady(30)))) as film, av.open(str(path), "w") as container:
            picture = self._picture_stream(container)
            stream = container.add_stream_from_template(film.streams.video[0])
            self._mux_picture(container, picture)
            for packet in film.demux(video=0):
                if packet.size:
                    packet.stream = stream
                    container.mux(packet)
        assert numbers(list(VideoFile(path).frames())) == [*range(30)]

    @pytest.mark.parametrize("name", ["still.png", "still.jpg"])
    def test_a_still_image_is_one_frame_at_zero(self, tmp_path: Path, name: str) -> None:
        frame = av.VideoFrame.from_ndarray(np.full((24, 32, 3), 90, np.uint8))
        frame.save(str(tmp_path / name))
        source = open_source(tmp_path / name)
        (only,) = source.frames(1)
        assert only.time_s == 0.0
        assert only.rgb.shape == (24, 32, 3)
        assert abs(int(only.rgb[5, 5, 0]) - 90) <= 2
        assert source.info.duration_s is None

    @staticmethod
    def _picture_stream(container: av.container.OutputContainer) -> av.VideoStream:
        stream = container.add_stream("mjpeg", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuvj420p"
        return stream

    @staticmethod
    def _mux_picture(container: av.container.OutputContainer, stream: av.VideoStream) -> None:
        frame = av.VideoFrame(64, 64, "yuvj420p")
        frame.pts = 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


class TestInfo:
    def test_of_a_plain_film(self, film: Callable[[str], VideoFile]) -> None:
        info = film("idx.mp4").info
        assert info == SourceInfo(info.name, 64, 48, 12.0, 10.0, "h264", 0, False)
        assert info.name.endswith("idx.mp4")

    def test_unknown_length(self, film: Callable[[str], VideoFile]) -> None:
        assert film("live.mkv").info.duration_s is None

    def test_a_length_counts_from_the_first_shown_frame(self, film: Callable[[str], VideoFile]) -> None:
        names = ["edit.mp4", "negative.mkv", "offset.ts", "offset.mkv", "late.ts", "wrap.ts", "reordered.avi"]
        assert [film(name).info.duration_s for name in names] == pytest.approx([4.7, 4.7, 6.0, 6.0, 4.0, 10.0, 6.0])

    def test_the_rate_is_the_lower_of_two_estimates(self, film: Callable[[str], VideoFile]) -> None:
        assert film("vfr.mp4").info.fps == pytest.approx(7 / 11.1)
        assert film("reordered.avi").info.fps == 10.0  # its header says 600

    def test_an_absurd_rate_is_no_hint_and_does_not_bend_time(self, tmp_path: Path) -> None:
        steps = [order / 90_000 for order in range(300)]
        source = VideoFile(clip(tmp_path / "fast.mp4", steps))
        assert source.info.fps is None
        assert [frame.time_s for frame in source.frames()] == pytest.approx(steps)


class TestRefusal:
    @pytest.mark.parametrize(
        ("name", "data", "message"),
        [
            ("empty.mp4", b"", "file is empty"),
            ("page.mp4", b"<html>404</html>", "this is an HTML page, not a video"),
            ("page2.mp4", b"\xef\xbb\xbf\n <!DOCTYPE html><html></html>", "this is an HTML page, not a video"),
            ("notes.mp4", "fünf\tWorte\n".encode() * 500, "this is a text file, not a video"),
            ("random.mp4", random.Random(3).randbytes(5000), "not a video that can be read"),
        ],
    )
    def test_what_is_no_video(self, tmp_path: Path, name: str, data: bytes, message: str) -> None:
        (tmp_path / name).write_bytes(data)
        assert f"{name}: {message}" in self._refused(tmp_path / name)

    @pytest.mark.parametrize("faststart", [False, True])
    def test_an_mp4_cut_before_its_index(self, tmp_path: Path, faststart: bool) -> None:
        options = {"movflags": "faststart"} if faststart else {}
        path = clip(tmp_path / "cut.mp4", steady(60), container_options=options)
        cut(path, 0.2)
        assert "cut.mp4: MP4 index (moov) missing, the file is incomplete" in self._refused(path)

    @pytest.mark.parametrize("wide", [b"", struct.pack(">I4sQ", 1, b"free", 32) + bytes(16)], ids=["32", "64 bits"])
    def test_an_mp4_with_a_damaged_index(self, tmp_path: Path, wide: bytes) -> None:
        path = clip(tmp_path / "hurt.mp4", steady(20))
        data = path.read_bytes()
        index = data.index(b"stts")
        data = data[: index + 8] + b"\xff" * 4 + data[index + 12 :]
        first = int.from_bytes(data[:4], "big")
        path.write_bytes(data[:first] + wide + data[first:])
        assert "hurt.mp4: MP4 index (moov) damaged" in self._refused(path)

    def test_paths(self, tmp_path: Path) -> None:
        assert "none.mp4: no such file" in self._refused(tmp_path / "none.mp4")
        (tmp_path / "dir.mp4").mkdir()
        assert "dir.mp4 is a folder" in self._refused(tmp_path / "dir.mp4")
        os.mkfifo(tmp_path / "pipe.mp4")
        assert "pipe.mp4 is not a regular file" in self._refused(tmp_path / "pipe.mp4")
        assert "cannot be read: " in self._refused(tmp_path / ("n" * 300))
        assert "cannot be read: " in self._refused(tmp_path / "nul\0.mp4")

    def test_no_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        clip(tmp_path / "shut.mp4", steady(1))
        monkeypatch.setattr(Path, "open", refuse)  # the superuser may read everything
        assert "shut.mp4: no permission to read it" in self._refused(tmp_path / "shut.mp4")

    def test_no_picture_that_can_be_decoded(self, tmp_path: Path) -> None:
        path = hurt(clip(tmp_path / "dead.mp4", steady(5)), lambda order: True)
        assert "dead.mp4: no picture could be decoded" in self._refused(path)

    def test_a_codec_without_a_decoder(self, tmp_path: Path) -> None:
        path = clip(tmp_path / "alien.mp4", steady(5))
        path.write_bytes(path.read_bytes().replace(b"avc1", b"zzzz"))
        assert "alien.mp4: no decoder for its video codec" in self._refused(path)

    @staticmethod
    def _refused(path: Path) -> str:
        """The message, one line with a hint of one line."""
        with pytest.raises(SourceError) as caught:
            open_source(path)
        assert caught.value.hint
        assert "\n" not in caught.value.message + caught.value.hint
        return caught.value.message


class TestFiles:
    @pytest.mark.parametrize("name", ["12:30.mp4", "http:x.mp4", "a%03d[1]*.mp4", "-dash.mp4", b"\xff\xfe.mp4", "a\nb.mp4"])
    def test_odd_names(self, tmp_path: Path, name: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        clip(Path("plain.mp4"), steady(3)).rename(os.fsdecode(name))
        source = open_source(os.fsdecode(name))
        assert numbers(list(source.frames())) == [0, 1, 2]
        assert source.info.name.isprintable()

    def test_metadata_that_is_not_utf8(self, tmp_path: Path) -> None:
        path = tmp_path / "meta.mkv"
        rgb_clip(path, np.zeros((16, 16, 3), np.uint8))
        data = path.read_bytes()
        assert b"Lavf" in data
        path.write_bytes(data.replace(b"Lavf", b"\xe9\xff\xfe\xe9"))
        assert len(list(VideoFile(path).frames())) == 1

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts open files in /proc")
    def test_are_closed_when_iteration_ends_or_is_dropped(self, film: Callable[[str], VideoFile]) -> None:
        def open_files() -> int:
            return sum(os.path.realpath(link.path).endswith("idx.mp4") for link in os.scandir("/proc/self/fd"))

        source = film("idx.mp4")
        assert open_files() == 0
        frames = source.frames(1)
        next(frames)
        assert open_files() == 1
        frames.close()
        assert open_files() == 0
        list(source.frames(1))
        source.frame_at(3)
        with pytest.raises(UsageError):
            source.frame_at(99)
        assert open_files() == 0

    def test_two_passes_do_not_disturb_each_other(self, film: Callable[[str], VideoFile]) -> None:
        source = film("idx.mp4")
        pairs = list(zip(source.frames(2), source.frames(2, 6.0), strict=False))
        assert numbers([left for left, _ in pairs]) == [*range(0, 60, 5)]
        assert numbers([right for _, right in pairs]) == [*range(60, 120, 5)]


class TestFrameList:
    def test_plays_what_it_was_given(self) -> None:
        arrays = [np.full((2, 3, 3), shade, np.uint8) for shade in range(5)]
        source = FrameList.from_arrays(arrays, 2.0, "shades")
        assert source.info == SourceInfo("shades", 3, 2, 2.5, 2.0, "rgb24")
        assert [int(frame.rgb[0, 0, 0]) for frame in source.frames()] == [0, 1, 2, 3, 4]
        assert [int(frame.rgb[0, 0, 0]) for frame in source.frames(1)] == [0, 2, 4]
        assert int(source.frame_at(1.2).rgb[0, 0, 0]) == 2
        with pytest.raises(UsageError, match=r"shades ends at 00:00:02\.500"):
            source.frame_at(4)

    def test_one_frame(self) -> None:
        source = FrameList([Frame(0.0, np.zeros((1, 1, 3), np.uint8))])
        assert len(list(source.frames(1))) == len(list(source.frames())) == 1

    @pytest.mark.parametrize("moments", [[], [0.0, 0.0], [1.0, 0.5]])
    def test_no_frames_or_times_that_do_not_rise(self, moments: list[float]) -> None:
        with pytest.raises(SourceError):
            FrameList([Frame(moment, np.zeros((1, 1, 3), np.uint8)) for moment in moments])
