"""What a user can write for a source, and folders, patterns and pipes of videos."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import hermes.sources
from hermes.errors import SourceError
from hermes.sources import Connecting, FrameList, VideoFile, open_source
from hermes.sources.playlist import Playlist
from tests.clips import clip, cut, numbers, steady


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three films of one, two and one seconds, and what is none of them."""
    monkeypatch.chdir(tmp_path)
    clip(tmp_path / "take 10.mkv", steady(10))
    clip(tmp_path / "take 2.MP4", steady(20))
    clip(tmp_path / "a.mp4", steady(10))
    (tmp_path / "notes.txt").write_text("about them")
    (tmp_path / "folder.mp4").mkdir()
    return tmp_path


class TestNames:
    @pytest.mark.parametrize(
        ("spec", "kind"),
        [
            ("0", "camera"),
            ("12", "camera"),
            ("/dev/video0", "camera"),
            ("camera:Desk", "camera"),
            ("rtsp://host/x", "address"),
            ("HTTPS://host/x", "address"),
            ("tcp://host:1", "address"),
            ("-", "pipe"),
            (".", "playlist"),
            ("*.mkv", "playlist"),
            ("**/a?.mp4", "playlist"),
            ("./0", "file"),
            ("a.mp4", "file"),
            ("[real].mp4", "file"),
            ("http:x.mp4", "file"),
        ],
    )
    def test_each_kind(self, folder: Path, monkeypatch: pytest.MonkeyPatch, spec: str, kind: str) -> None:
        (folder / "[real].mp4").touch()
        kinds = {
            "Camera": "camera",
            "open_address": "address",
            "PipedFile": "pipe",
            "open_playlist": "playlist",
            "VideoFile": "file",
        }
        opened = []
        for name, meaning in kinds.items():
            monkeypatch.setattr(hermes.sources, name, lambda *_, meaning=meaning: opened.append(meaning))
        open_source(spec)
        assert opened == [kind]

    def test_a_file_with_a_number_for_a_name(self, folder: Path) -> None:
        (folder / "a.mp4").rename("0")
        assert numbers(open_source("./0").frames()) == list(range(10))

    def test_a_password_is_no_part_of_what_is_shown_of_the_settings(self) -> None:
        assert "secret" not in repr(Connecting(password="secret"))

    def test_standard_input(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((folder / "a.mp4").read_bytes())))
        source = open_source("-")
        assert source.info.name == "standard input"
        assert numbers(source.frames(start_s=0.5)) == [5, 6, 7, 8, 9]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        with pytest.raises(SourceError, match="nothing came through standard input"):
            open_source("-")
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(SourceError, match="nothing is piped into standard input"):
            open_source("-")


class TestPlaylists:
    def test_a_folder_is_its_videos_in_natural_order_and_time_goes_on(self, folder: Path) -> None:
        source = open_source(str(folder))
        assert numbers(source.frames()) == [*range(10), *range(20), *range(10)]
        assert [round(frame.time_s, 3) for frame in source.frames()] == steady(40)
        assert source.info.duration_s == pytest.approx(4.0, abs=0.01)
        assert not source.info.is_live

    def test_a_pattern(self, folder: Path) -> None:
        (folder / "deep").mkdir()
        (folder / "a.mp4").rename(folder / "deep" / "take 3.mkv")
        assert numbers(open_source("**/take*.mkv").frames(1.0)) == [0, 0]
        assert numbers(open_source("take*").frames(1.0)) == [0, 10, 0]

    @pytest.mark.parametrize("fps", [1.0, 3.0, None])
    def test_windows_hold_the_frames_that_the_whole_gives_there(self, folder: Path, fps: float | None) -> None:
        whole = [(frame.time_s, frame.rgb.tobytes()) for frame in open_source(".").frames(fps)]
        for start_s, end_s in ((0.0, 1.0), (0.95, 3.05), (3.0, None), (3.5, 3.7)):
            window = [(frame.time_s, frame.rgb.tobytes()) for frame in open_source(".").frames(fps, start_s, end_s)]
            last_s = 99.0 if end_s is None else end_s
            assert window == [taken for taken in whole if start_s <= taken[0] < last_s]

    def test_a_moment_counts_from_the_start_of_the_first(self, folder: Path) -> None:
        source = open_source(".")
        assert numbers([source.frame_at(time_s) for time_s in (0.5, 1.0, 2.99, 3.0, 3.95, float("inf"))]) == [
            5,
            0,
            19,
            0,
            9,
            9,
        ]

    def test_one_that_is_cut_short_is_followed_by_the_next_at_once(self, tmp_path: Path) -> None:
        cut(clip(tmp_path / "1.mkv", steady(120)), 0.5)
        clip(tmp_path / "2.mkv", steady(10))
        source = open_source(str(tmp_path))
        frames = list(source.frames())
        assert np.diff([frame.time_s for frame in frames]).max() < 0.2
        assert numbers(frames)[-10:] == list(range(10))
        assert source.report.ended_early is None
        assert "1 video ended early; the next one followed at once" in source.report.notices

    def test_the_early_end_of_the_last_one_is_that_of_all(self, tmp_path: Path) -> None:
        clip(tmp_path / "1.mkv", steady(10))
        alone = VideoFile(cut(clip(tmp_path / "2.mkv", steady(120)), 0.5))
        assert list(alone.frames())
        source = open_source(str(tmp_path))
        assert list(source.frames())
        assert source.report.ended_early is not None
        assert alone.report.ended_early is not None
        assert source.report.ended_early.end_s == pytest.approx(alone.report.ended_early.end_s + 1.0)

    def test_a_list_of_unknown_length(self) -> None:
        films = [FrameList.from_arrays([np.zeros((2, 2, 3), np.uint8)] * 3, 1.0) for _ in range(2)]
        source = Playlist(films, "both")
        assert source.info.duration_s == 6.0
        assert [frame.time_s for frame in source.frames()] == [0, 1, 2, 3, 4, 5]

    def test_nothing_to_play(self, folder: Path) -> None:
        for spec, message in (("folder.mp4", "no videos in this folder"), ("*.avi", "no file fits this pattern")):
            with pytest.raises(SourceError, match=message):
                open_source(spec)
        (folder / "b.mp4").write_bytes(b"no film")
        with pytest.raises(SourceError, match=r"b\.mp4"):
            open_source(os.curdir)
