"""`hermes sessions`: what it lists, shows, exports and deletes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.sessions import SessionInfo, SessionStore, SessionWriter, SourceIdentity
from hermes.timecode import parse
from hermes_cli.app import main
from hermes_cli.commands import sessions
from hermes_cli.export import FORMATS, exported
from tests.test_sessions import state

PROGRAM = [sys.executable, "-m", "hermes_cli"]
NASTY = 'a --> b <i>&amp; \\ | *_`#\n\n1\n00:00:01,000 --> 00:00:02,000\r\x1b[2J\x00\t"\u2028\ud800'


@dataclass(frozen=True)
class Done:
    """How a run ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionStore:
    """The user's own store."""
    monkeypatch.setenv("HERMES_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    return SessionStore()


@pytest.fixture
def run(store: SessionStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the program in this process, without a terminal."""
    monkeypatch.setattr(sys, "stdin", None)

    def run(*arguments: str | Path) -> Done:
        capsys.readouterr()
        code = main(["sessions", *map(str, arguments)])
        return Done(code, *capsys.readouterr())

    return run


def answer(at: float, question: str = "What is on screen?", text: str = "A red star.") -> dict[str, Any]:
    return {
        "type": "answer",
        "at": at,
        "question": question,
        "answer": text,
        "finish_reason": "stop",
        "remembered": True,
        "frames": 1,
    }


def begin(store: SessionStore, *answers: dict[str, Any], source: str = "film.mp4", name: str | None = None) -> SessionWriter:
    writer = store.create(SourceIdentity.of(source), "tiny", None, {"fps": 1.0, "memory": {"budget": 24}}, name)
    for record in answers:
        writer.append(record)
    return writer


def test_the_list_is_plain_when_piped_and_has_the_newest_first(store: SessionStore, run: Run, tmp_path: Path) -> None:
    with begin(store, answer(191.9), answer(20), {"type": "note"}, source="rtsp://me:secret@camera/1") as first:
        pass
    second = begin(store, name="front [b]door")
    second.save(state(7))
    done = run()
    assert (done.code, done.err) == (0, "")
    heading, newer, older = done.out.splitlines()
    assert heading.split() == ["id", "name", "source", "watched", "asked", "size", "state", "created"]
    assert re.fullmatch(
        rf"{second.info.id} front \[b\]door film\.mp4 +00:00:02 +0 0\.0 MB live  \d{{4}}-\d\d-\d\d \d\d:\d\d", newer
    )
    assert older.split()[:5] == [first.info.id, "-", "rtsp://me:***@camera/1", "00:03:11", "2"]
    assert older.split()[7] == "ended"
    assert run("list") == done


def test_the_list_as_json(store: SessionStore, run: Run) -> None:
    with begin(store, answer(20), name="door") as writer:
        writer.save(state(7))
    done = run("--json")
    (record,) = map(json.loads, done.out.splitlines())
    assert run("list", "--json") == done
    wanted = {"id": writer.info.id, "name": "door", "watched": 20.0, "questions": 1, "checkpoints": 1, "live": False}
    assert wanted.items() <= record.items()
    assert record["bytes"] == writer.nbytes
    assert record["created"] == writer.info.created
    assert record["created_local"] == f"{writer.info.created_at.astimezone():%Y-%m-%d %H:%M}"


def test_the_time_is_local(store: SessionStore) -> None:
    writer = begin(store)
    path = writer.folder / "session.json"
    path.write_text(path.read_text().replace(writer.info.created, "2026-11-30T20:00:00.000Z"))
    done = subprocess.run([*PROGRAM, "sessions"], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("2026-12-01 01:30")


def test_without_sessions_it_says_how_to_get_one(store: SessionStore, run: Run) -> None:
    done = run()
    assert (done.code, done.out) == (0, "")
    assert "hermes watch SRC" in done.err
    assert run("--json") == Done(0, "", "")
    assert not store.folder.exists()
    for command in ("show", "path", "export"):
        done = run(command)
        assert (done.code, done.out) == (2, "")
        assert done.err.splitlines()[0] == "error: there is no session"


def test_a_damaged_session_is_told_and_costs_no_other(store: SessionStore, run: Run) -> None:
    good, bad = begin(store), begin(store)
    (bad.folder / "session.json").write_bytes(b"")
    done = run()
    assert [line.split()[0] for line in done.out.splitlines()] == ["id", good.info.id]
    assert done.err == f"warning: session {bad.info.id} is damaged: session.json is not JSON\n"
    done = run("show", bad.info.id)
    assert (done.code, done.out) == (3, "")


def test_whatever_is_in_a_session_costs_no_other(store: SessionStore, run: Run) -> None:
    good, odd = begin(store), begin(store, answer(20.0))
    odd.close()
    for name in ("lock", "log.jsonl"):
        (odd.folder / name).unlink()
        (odd.folder / name).mkdir()
    (odd.folder / "00000001-1e999.safetensors").touch()
    done = run()
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == ["id", odd.info.id, good.info.id]
    assert done.err.splitlines() == [
        f"warning: session {odd.info.id}: {odd.folder}/log.jsonl cannot be read: Is a directory"
    ]
    assert json.loads(run("--json").out.splitlines()[0])["watched"] == 0.0


def test_answers_about_what_was_never_watched_do_not_count_as_watched(store: SessionStore, run: Run) -> None:
    begin(store, answer(20.0), answer(90.0) | {"remembered": False})
    assert json.loads(run("--json").out)["watched"] == 20.0


def test_show_has_facts_checkpoints_and_what_was_asked(store: SessionStore, run: Run, tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(b"x")
    writer = begin(store, answer(20.0), answer(3.5, "Who?", "Nobody."), source=str(film))
    writer.save(state(7))
    (writer.folder / "log.jsonl").open("ab").write(b"{broken\n")
    film.write_bytes(b"xy")
    done = run("show")
    assert done.code == 0
    assert done.err.startswith(f"warning: session {writer.info.id}: recovered 2 of 3 entries; 1 damaged line")
    facts, saved, transcript = done.out.split("\n\n", 2)
    assert [line.split()[0] for line in facts.splitlines()] == [
        *("session", "source", "model", "watched", "created", "state", "size", "folder", "settings")
    ]
    assert f"{film} (it has changed, from 1 bytes to 2)" in facts
    assert "fps 1.0, budget 24" in facts
    assert saved.splitlines()[1].split() == ["00:00:02.000", "7", "0.0", "MB"]
    assert transcript == "[00:00:03.500] Who?\nNobody.\n\n[00:00:20.000] What is on screen?\nA red star.\n"
    record = json.loads(run("show", writer.info.id, "--json").out)
    assert record["settings"] == writer.info.settings
    assert record["checkpoints"] == [{"time": 2.0, "frames": 7, "bytes": writer.checkpoints[0].nbytes}]
    assert record["log"] == [answer(20.0), answer(3.5, "Who?", "Nobody.")]


def test_path_prints_the_folder_and_nothing_else(store: SessionStore, run: Run) -> None:
    first, second = begin(store, name="door"), begin(store)
    assert run("path") == Done(0, f"{second.folder}\n", "")
    assert run("path", "door") == Done(0, f"{first.folder}\n", "")
    done = run("path", "dor")
    assert (done.code, done.out) == (2, "")
    assert "did you mean door?" in done.err


# Deleting


def test_without_a_terminal_deleting_wants_to_be_told(store: SessionStore, run: Run) -> None:
    kept, doomed = begin(store), begin(store)
    doomed.close()
    done = run("rm", doomed.info.id)
    assert (done.code, done.out) == (2, "")
    assert "--yes" in done.err
    assert run("rm", "--yes", doomed.info.id, doomed.info.id) == Done(0, "", "")
    assert [session.info.id for session in store.sessions()] == [kept.info.id]


def test_nothing_is_deleted_unless_everything_named_can_be(store: SessionStore, run: Run) -> None:
    ended, live = begin(store), begin(store)
    ended.close()
    for other, message in ((live.info.id, "is being written by another process"), ("none", "there is no session 'none'")):
        done = run("rm", "--yes", ended.info.id, other)
        assert done.code == 2
        assert message in done.err
    assert len(store.sessions()) == 2
    assert run("rm", "--yes").code == 2


def test_a_damaged_session_is_deleted_by_its_whole_id(store: SessionStore, run: Run) -> None:
    good, bad = begin(store), begin(store)
    bad.close()
    (bad.folder / "session.json").write_bytes(b"")
    assert run("rm", "--yes", bad.info.id[:-1]).code != 0
    assert run("rm", bad.info.id).code == 2  # it asks first
    assert bad.folder.exists()
    assert run("rm", "--yes", bad.info.id) == Done(0, "", "")
    assert [path.name for path in store.folder.iterdir() if not path.name.startswith(".")] == [good.info.id]


@pytest.mark.parametrize(("reply", "left"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("\x03", 1)])
def test_on_a_terminal_deleting_asks_first(store: SessionStore, reply: str, left: int) -> None:
    writer = begin(store, name="door")
    writer.close()
    terminal, end = pty.openpty()
    command = [*PROGRAM, "sessions", "rm", "door"]
    options: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), end)
    options |= {"start_new_session": True, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}  # for Ctrl-C
    with subprocess.Popen(command, **options) as process:
        os.close(end)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(terminal, 1000)
        os.write(terminal, reply.encode())
        code = process.wait()
    os.close(terminal)
    assert f"Delete {writer.info.id} (door)".encode() in shown
    assert code == (130 if reply == "\x03" else 0)
    assert len(store.sessions()) == left


# Exporting

INFO = SessionInfo("20261130-1432-k3f", "2026-11-30T14:32:00.000Z", None, SourceIdentity("film_1.mp4"), "tiny", None, {})


def test_the_formats_are_those_of_the_option() -> None:
    hint = get_type_hints(sessions.export)["kind"]
    assert get_args(get_args(hint)[0]) == FORMATS


def test_each_format() -> None:
    answers = [answer(3.5, "Who?", "Nobody."), answer(5.0), answer(3725.0004)]
    assert exported("srt", INFO, answers) == (
        "1\n00:00:03,500 --> 00:00:05,000\nWho?\nNobody.\n\n"
        "2\n00:00:05,000 --> 00:00:10,000\nWhat is on screen?\nA red star.\n\n"
        "3\n01:02:05,000 --> 01:02:10,000\nWhat is on screen?\nA red star.\n\n"
    )
    assert exported("vtt", INFO, answers[:1]) == "WEBVTT\n\n00:00:03.500 --> 00:00:08.500\nWho?\nNobody.\n\n"
    assert exported("tsv", INFO, answers[:1]) == "start\tend\tquestion\tanswer\n3500\t8500\tWho?\tNobody.\n"
    assert exported("txt", INFO, answers[:1]) == "[00:00:03.500] Who?\nNobody.\n\n"
    assert exported("md", INFO, answers[:1]) == (
        "# film\\_1.mp4\n\nSession 20261130-1432-k3f of film\\_1.mp4, answered by tiny\n"
        "\n## 00:00:03.500\n\n> Who?\n\nNobody.\n"
    )
    whole = json.loads(exported("json", INFO, answers))
    assert (whole["id"], whole["answers"]) == (INFO.id, answers)


TEXTS = st.text() | st.lists(st.sampled_from([*NASTY, "-->", "--->", "\n", "\n\n", "- ", "1. ", "# "])).map("".join)
ANSWERS = st.lists(st.builds(answer, st.floats(0, 400_000) | st.integers(0, 3), TEXTS, TEXTS), max_size=6).map(
    lambda answers: sorted(answers, key=lambda record: record["at"])
)
_SRT_CUE = re.compile(r"(\d+)\n(\d\d+:\d\d:\d\d,\d{3}) --> (\d\d+:\d\d:\d\d,\d{3})\n((?:.+\n)*)\n")


@given(ANSWERS)
def test_subtitles_are_well_formed_whatever_was_said(answers: list[dict[str, Any]]) -> None:
    text = exported("srt", INFO, answers)
    found = _SRT_CUE.findall(text)
    assert "".join(f"{number}\n{start} --> {end}\n{lines}\n" for number, start, end, lines in found) == text
    assert [int(number) for number, *_ in found] == list(range(1, len(answers) + 1))
    times = [(parse(start).value, parse(end).value) for _, start, end, _ in found]
    assert all(start < end <= start + 5.0005 for start, end in times)
    assert all(earlier[0] == later[0] or earlier[1] <= later[0] for earlier, later in pairwise(times))
    head, *blocks = exported("vtt", INFO, answers).removesuffix("\n\n").split("\n\n")
    assert head == "WEBVTT"
    assert len(blocks) == len(answers)
    for block, (*_, lines) in zip(blocks, found, strict=True):
        payload = block.partition("\n")[2]
        assert "-->" not in payload
        assert "<" not in payload
        assert "-->" not in lines
        assert re.sub("-+>", "->", unescape(payload)) == re.sub("-+>", "->", lines.removesuffix("\n"))


@given(ANSWERS)
def test_the_other_formats_are_well_formed_whatever_was_said(answers: list[dict[str, Any]]) -> None:
    rows = [line.split("\t") for line in exported("tsv", INFO, answers).removesuffix("\n").split("\n")]
    assert len(rows) == len(answers) + 1
    assert {len(row) for row in rows} == {4}
    assert json.loads(exported("json", INFO, answers))["answers"] == answers
    for kind in ("txt", "md"):
        assert not set(exported(kind, INFO, answers)) & {"\x1b", "\r", "\0"}
    headings = [line for line in exported("md", INFO, answers).split("\n") if line.startswith("#")]
    assert len(headings) == len(answers) + 1


def test_exporting_to_a_file_never_overwrites_it_unless_forced(store: SessionStore, run: Run, tmp_path: Path) -> None:
    writer = begin(store, answer(3.5, "Who?", NASTY))
    file = tmp_path / "talk.srt"
    assert run("export", "-o", file) == Done(0, "", "")
    first = file.read_bytes()
    assert first.startswith(b"1\n00:00:03,500 --> 00:00:08,500\nWho?\n")
    done = run("export", "-f", "txt", "-o", file)
    assert done.code == 2
    assert "--force" in done.err
    assert file.read_bytes() == first
    assert run("export", writer.info.id, "-f", "txt", "-o", file, "--force") == Done(0, "", "")
    assert file.read_text(encoding="utf-8").startswith("[00:00:03.500] Who?\n")
    assert run("export", "-f", "md", "-o", tmp_path) == Done(0, "", "")
    assert (tmp_path / f"{writer.info.id}.md").is_file()
    assert run("export", "-o", tmp_path / "none" / "a.txt").code == 2


def test_exporting_to_standard_output(store: SessionStore, run: Run) -> None:
    begin(store, answer(3.5, "Who?", "Nobody."))
    assert run("export") == Done(0, "[00:00:03.500] Who?\nNobody.\n\n", "")
    assert run("export", "-f", "vtt").out.startswith("WEBVTT\n")
    assert run("export", "-f", "pdf").code == 2
