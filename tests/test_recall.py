"""`hermes watch` keeps a session; `hermes ask` and `watch -c` go back to it. Real files, processes and sockets."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes.sessions import SessionStore
from hermes.tiny.clip import write_clip
from hermes.tiny.world import RandomSource, make_video
from hermes_cli.app import main

MEMORY = ("-m", "tiny", "--chunk", "4", "--budget", "24")
NOW = "What is on screen now?"


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """16 seconds of the embedded model's world."""
    path = tmp_path / "film.mp4"
    write_clip(make_video(16, RandomSource(7)), path, size=96)
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str | Path, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


def test_a_session_answers_as_the_watch_did_at_that_moment(run: Any, film: Path) -> None:
    asked = [("00:03", NOW), ("00:08", "What did you see first?"), ("00:13", NOW)]
    flags = [word for time_s, question in asked for word in ("--ask", f"{time_s} {question}")]
    _, live, _ = run("watch", film, *MEMORY, *flags)
    for (at, question), answer in zip(asked, live.splitlines(), strict=True):
        code, again, told = run("ask", "--at", at, question)
        assert (code, again) == (0, f"{answer}\n")
        assert f"[00:{at}.000]" in told
    assert run("ask", NOW)[1] == run("ask", "--at", "end", NOW)[1]  # what is asked last is about what was seen last


def test_what_was_asked_before_colours_the_memory_as_it_did(run: Any, film: Path) -> None:
    """A question at 00:05 changes what later compressions keep; going back repeats that."""
    with_it = run("watch", film, *MEMORY, "--ask", "00:05 What color was the circle?", "--ask", f"00:15 {NOW}", "--json")[1]
    code, again, _ = run("ask", "--at", "00:15", NOW, "--json")
    first, second = json.loads(with_it.splitlines()[-1]), json.loads(again)
    assert code == 0
    volatile = ("timing_ms", "created", "source")
    assert {k: v for k, v in first.items() if k not in volatile} == {k: v for k, v in second.items() if k not in volatile}


def test_a_video_that_has_changed_is_not_read_again(run: Any, film: Path) -> None:
    run("watch", film, *MEMORY)
    film.write_bytes(film.read_bytes() + b"more")
    code, out, told = run("ask", "--at", "00:09", NOW)
    assert (code, out) == (2, "")
    assert "has changed" in told
    assert "--nearest" in told
    code, out, told = run("ask", "--at", "00:09", "--nearest", NOW)
    assert (code, out.count("\n")) == (0, 1)
    assert "the memory that was saved at 00:00:0" in told
    assert run("ask", "--at", "00:00", "--nearest", NOW)[0] == 2  # nothing was saved before that
    film.unlink()
    assert "is gone" in run("ask", NOW)[2]


def test_a_run_goes_on_where_it_stopped(run: Any, film: Path) -> None:
    whole = run("watch", film, *MEMORY, "--no-save", "--ask", f"00:05 {NOW}", stdin="What did you see first?")[1]
    first = run("watch", film, *MEMORY, "--end", "00:07", "--ask", f"00:05 {NOW}")[1]
    session = SessionStore().latest()
    settings = json.loads((session.folder / "session.json").read_text())
    settings["settings"]["end"] = None  # as if it had been interrupted there
    (session.folder / "session.json").write_text(json.dumps(settings))
    code, rest, told = run("watch", "-c", stdin="What did you see first?")
    assert code == 0
    assert first + rest == whole
    assert session.info.id in told


def test_a_session_keeps_its_settings(run: Any, film: Path) -> None:
    run("watch", film, *MEMORY, "--name", "garden")
    for flags in (("--fps", "2"), ("--policy", "fifo"), ("--quant", "8bit"), ("--budget", "30")):
        code, _, told = run("ask", "--session", "garden", NOW, *flags)
        assert code == 2
        assert f"{flags[0].replace('--budget', '--budget')} cannot be changed" in told
    assert run("ask", "--session", "garden", NOW, "--max-new-tokens", "1", "--device", "cpu")[0] == 0


def test_nothing_is_kept_when_nothing_shall_be(run: Any, film: Path) -> None:
    run("watch", film, *MEMORY, "--no-save")
    code, _, told = run("ask", NOW)
    assert code == 2
    assert "hermes watch SRC makes one" in told


def test_a_state_folder_that_cannot_be_written_costs_only_the_session(
    run: Any, film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HERMES_STATE_DIR", str(tmp_path / "file"))
    code, out, told = run("watch", film, *MEMORY, stdin=NOW)
    assert (code, out.count("\n")) == (0, 1)
    assert "not saved as a session" in told


# ---------------------------------------------------------------- other processes


def start(*arguments: str | Path, **settings: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "hermes_cli", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_another_process_asks_a_running_watch(run: Any, film: Path) -> None:
    watch = start("watch", film, *MEMORY, stdin=subprocess.PIPE)  # which waits for questions at the end
    store = SessionStore()
    wait_for(lambda: any(session.checkpoints and session.checkpoints[-1].frames == 16 for session in store.sessions()))
    now, then = run("ask", NOW), run("ask", "--at", "00:03", NOW, "--json")
    out, told = watch.communicate(NOW)
    assert (watch.returncode, now) == (0, (0, out, now[2])), told
    assert json.loads(then[1])["at"] == 3.0
    answers = store.latest().log().answers
    assert [(record["at"], record["remembered"]) for record in answers] == [(3.0, False), (15.0, True), (15.0, True)]
    assert run("ask", "--at", "00:03", NOW)[1] == f"{json.loads(then[1])['answer']}\n"  # the same when nobody watches


def test_a_killed_watch_leaves_a_session_that_answers(run: Any, film: Path) -> None:
    watch = start("watch", film, *MEMORY, stdin=subprocess.PIPE)
    store = SessionStore()
    wait_for(lambda: any(session.checkpoints for session in store.sessions()))
    watch.kill()
    watch.communicate()
    assert not store.latest().is_live
    code, out, _ = run("ask", "--at", "00:05", NOW)
    assert (code, out.count("\n")) == (0, 1)
    assert run("watch", "-c")[0] == 0
