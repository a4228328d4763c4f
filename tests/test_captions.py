"""Captions that are interrupted and gone on with: real processes that are killed."""

from __future__ import annotations

import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hermes.sessions import SessionStore
from hermes_cli.captions import Caption, Plan
from tests.test_recall import MEMORY, start, wait_for
from tests.test_recall import film as film  # noqa: PLC0414 - fixtures
from tests.test_recall import run as run  # noqa: PLC0414

EVERY = ("--every", "1s", "--question", "What is on screen now?")


@pytest.mark.parametrize(
    ("suffix", "flags"), [("srt", ()), ("vtt", ("--until-change",)), ("jsonl", ()), ("txt", ("--until-change",))]
)
def test_killed_captions_go_on_as_if_nothing_had_been(
    run: Any, film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, flags: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HERMES_STATE_DIR", str(tmp_path / "whole"))
    whole, file = tmp_path / f"whole.{suffix}", tmp_path / f"film.{suffix}"
    assert run("caption", film, *MEMORY, *EVERY, *flags, "-o", whole)[0] == 0
    expected = whole.read_bytes()
    killed = tmp_path / "killed"
    monkeypatch.setenv("HERMES_STATE_DIR", str(killed))
    process = start("caption", film, *MEMORY, *EVERY, *flags, "-o", file, "--speed", "6")
    store = SessionStore(killed)
    wait_for(lambda: any(session.checkpoints for session in store.sessions()) and file.stat().st_size * 2 > len(expected))
    process.kill()
    process.communicate()
    left = file.read_bytes()
    assert process.returncode == -signal.SIGKILL
    assert expected.startswith(left)
    assert left != expected
    for number, cut in enumerate((0, 7, len(left) // 2, len(left) - 3)):  # as if the disk had lost that
        state = tmp_path / f"state {number}"
        shutil.copytree(killed, state, ignore=shutil.ignore_patterns("live.sock"))
        monkeypatch.setenv("HERMES_STATE_DIR", str(state))
        file.write_bytes(left[: len(left) - cut])
        assert run("caption", film, "-c", "-o", file)[0] == 0
        assert (cut, file.read_bytes()) == (cut, expected)
    assert run("caption", film, "-c", *EVERY, "-o", file, "--fast")[0] == 0  # there is nothing left to do
    assert file.read_bytes() == expected


def test_what_was_interrupted_twice(run: Any, film: Path, tmp_path: Path) -> None:
    whole, file, store = tmp_path / "whole.srt", tmp_path / "film.srt", SessionStore()
    assert run("caption", film, *MEMORY, *EVERY, "-o", whole, "--no-save")[0] == 0
    assert store.sessions() == []

    def longer(length: int) -> bool:
        return file.exists() and file.stat().st_size > length

    for flags in ((*MEMORY, *EVERY), ("-c",)):
        length = file.stat().st_size if file.exists() else 0
        process = start("caption", film, *flags, "-o", file, "--speed", "6")
        wait_for(partial(longer, length + 150))
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 130
    assert run("caption", film, "-c", "-o", file)[0] == 0
    assert (file.read_bytes(), len(store.sessions())) == (whole.read_bytes(), 1)


def test_what_cannot_be_gone_on_with_is_refused_and_left_alone(run: Any, film: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "film.srt", tmp_path / "other.srt"

    def refused(*arguments: str | Path) -> str:
        before = file.read_bytes() if file.exists() else None
        code, out, told = run("caption", *arguments)
        assert (code, out, file.read_bytes() if file.exists() else None) == (2, "", before)
        return str(told)

    assert "no session has captions" in refused(film, "-c", "-o", file)
    assert run("caption", film, *MEMORY, "--every", "5s", "-o", file)[0] == 0
    assert "there already" in refused(film, *MEMORY, "-o", file)
    assert "no session has captions" in refused(film, "-c", "-o", other)
    assert "another --every" in refused(film, "-c", "-o", file, "--every", "2s")
    assert "another --until-change" in refused(film, "-c", "-o", file, "--until-change")
    assert "--fps cannot be changed" in refused(film, "-c", "-o", file, "--fps", "2")
    assert "--force" in refused(film, "-c", "-o", file, "--force")
    with SessionStore().reopen(SessionStore().latest()):
        assert "by another process" in refused(film, "-c", "-o", file)
    file.write_text(file.read_text().replace("1\n", "one\n", 1))
    assert "is not as session" in refused(film, "-c", "-o", file)
    file.unlink()
    assert "cannot be read" in refused(film, "-c", "-o", file)


def test_a_pipe_is_refused_and_not_waited_for(run: Any, film: Path, tmp_path: Path) -> None:
    file, pipe, played = tmp_path / "film.srt", tmp_path / "pipe.srt", tmp_path / "pipe.mp4"
    assert run("caption", film, *MEMORY, "--every", "5s", "-o", file)[0] == 0
    os.mkfifo(played)
    file.rename(tmp_path / "kept.srt")
    for path in (pipe, file):
        os.mkfifo(path)
        for flags in ((*MEMORY,), (*MEMORY, "--force"), ("-c",)):
            code, out, told = run("caption", film, *flags, "-o", path)
            assert (code, out, f"{path.name} is a named pipe, not a file\n" in told) == (2, "", True)
    code, _, told = run("caption", played, "-c", "-o", tmp_path / "kept.srt")
    assert (code, "pipe.mp4 is a named pipe, not a file\nhint: give the video file" in told) == (2, True)


def test_a_run_that_never_began_leaves_every_file_as_it_was(run: Any, film: Path, tmp_path: Path) -> None:
    there, new = tmp_path / "there.vtt", tmp_path / "new.vtt"
    there.write_text("mine")
    (tmp_path / "folder").mkdir()
    for code, flags in ((4, ("-m", "nowhere", "--offline")), (2, (*MEMORY, "--question", 600 * "What? "))):
        assert run("caption", film, *flags, "-o", new)[0] == code
        assert run("caption", film, *flags, "-o", there, "--force")[0] == code
    assert (there.read_text(), new.exists()) == ("mine", False)
    for name in (300 * "n", "~nobody-of-that-name/film"):
        assert run("caption", film, *MEMORY, "-o", f"{name}.vtt")[0] == 2
        assert run("caption", film, "-c", "-o", f"{name}.vtt")[0] == 2
    assert run("caption", film, *MEMORY, "-o", there, "--force")[0] == 0
    whole = there.read_text()
    assert whole.startswith("WEBVTT")
    assert run("caption", film, "-c", "-o", tmp_path / "folder" / ".." / "there.vtt")[0] == 0
    assert there.read_text() == whole


def test_no_text_can_look_like_the_time_of_a_caption(tmp_path: Path) -> None:
    text = "a --> b ---> c -----> d"
    for suffix in ("srt", "vtt"):
        written = Plan.of(tmp_path / f"film.{suffix}", 5.0, "What?", False).written([Caption(1, 0.0, 5.0, text)])
        assert written.count(b"-->") == 1
