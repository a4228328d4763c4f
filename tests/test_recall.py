"""`hermes watch` keeps a session; `hermes ask` and `watch -c` go back to it. Real files, processes and sockets."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.sessions import SessionStore, SessionWriter
from hermes.tiny.clip import write_clip
from hermes.tiny.world import RandomSource, make_video
from hermes_cli.app import main
from tests.serving import http_server

MEMORY = ("-m", "tiny", "--chunk", "4", "--budget", "24")
NOW = "What is on screen now?"


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


def test_what_was_played_before_a_session_goes_on_is_for_ask(run: Any, film: Path) -> None:
    run("watch", film, *MEMORY)
    session = SessionStore().latest()
    assert session.checkpoints[-1].time_s == 15
    assert run("watch", "-c", "--ask", f"00:15 {NOW}")[0] == 0
    code, out, told = run("watch", "-c", "--ask", f"00:03 {NOW}")
    assert (code, out) == (2, "")
    assert f'hermes ask --session {session.info.id} --at 00:03 "{NOW}"' in told
    assert "the session" not in told.splitlines()[-1]  # nothing was played


def test_a_video_that_was_moved_is_found_where_it_is(run: Any, film: Path) -> None:
    run("watch", film, *MEMORY)
    then = run("ask", "--at", "00:05", NOW)[1]
    moved = film.rename(film.with_name("moved.mp4"))
    code, _, told = run("ask", "--at", "00:05", NOW)
    assert (code, f"{film}: it is gone" in told, "--nearest" in told, "--source" in told) == (2, True, True, True)
    code, _, told = run("watch", "-c")
    assert (code, f"{film}: it is gone" in told, "--nearest" in told) == (2, True, False)
    session = SessionStore().latest().info.id
    assert run("ask", "--source", moved, "--at", "00:05", NOW)[:2] == (0, then)
    assert run("ask", "--session", session, "--source", moved, "--at", "00:05", NOW)[:2] == (0, then)
    assert run("watch", "-c", moved)[0] == 0
    assert run("watch", "--session", session, moved)[0] == 0


def test_the_nearest_memory_is_asked_with_times_that_need_the_length(run: Any, film: Path) -> None:
    run("watch", film, *MEMORY)
    film.unlink()
    for at in ("50%", "-5s", "end", "00:11"):
        code, out, _ = run("ask", "--nearest", "--at", at, NOW)
        assert (code, out.count("\n")) == (0, 1), at
    code, _, told = run("ask", "--nearest", "--at", "00:40", NOW)
    assert (code, "ends at 00:00:16.000" in told) == (2, True)


def test_a_session_is_of_one_source_and_has_one_name(run: Any, film: Path, tmp_path: Path) -> None:
    run("watch", film, *MEMORY, "--name", "garden")
    other = tmp_path / "other.mp4"
    write_clip(make_video(4, RandomSource(3)), other, size=96)
    for command in (("watch", "--session", "garden", other), ("ask", "--session", "garden", "--source", other, NOW)):
        code, out, told = run(*command)
        assert (code, out) == (2, "")
        assert f"and not of {other}" in told
    code, _, told = run("watch", "-c", "--name", "yard")
    assert (code, "--name cannot be changed" in told) == (2, True)


def test_only_damaged_sessions_are_not_no_session(run: Any, film: Path) -> None:
    run("watch", film, *MEMORY, "--name", "garden")
    session = SessionStore().latest()
    (session.folder / "session.json").write_bytes(b"")
    for command in (("ask", NOW), ("watch", "-c"), ("watch", "-c", film), ("ask", "--source", film, NOW)):
        code, out, told = run(*command)
        assert (code, out) == (3, "")
        assert "there is no session" not in told
    assert "says which cannot be read" in run("ask", "--session", "garden", NOW)[2]


def test_a_damaged_log_is_told(run: Any, film: Path) -> None:
    run("watch", film, *MEMORY, "--ask", f"00:05 {NOW}")
    log = SessionStore().latest().log().path
    log.write_bytes(log.read_bytes().replace(b'"frames": 6', b'"frames": null'))
    for command in (("ask", "--at", "00:15", NOW), ("watch", "-c")):
        code, _, told = run(*command)
        assert (code, "recovered 1 of 2 entries" in told) == (0, True)
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:2]))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("fps",), None),
        (("fps",), "1"),
        (("fps",), 0.0),
        (("end",), "late"),
        (("start",), -1.0),
        (("duration",), "long"),
        (("policy",), "none"),
        (("dtype",), 32),
        (("max_pixels",), "many"),
        (("memory",), []),
        (("memory", "budget"), "24"),
        (("memory", "budget"), -1),
        (("memory", "smoothing"), [1.0]),
        (("memory", "unknown"), 1),
        (("sampling", "seed"), 0.5),
        (("sampling",), None),
    ],
    ids=str,
)
def test_settings_that_are_none_are_damage(run: Any, kept_session: Path, path: tuple[str, ...], value: object) -> None:
    info = json.loads((kept_session / "session.json").read_text())
    *groups, name = path
    group = info["settings"]
    for each in groups:
        group = group[each]
    group[name] = value
    (kept_session / "session.json").write_text(json.dumps(info))
    for command in (("ask", "--at", "00:05", NOW), ("ask", "--nearest", NOW), ("watch", "-c")):
        code, out, told = run(*command)
        assert (code, out) == (3, "")
        assert f"session {kept_session.name} is damaged" in told


def test_settings_that_are_missing_are_damage(run: Any, kept_session: Path) -> None:
    whole = json.loads((kept_session / "session.json").read_text())
    for name in ("fps", "start", "end", "policy", "memory", "sampling", "prompt_style", "dtype", "quant", "max_pixels"):
        settings = {key: value for key, value in whole["settings"].items() if key != name}
        (kept_session / "session.json").write_text(json.dumps({**whole, "settings": settings}))
        code, _, told = run("ask", "--at", "00:05", NOW)
        assert (code, f"session {kept_session.name} is damaged" in told) == (3, True)


@pytest.fixture
def kept_session(run: Any, film: Path) -> Path:
    """The folder of a session."""
    run("watch", film, *MEMORY, "--end", "00:02")
    return SessionStore().latest().folder


def test_memories_that_cannot_be_saved_cost_no_answer(run: Any, film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(writer: SessionWriter, state: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SessionWriter, "save", fail)
    code, out, told = run("watch", film, *MEMORY, "--ask", f"00:05 {NOW}", "--ask", f"00:14 {NOW}")
    assert (code, out.count("\n"), told.count("no longer saved")) == (0, 2, 1)
    assert "the memory is no longer saved: No space left" in told
    session = SessionStore().latest()
    assert [record["type"] for record in session.log()] == ["answer", "answer", "stop"]
    assert f"session {session.info.id}:" in told
    monkeypatch.setattr(SessionWriter, "append", fail)
    _, _, told = run("watch", film, *MEMORY, "--ask", f"00:05 {NOW}")
    assert told.count("no longer saved") == 2
    assert "goes back to any moment" not in told  # there is nothing to go back to


def test_a_film_that_never_began_leaves_no_invitation(run: Any, film: Path) -> None:
    code, _, told = run("watch", film, *MEMORY, "--start", "00:00.2", "--end", "00:00.4")
    assert code == 2
    assert "hermes ask --at TIME" not in told


def test_hints_are_commands_that_exist(run: Any, film: Path) -> None:
    run("watch", film, *MEMORY)
    assert 'hermes ask --at 3 "What' in run("ask", "--at", "3")[2]
    assert f'hermes ask {film} "What' in run("ask", film)[2]
    code, _, told = run("ask", "What", "is", "this")
    assert (code, 'in quotes: hermes ask "What is this"' in told) == (3, True)
    assert "quotes" not in run("ask", "nothing.mp4", "What is this?")[2]
    code, _, told = run("watch", film, *MEMORY, "--session-size", "0")
    assert (code, "leaves no room" in told) == (2, True)


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


def test_how_a_source_is_reached_is_no_setting_of_its_session(run: Any, film: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x\n")
    run("watch", film, *MEMORY)
    reached = ("--timeout", "3", "--reconnect", "inf", "--rtsp-transport", "udp", "--password-file", tmp_path / "secret")
    for pace in (("--realtime",), ("--fast",), ("--speed", "90", "--buffer", "all")):
        assert run("watch", "-c", *pace, *reached)[0] == 0
    assert run("ask", *reached, NOW)[0] == 0
    for command in (("watch", "-c", "--fps", "2"), ("watch", "-c", "--start", "3"), ("ask", "--realtime", NOW)):
        code, _, told = run(*command)
        assert (code, "cannot be changed" in told) == (2, True)
    for mistake in (("--speed", "0"), ("--speed", "2", "--fast"), ("--password-file", tmp_path / "none")):
        assert run("watch", "-c", *mistake)[0] == 2


def test_the_password_of_an_address_is_asked_for_and_never_tried_as_stars(
    run: Any, film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("p@ss\n")
    with http_server(film.parent, "me:p@ss") as server:
        address = server.replace("://", "://me:p%40ss@") + "/film.mp4"
        assert run("watch", address, *MEMORY)[0] == 0
        for command in (("watch", "-c"), ("watch", "-c", address.replace("p%40ss", "***"))):
            code, out, told = run(*command)
            assert (code, out) == (2, "")
            assert "the password is not known, since none is ever stored" in told.splitlines()[0]
            assert "HERMES_RTSP_PASSWORD" in told
        assert run("watch", "-c", "--password-file", tmp_path / "secret")[0] == 0
        assert run("watch", "-c", address)[0] == 0
        monkeypatch.setenv("HERMES_RTSP_PASSWORD", "p@ss")
        assert run("watch", "-c")[0] == 0
        monkeypatch.setenv("HERMES_RTSP_PASSWORD", "wrong")
        code, _, told = run("watch", "-c")
        assert (code, "wrong user or password" in told) == (3, True)
        assert run("watch", f"{address}?token=abc", *MEMORY)[0] == 0
        code, _, told = run("watch", "-c")
        assert (code, "give the whole address" in told) == (2, True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two films of 6 seconds."""
    path = tmp_path / "[a] folder"
    path.mkdir()
    for number in (9, 10):
        write_clip(make_video(6, RandomSource(number)), path / f"{number}.mp4", size=96)
    return path


