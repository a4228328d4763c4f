"""A `hermes watch` that is killed at any instant leaves a session that opens, answers as ever, and goes on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hermes.sessions import Session, SessionStore, find_recording
from hermes_cli.app import main
from tests.test_recall import MEMORY, NOW
from tests.test_recall import film as film  # noqa: PLC0414 - fixtures
from tests.test_recall import run as run  # noqa: PLC0414

SEED, KILLS = 4, 15  # for each way of saving
ASKED = {3: "What did you see first?", 8: NOW, 13: "What did you see first?"}  # by second


def flags(seconds: Sequence[int]) -> list[str]:
    return [word for second in seconds for word in ("--ask", f"00:{second:02} {ASKED[second]}")]


def watch(arguments: list[str], state: Path, ready: Connection) -> None:
    """The command, in a process of its own that never ends by itself: it waits for questions that do not come."""
    os.environ["HERMES_STATE_DIR"] = str(state)
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    os.dup2(os.pipe()[0], 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it lasts as long as the process
    ready.send_bytes(b"ready")
    main(arguments)


class Watches:
    """Starts `watch` in processes that have everything imported and nothing begun."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, "hermes.engine", "hermes.models", "hermes_cli.loading"])

    def start(self, arguments: list[str], state: Path) -> Any:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=watch, args=(arguments, state, theirs))
        process.start()
        ours.recv_bytes()
        return process

    def whole_s(self, arguments: list[str], state: Path) -> float:
        """How long a run takes to its last save, which is that of the end of the film."""
        process, start_s = self.start(arguments, state), time.monotonic()
        store = SessionStore(state)
        while not any(session.checkpoints and session.checkpoints[-1].frames == 16 for session in store.sessions()):
            assert process.is_alive()
            time.sleep(0.005)
        whole_s = time.monotonic() - start_s
        kill(process)
        return whole_s


def kill(process: Any) -> None:
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def check(session: Session, live: dict[int, str]) -> list[int]:
    """What is there can be read, and is true; returns the seconds whose questions are in the log."""
    log = session.log()
    assert log.damaged <= 1
    asked = [record for record in log.answers if record["remembered"]]
    assert [record["answer"] for record in asked] == [live[int(record["at"])] for record in asked]
    if session.checkpoints:
        newest = session.checkpoints[-1]
        assert len(session.load(newest).frame_times_s) == newest.frames
    return [int(record["at"]) for record in asked]


def comparable(session: Session, unasked: Sequence[int], record: bool) -> range:
    """The seconds that a run which was not killed has come to with the same questions, and this one has the pictures of."""
    last = min(unasked, default=15)
    if record:
        recording = find_recording(session.folder, "film")
        last = min(last, -1 if recording is None else max(int(frame.time_s) for frame in recording.frames()))
    return range(last + 1)


@pytest.mark.parametrize("record", [False, True], ids=["memories", "recorded"])
def test_a_killed_watch_leaves_a_session_that_is_good(
    run: Any, film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: bool
) -> None:
    def at_home(state: Path, *arguments: str) -> tuple[int, str]:
        monkeypatch.setenv("HERMES_STATE_DIR", str(state))
        code, out, _ = run(*arguments)
        return code, out

    watches, random, unkilled, opened = Watches(), Random(SEED), tmp_path / "unkilled", 0
    arguments = ["watch", str(film), *MEMORY, *(["--record"] if record else []), *flags(list(ASKED))]
    live = dict(zip(ASKED, at_home(unkilled, *arguments)[1].splitlines(), strict=True))
    kill(watches.start(arguments, tmp_path / "first"))  # which waits for the imports
    whole_s = watches.whole_s(arguments, tmp_path / "timed")
    for number in range(KILLS):
        state, instant_s = tmp_path / f"killed {number}", random.uniform(0, 1.1 * whole_s)
        process = watches.start(arguments, state)
        time.sleep(instant_s)
        kill(process)
        store = SessionStore(state)
        assert store.damaged() == []
        for session in store.sessions():  # one, or none yet
            opened += 1
            assert not session.is_live
            logged = check(session, live)
            unasked = [second for second in ASKED if second not in logged]
            if moments := comparable(session, unasked, record):
                ask = ("ask", "--at", str(random.choice(moments)), NOW)
                assert (instant_s, *at_home(state, *ask)) == (instant_s, *at_home(unkilled, *ask))
            rest = "".join(f"{live[second]}\n" for second in unasked)
            assert (instant_s, *at_home(state, "watch", "-c", *flags(unasked))) == (instant_s, 0, rest)
            assert check(session, live) == list(ASKED)
    assert opened
