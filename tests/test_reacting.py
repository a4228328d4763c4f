"""`--on-change`: real commands, run by a real `hermes watch` beside its video."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from tests.test_recall import MEMORY, start, wait_for
from tests.test_recall import film as film  # noqa: PLC0414 - fixtures
from tests.test_recall import run as run  # noqa: PLC0414

EVERY = ("--every", "1s What is on screen now?")
Script = Callable[[str], Path]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A shell script of these lines, run in the folder of the film."""

    def script(lines: str) -> Path:
        path = tmp_path / "my script"
        path.write_text(f"#!/bin/sh\ncd '{tmp_path}'\n{lines}\n")
        path.chmod(0o755)
        return path

    return script


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def watching(film: Path, script: Path, *flags: str) -> subprocess.Popen[str]:
    """A watch that waits for questions at the end."""
    return start("watch", film, *MEMORY, *EVERY, "--on-change", f"'{script}' a 'b c'", *flags, stdin=subprocess.PIPE)


def test_a_command_is_told_what_is_new_and_only_that(run: Any, film: Path, tmp_path: Path, script: Script) -> None:
    news = run("watch", film, *MEMORY, *EVERY, "--until-change", "--json")[1]
    expected = [(record["at"], record["answer"]) for record in map(json.loads, news.splitlines())]
    recording = script('cat >> told; echo "$#: $2" >> words; ls /proc/self/fd | tr "\\n" " " > files; echo heard')
    for flags in ((), ("--until-change",)):
        (tmp_path / "told").unlink(missing_ok=True)
        watch = watching(film, recording, "--json-lines", "--speed", "8", *flags)
        out, shown = watch.communicate("")
        answers = [record for record in map(json.loads, out.splitlines()) if record["type"] == "answer"]
        assert (watch.returncode, len(answers)) == (0, len(expected) if flags else 14), shown
        records = told(tmp_path / "told")
        heard = [(record["at"], record["answer"]) for record in records]
        assert heard == [change for change in expected if change in heard]  # one may have been left out for a newer one
        assert heard[-1] == expected[-1]
        assert all({**record, "created": 0} in [{**answer, "created": 0} for answer in answers] for record in records)
        assert (shown.count("heard"), out.count("heard")) == (len(heard), 0)
        assert set((tmp_path / "words").read_text().splitlines()) == {"2: b c"}
        assert (tmp_path / "files").read_text().split() == ["0", "1", "2", "3"]  # the last one is that of ls


def test_a_slow_command_holds_nothing_up_and_the_newest_answer_waits(film: Path, tmp_path: Path, script: Script) -> None:
    slow = script("cat >> told; while [ ! -e go ]; do sleep 0.02; done")
    watch = watching(film, slow, "--json", "--ask", "end What did you see first?")
    assert watch.stdout is not None
    answers = [json.loads(watch.stdout.readline()) for _ in range(15)]  # all that there are
    wait_for(lambda: len(told(tmp_path / "told")) == 1)
    (tmp_path / "go").touch()
    wait_for(lambda: len(told(tmp_path / "told")) == 2)
    _, shown = watch.communicate("")
    changed = [now for before, now in zip([{"answer": None}, *answers[:-1]], answers[:-1], strict=False)
               if now["answer"] != before["answer"]]  # fmt: skip
    assert [record["at"] for record in told(tmp_path / "told")] == [changed[0]["at"], changed[-1]["at"]]
    assert (watch.returncode, shown.count("is still running: the newest answer waits")) == (0, 1)


def test_a_command_that_fails_costs_a_line_and_no_answer(run: Any, film: Path, script: Script) -> None:
    failing = script("echo no bell >&2; exit 3")
    code, out, shown = run("watch", film, *MEMORY, "--every", "20s What?", *EVERY, "--on-change", f"'{failing}'")
    assert (code, out.count("\n")) == (0, 14)
    lines = shown.splitlines()
    assert lines.count(f"warning: --on-change: {failing} failed with exit code 3") == lines.count("no bell") >= 1
    failing.write_bytes(b"\0")  # of no format that can be run
    code, out, shown = run("watch", film, *MEMORY, *EVERY, "--on-change", f"'{failing}'")
    assert (code, out.count("\n"), "cannot be started" in shown, "Traceback" in shown) == (0, 14, True, False)


@pytest.mark.parametrize("ignoring", [False, True])
def test_a_command_does_not_outlive_the_watch(film: Path, tmp_path: Path, script: Script, ignoring: bool) -> None:
    endless = script(f"{'trap  TERM;' if ignoring else ''} echo $$ >> pid; while true; do sleep 0.1; done")
    watch = watching(film, endless)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
    _, shown = watch.communicate("")
    assert (watch.returncode, "is still running and is ended" in shown) == (0, True)
    (pid,) = map(int, (tmp_path / "pid").read_text().split())
    with pytest.raises(ProcessLookupError):
        while True:  # init may take a moment to bury it
            os.kill(pid, 0)
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("command", "why"),
    [("no-such-command", "no command 'no-such-command'"), ("", "names no command"), ("'a", "close its quotes")],
)
def test_what_cannot_be_run_is_refused_at_the_start(run: Any, film: Path, command: str, why: str) -> None:
    code, out, shown = run("watch", film, *MEMORY, *EVERY, "--on-change", command)
    assert (code, out, why in shown) == (2, "", True)
    code, _, shown = run("watch", film, *MEMORY, "--on-change", "cat")
    assert (code, "--on-change goes with --every" in shown) == (2, True)


def test_at_the_prompt_what_a_command_writes_stands_above_it(film: Path, script: Script) -> None:
    ringing = script("echo the bell rings")
    with Terminal("watch", film, *MEMORY, *EVERY, "--speed", "4", "--on-change", f"'{ringing}'") as terminal:
        text = terminal.wait_for("the bell rings")
        assert "\nthe bell rings\n" in text
        terminal.send("/bye\r")
        assert terminal.wait_for_end() == 0