@pytest.mark.parametrize("pattern", ["", "/*.mp4"])
def test_a_folder_answers_as_it_was(
    run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pattern: str
) -> None:
    monkeypatch.chdir(folder if pattern else tmp_path)
    source = pattern.removeprefix("/") or folder.name
    _, live, _ = run("watch", source, *MEMORY, "--ask", f"00:03 {NOW}", "--ask", f"00:09 {NOW}")
    monkeypatch.chdir(tmp_path)

    def answers() -> tuple[str, str]:
        found = [run("ask", "--at", at, NOW) for at in ("00:03", "00:09")]
        assert [code for code, _, _ in found] == [0, 0]
        assert not any("the memory that was saved" in told for _, _, told in found)
        return found[0][1] + found[1][1], found[0][2]

    again, told = answers()
    assert (again, "later" in told) == (live, False)
    (folder / "1.mp4").write_bytes((folder / "9.mp4").read_bytes())
    again, told = answers()
    assert (again, "1.mp4 came to" in told) == (live, True)
    assert run("watch", "-c")[0] == 0
    (folder / "1.mp4").unlink()
    moved = folder.rename(tmp_path / "moved")
    code, out, told = run("ask", "--at", "00:03", NOW)
    assert (code, out, "9.mp4 is gone" in told, "--nearest" in told) == (2, "", True, True)
    assert run("ask", "--source", f"{moved}{pattern}", "--at", "00:03", NOW)[1] == live.splitlines(keepends=True)[0]
    moved.rename(folder)
    whole = (folder / "10.mp4").read_bytes()
    (folder / "10.mp4").write_bytes(whole + b"more")
    assert "10.mp4 has changed, from" in run("ask", "--at", "00:03", NOW)[2]
    (folder / "10.mp4").write_bytes(bytes(100) + whole[100:])
    assert "starts with other bytes" in run("ask", "--at", "00:03", NOW)[2]


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
    assert [run("ask", "--at", at, NOW)[:2] for at in ("now", "end")] == [now[:2]] * 2
    away = film.rename(film.with_suffix(".away"))
    code, _, told = run("ask", "--at", "00:10", NOW)
    assert (code, "it is gone" in told, "--nearest" in told) == (2, True, True)
    code, near, told = run("ask", "--at", "00:10", "--nearest", NOW, "--json")
    assert (code, "warning: answered from the memory that was saved at" in told) == (0, True)
    away.rename(film)
    out, told = watch.communicate(NOW)
    assert (watch.returncode, now) == (0, (0, out, now[2])), told
    assert json.loads(then[1])["at"] == 3.0
    answers = store.latest().log().answers
    nearest = json.loads(near)["at"]
    assert nearest <= 10
    assert sorted((record["at"], record["remembered"]) for record in answers) == sorted(
        [(3.0, False), (nearest, False), *[(15.0, True)] * 4]
    )
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
