"""Asking a running `watch` over its socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.config import MemoryConfig, Sampling
from hermes.engine import EngineState, StreamEngine
from hermes.errors import HermesError, ModelError, PartialError, ResourceError, SourceError, UsageError
from hermes.events import Answer
from hermes.live import LiveServer, NotLiveError, Turnstile, ask_live, server
from hermes.live.address import SOCKET_NAME, connect, listen
from hermes.live.protocol import REQUEST_BYTES, VERSION, Record
from hermes.live.server import Handler, Turn
from hermes.models import VideoModel
from tests.conftest import noise_frames

ROOT = Path(__file__).parent.parent
Replies = Generator[Record, None, None]
PATIENCE_S = 60.0  # a test that waits so long has failed

SERVER = """
import sys, threading
from pathlib import Path
from hermes.live import LiveServer, Turnstile

def answer(request, turn):
    with turn():
        yield {"type": "answer", "answer": request["question"]}

server = LiveServer(Path(sys.argv[1]), answer, Turnstile())
"""
CLIENT = """
import sys, time
from pathlib import Path
from hermes.live import ask_live

for record in ask_live(Path(sys.argv[1]), {"question": "x"}):
    print(record["type"], flush=True)
"""


def echo(request: Record, turn: Turn) -> Replies:
    """Answers with the question, a word at a time."""
    with turn():
        for word in request["question"].split():
            yield {"type": "delta", "text": word}
        yield {"type": "answer", "answer": request["question"]}


@contextmanager
def serving(folder: Path, handler: Handler = echo, **options: Any) -> Iterator[Turnstile]:
    turnstile = Turnstile()
    with LiveServer(folder, handler, turnstile, **options):
        yield turnstile


def ask(folder: Path, question: str = "what is that") -> str:
    *_, last = ask_live(folder, {"question": question, "at": None})
    assert last["type"] == "answer"
    return str(last["answer"])


def send(folder: Path, message: bytes) -> list[Record]:
    """What comes back when this is all that is sent."""
    with connect(folder) as connection:
        try:
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused before all was sent
        with connection.makefile("rb") as lines:
            return [json.loads(line) for line in until_the_end(lines)]


def until_the_end(lines: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from lines
    except ConnectionResetError:
        return


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came to that")


def process(code: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def line_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout
    return child.stdout.readline().strip()


class Gate:
    """A handler whose answers stand still after their first record until they are let on, and which sees how they end."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.closed = threading.Event()
        self.replies: list[Replies] = []  # so that they end when they are closed, not when they are forgotten

    def __call__(self, request: Record, turn: Turn) -> Replies:
        self.replies.append(self.reply(request, turn))
        return self.replies[-1]

    def reply(self, request: Record, turn: Turn) -> Replies:
        with turn():
            try:
                yield {"type": "delta", "text": "so"}
                assert self.open.wait(PATIENCE_S)
                yield {"type": "delta", "text": "far"}
                yield {"type": "answer", "answer": request["question"]}
            except GeneratorExit:
                self.closed.set()
                raise


class TestSocket:
    def test_it_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        with serving(tmp_path):
            found = (tmp_path / SOCKET_NAME).stat()
            assert stat.filemode(found.st_mode) == "srw-------"
            assert found.st_uid == os.geteuid()
            assert [path.name for path in tmp_path.iterdir()] == [SOCKET_NAME]
        assert list(tmp_path.iterdir()) == []

    def test_another_user_gets_no_reply(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        user = os.geteuid()
        with serving(tmp_path):
            monkeypatch.setattr(os, "geteuid", lambda: user + 1)
            with pytest.raises(PartialError):
                ask(tmp_path)
            monkeypatch.setattr(os, "geteuid", lambda: user)
            assert ask(tmp_path) == "what is that"

    def test_without_a_watch_nobody_listens(self, tmp_path: Path) -> None:
        for folder in (tmp_path, tmp_path / "none"):
            with pytest.raises(NotLiveError):
                ask(folder)
        with serving(tmp_path):
            pass
        with pytest.raises(NotLiveError):
            ask(tmp_path)

    @pytest.mark.parametrize("length", [120, 1000])
    def test_a_folder_may_have_a_long_name(self, tmp_path: Path, length: int) -> None:
        folder = tmp_path
        while len(str(folder)) < length:
            folder /= "é" * 60
        folder.mkdir(parents=True)
        with serving(folder):
            assert ask(folder) == "what is that"
            assert stat.filemode((folder / SOCKET_NAME).stat().st_mode) == "srw-------"
        assert list(folder.iterdir()) == []

    def test_a_folder_may_be_named_from_where_we_are(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for folder in (Path(), Path("/".join(["x" * 60] * 3))):
            folder.mkdir(parents=True, exist_ok=True)
            with serving(folder):
                assert ask(tmp_path / folder) == "what is that"

    def test_a_watch_that_runs_is_not_replaced(self, tmp_path: Path) -> None:
        with serving(tmp_path):
            with pytest.raises(UsageError, match="another watch"), serving(tmp_path):
                pass
            assert ask(tmp_path) == "what is that"

    def test_what_is_no_socket_is_not_replaced(self, tmp_path: Path) -> None:
        target, place = tmp_path / "film", tmp_path / SOCKET_NAME
        target.write_text("mine")
        for make in (lambda: place.write_text("mine"), lambda: place.symlink_to(target)):
            make()
            with pytest.raises(UsageError, match="no socket"), serving(tmp_path):
                pass
            assert place.read_text() == "mine"
            place.unlink()

    def test_a_folder_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ResourceError, match="No such file"), serving(tmp_path / "none"):
            pass

    def test_the_socket_of_a_killed_process_is_replaced(self, tmp_path: Path) -> None:
        with process(f"{SERVER}\nwith server: print('ready', flush=True); threading.Event().wait()", tmp_path) as child:
            assert line_of(child) == "ready"
            assert ask(tmp_path, "there?") == "there?"
            child.send_signal(signal.SIGKILL)
        assert (tmp_path / SOCKET_NAME).is_socket()
        with pytest.raises(NotLiveError):
            ask(tmp_path)
        with serving(tmp_path):
            assert ask(tmp_path) == "what is that"

    def test_an_answer_cut_off_by_a_kill_is_an_error(self, tmp_path: Path) -> None:
        with listen(tmp_path) as listener, ThreadPoolExecutor() as pool:
            asking = pool.submit(ask, tmp_path)
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(REQUEST_BYTES)
                connection.sendall(b'{"type": "delta", "text": "so"}\n{"type": "ans')
            with pytest.raises(PartialError, match="ended before"):
                asking.result(PATIENCE_S)


class TestMessages:
    @pytest.mark.parametrize(
        ("message", "problem"),
        [
            (b"what is that\n", "no JSON object"),
            (b"\n", "no JSON object"),
            (b"[1]\n", "no JSON object"),
            (b'{"version": 1, "question": "\xff"}\n', "no JSON object"),
            ('{"version": 1, "question": "x"}\n'.encode("utf-16"), "no JSON object"),
            (b'{"version": 1, "at": NaN}\n', "no JSON object"),
            (b"[" * 60_000 + b"\n", "no JSON object"),
            (os.urandom(5000).replace(b"\n", b"") + b"\n", "no JSON object"),
            (b'{"version": 1', "ended before its line"),
            (b'{"question": "x"}\n', "version 1"),
            (b'{"version": 2, "question": "x"}\n', "version 1"),
            (b'{"version": [[]], "question": "x"}\n', "version 1"),
            (b"x" * (REQUEST_BYTES + 1), "longer than 64 KiB"),
            (b"x" * 10 * REQUEST_BYTES + b"\n", "longer than 64 KiB"),
        ],
    )
    def test_what_cannot_be_understood_gets_an_error(self, tmp_path: Path, message: bytes, problem: str) -> None:
        with serving(tmp_path):
            (reply,) = send(tmp_path, message)
            assert (reply["type"], reply["code"]) == ("error", UsageError.exit_code)
            assert problem in reply["message"]
            assert ask(tmp_path) == "what is that"

    def test_a_request_may_be_64_kib_long(self, tmp_path: Path) -> None:
        frame = json.dumps({"version": VERSION, "question": ""}).encode()
        for extra, kinds in ((0, ["delta", "answer"]), (1, ["error"])):
            question = b"x" * (REQUEST_BYTES - len(frame) + extra)
            with serving(tmp_path):
                replies = send(tmp_path, frame.replace(b'""', b'"' + question + b'"') + b"\n")
            assert [reply["type"] for reply in replies] == kinds

    def test_a_long_message_is_refused_to_the_asker_too(self, tmp_path: Path) -> None:
        with serving(tmp_path), pytest.raises(UsageError, match="longer than 64 KiB"):
            ask(tmp_path, "x" * 100 * REQUEST_BYTES)

    def test_whoever_dawdles_gets_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "REQUEST_S", 0.1)
        with serving(tmp_path), connect(tmp_path) as connection:
            connection.sendall(b'{"version"')
            with connection.makefile("rb") as lines:
                (reply,) = map(json.loads, until_the_end(lines))
        assert (reply["code"], reply["message"]) == (UsageError.exit_code, "no whole message came within 0.1 s")

    def test_a_message_may_come_in_pieces_and_from_a_half_closed_socket(self, tmp_path: Path) -> None:
        with serving(tmp_path), connect(tmp_path) as connection:
            for byte in '{"version": 1, "question": "où"}'.encode():
                connection.sendall(bytes([byte]))
            connection.sendall(b"\nmore")
            with suppress(OSError):  # it may be answered by now
                connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as lines:
                *_, last = map(json.loads, until_the_end(lines))
        assert last == {"type": "answer", "answer": "où"}

    def test_any_text_comes_through(self, tmp_path: Path) -> None:
        with serving(tmp_path):
            for question in ("Was ist das, 🙂?", 'a "quoted" \\ line\nand another\u2028', "\udcff", "\x00"):
                assert ask(tmp_path, question) == question

    @pytest.mark.parametrize("kind", [HermesError, UsageError, SourceError, ModelError, ResourceError, PartialError])
    @pytest.mark.parametrize("hint", ["", "ask something"])
    def test_an_error_of_the_handler_is_raised_again(self, tmp_path: Path, kind: type[HermesError], hint: str) -> None:
        def fail(_request: Record, _turn: Turn) -> Replies:
            yield {"type": "delta", "text": "so"}
            raise kind("it did not work", hint)

        with serving(tmp_path, fail):
            replies = ask_live(tmp_path, {"question": "x"})
            assert next(replies) == {"type": "delta", "text": "so"}
            with pytest.raises(kind) as caught:
                next(replies)
        assert (type(caught.value), str(caught.value), caught.value.hint) == (kind, "it did not work", hint)

    @pytest.mark.parametrize("record", [{"type": "answer", "at": float("nan")}, {"type": object()}, None])
    def test_a_mistake_of_the_handler_ends_its_answer_only(self, tmp_path: Path, record: Any) -> None:
        def handler(request: Record, turn: Turn) -> Replies:
            if request["question"] == "bad":
                yield record or list[Record]()[0]
            yield from echo(request, turn)

        with serving(tmp_path, handler):
            with pytest.raises(HermesError, match="unexpected") as caught:
                ask(tmp_path, "bad")
            assert caught.value.exit_code == 1
            assert ask(tmp_path) == "what is that"

    def test_an_answer_that_never_comes_is_an_error(self, tmp_path: Path) -> None:
        def nothing(_request: Record, _turn: Turn) -> Replies:
            yield from ()

        with serving(tmp_path, nothing), pytest.raises(PartialError):
            ask(tmp_path)


class TestAskers:
    def test_everybody_gets_the_own_answer(self, tmp_path: Path) -> None:
        questions = [f"question {number}" for number in range(24)]
        with serving(tmp_path), ThreadPoolExecutor(len(questions)) as pool:
            assert list(pool.map(lambda question: ask(tmp_path, question), questions)) == questions

    def test_too_many_at_once_are_sent_away(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "MAX_ASKERS", 1)
        gate = Gate()
        with serving(tmp_path, gate), closing(ask_live(tmp_path, {"question": "x"})) as first:
            next(first)
            with pytest.raises(ResourceError, match="others are asking"):
                ask(tmp_path)
            gate.open.set()
            assert [record["type"] for record in first] == ["delta", "answer"]

    def test_one_that_is_killed_while_it_is_answered_harms_nobody(self, tmp_path: Path) -> None:
        gate = Gate()
        with serving(tmp_path, gate) as turnstile:
            with process(CLIENT, tmp_path) as child:
                assert line_of(child) == "delta"
                child.send_signal(signal.SIGKILL)
            gate.open.set()
            assert gate.closed.wait(PATIENCE_S)
            assert ask(tmp_path) == "what is that"
            until(lambda: turnstile.length == 0)

    def test_one_that_stops_reading_is_dropped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "SEND_S", 0.1)
        closed = threading.Event()

        def endless(_request: Record, turn: Turn) -> Replies:
            try:
                with turn():
                    while True:
                        yield {"type": "delta", "text": "x" * 10_000}
            finally:
                closed.set()

        with serving(tmp_path, endless) as turnstile, closing(ask_live(tmp_path, {})) as replies:
            next(replies)
            assert closed.wait(PATIENCE_S)
            until(lambda: turnstile.length == 0)

    def test_one_that_leaves_the_line_gives_up_its_place(self, tmp_path: Path) -> None:
        asked = []

        def note(request: Record, turn: Turn) -> Replies:
            with turn():
                asked.append(request["question"])
                yield {"type": "answer", "answer": "noted"}

        with serving(tmp_path, note) as turnstile:
            with turnstile.turn():
                with connect(tmp_path) as leaver:
                    leaver.sendall(b'{"version": 1, "question": "leaver"}\n')
                    until(lambda: turnstile.length == 2)
                until(lambda: turnstile.length == 1)
            ask(tmp_path, "stayer")
        assert asked == ["stayer"]

    def test_one_that_closes_the_iterator_cancels(self, tmp_path: Path) -> None:
        gate = Gate()
        with serving(tmp_path, gate):
            with closing(ask_live(tmp_path, {"question": "x"})) as replies:
                next(replies)
            gate.open.set()
            assert gate.closed.wait(PATIENCE_S)


class TestEnd:
    def test_an_answer_under_way_may_finish(self, tmp_path: Path) -> None:
        gate = Gate()
        live = LiveServer(tmp_path, gate, Turnstile(), grace_s=PATIENCE_S)
        with live, closing(ask_live(tmp_path, {"question": "x"})) as replies:
            next(replies)
            with ThreadPoolExecutor() as pool:
                end = pool.submit(live.close)
                until(lambda: running() == {"hermes asker"})
                assert not end.done()
                time.sleep(0.1)  # enough for an end that does not wait to cut the answer off
                gate.open.set()
                assert [record["type"] for record in replies] == ["delta", "answer"]
                end.result(PATIENCE_S)
        assert not gate.closed.is_set()
        assert running() == set()

    def test_an_answer_that_takes_too_long_is_cancelled(self, tmp_path: Path) -> None:
        closed = threading.Event()

        def endless(_request: Record, turn: Turn) -> Replies:
            try:
                with turn():
                    while True:
                        yield {"type": "delta", "text": "x"}
            finally:
                closed.set()

        replies = ask_live(tmp_path, {})
        with serving(tmp_path, endless, grace_s=0.01):
            next(replies)
        assert closed.is_set()
        with pytest.raises(PartialError):
            list(replies)
        assert running() == set()

    def test_it_waits_neither_for_the_line_nor_for_a_silent_asker(self, tmp_path: Path) -> None:
        """Not even when the end comes while the player uses the engine."""
        turnstile = Turnstile()
        live = LiveServer(tmp_path, echo, turnstile, grace_s=0.01)
        with live, connect(tmp_path) as silent, connect(tmp_path) as waiting, turnstile.turn():
            waiting.sendall(b'{"version": 1, "question": "x"}\n')
            until(lambda: turnstile.length == 2)
            live.close()
            assert turnstile.length == 1
            assert silent.recv(1) == waiting.recv(1) == b""
        assert running() == set()

    def test_ctrl_c_is_not_swallowed(self, tmp_path: Path) -> None:
        code = f"{SERVER}\nwith server: print('ready', flush=True); threading.Event().wait()"
        with process(code, tmp_path) as child:
            assert line_of(child) == "ready"
            child.send_signal(signal.SIGINT)
            _, stderr = child.communicate(timeout=PATIENCE_S)
        assert stderr.strip().endswith("KeyboardInterrupt")
        assert list(tmp_path.iterdir()) == []

    def test_no_thread_keeps_the_process_alive(self, tmp_path: Path) -> None:
        code = f"import socket\n{SERVER}\nserver.__enter__(); print('ready', flush=True); sys.stdin.readline()"
        with subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert line_of(child) == "ready"
            with connect(tmp_path):
                assert ask(tmp_path) == "what is that"
                child.communicate("\n", timeout=PATIENCE_S)
        assert child.returncode == 0


def running() -> set[str]:
    """Our threads."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("hermes")}


class TestTurnstile:
    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.booleans(), max_size=8))
    def test_it_is_passed_in_the_order_of_arrival_by_those_who_stay(self, stays: list[bool]) -> None:
        turnstile, passed = Turnstile(), []
        leave = threading.Event()

        def arrive(number: int) -> None:
            def check() -> None:
                if leave.is_set() and not stays[number]:
                    raise InterruptedError

            with turnstile.turn(check):
                passed.append(number)

        with ThreadPoolExecutor(8) as pool, turnstile.turn():
            arrivals = []
            for number in range(len(stays)):
                arrivals.append(pool.submit(arrive, number))
                until(lambda line=number + 2: turnstile.length == line)  # type: ignore[misc]
            leave.set()
        assert passed == [number for number, stay in enumerate(stays) if stay]
        assert [arrival.exception() is None for arrival in arrivals] == stays
        assert turnstile.length == 0

    @settings(max_examples=10, deadline=None)
    @given(st.integers(1, 4), st.integers(1, 20))
    def test_one_is_inside_and_who_comes_back_at_once_overtakes_nobody(self, others: int, rounds: int) -> None:
        turnstile, inside, log = Turnstile(), [], []

        def use(name: int) -> None:
            inside.append(name)
            assert inside == [name]
            log.append(name)
            inside.pop()

        def ask_often(name: int) -> None:
            for _ in range(rounds):
                with turnstile.turn():
                    use(name)

        names = range(1, others + 1)
        with ThreadPoolExecutor(others) as pool:
            with turnstile.turn():
                asking = [pool.submit(ask_often, name) for name in names]
                until(lambda: turnstile.length == 1 + others)
            while not all(each.done() for each in asking):
                with turnstile.turn():
                    assert set(log) == set(names)
                    use(0)
                    waiting, seen = turnstile.length - 1, len(log)
                with turnstile.turn():
                    assert len(log) - seen >= waiting
                    log.remove(0)
        assert [each.exception() for each in asking] == [None] * others
        assert all(log.count(name) == rounds for name in names)

    def test_an_error_inside_lets_the_next_one_in(self) -> None:
        turnstile = Turnstile()
        with pytest.raises(ZeroDivisionError), turnstile.turn():
            raise ZeroDivisionError
        with turnstile.turn():
            assert turnstile.length == 1


class TestEngine:
    CONFIG = MemoryConfig.preset("paper", budget=36, chunk_frames=2, position_room=128, history_tokens=16)
    SAMPLING = Sampling(max_new_tokens=8)

    def handler(self, engine: StreamEngine, given: list[Answer]) -> Handler:
        """Answers from the engine, and notes the answers in their order."""

        def answer(request: Record, turn: Turn) -> Replies:
            with turn(), closing(engine.ask(request["question"], self.SAMPLING)) as events:
                for event in events:
                    if isinstance(event, Answer):
                        given.append(event)
                    yield {"type": "answer" if isinstance(event, Answer) else "delta", **asdict(event)}

        return answer

    def test_answers_between_the_chunks_are_those_of_an_engine_asked_there(self, model: VideoModel, tmp_path: Path) -> None:
        live, alone, frames = StreamEngine(model, self.CONFIG), StreamEngine(model, self.CONFIG), noise_frames(24)
        paced = threading.Semaphore(0)  # so that frames are left when the questions come
        given: list[Answer] = []

        def play(turnstile: Turnstile) -> None:
            for frame in frames:
                assert paced.acquire(timeout=PATIENCE_S)
                with turnstile.turn():
                    live.push(frame)

        replies: list[list[Record]] = []
        with serving(tmp_path, self.handler(live, given)) as turnstile, ThreadPoolExecutor(4) as pool:
            playing = pool.submit(play, turnstile)
            for number in range(6):
                paced.release(3)
                asking = [pool.submit(ask_engine, tmp_path, f"What is {number} {word}?") for word in ("red", "blue")]
                replies += [each.result(PATIENCE_S) for each in asking]
            paced.release(len(frames))
            playing.result(PATIENCE_S)

        ahead = iter(frames)
        for answer in given:
            while alone.now_s != answer.at_s:
                alone.push(next(ahead))
            *_, expected = alone.ask(answer.question, self.SAMPLING)
            assert isinstance(expected, Answer)
            assert (answer.text, answer.answer_tokens) == (expected.text, expected.answer_tokens)
        for frame in ahead:
            alone.push(frame)
        assert same_memory(live.snapshot(), alone.snapshot())
        texts = {answer.question: answer.text for answer in given}
        assert {last["question"]: last["text"] for *_, last in replies} == texts
        for *deltas, last in replies:
            assert "".join(delta["text"] for delta in deltas).strip() == last["text"]
        assert len({answer.at_s for answer in given}) > 3
        assert len(set(texts.values())) > 3

    def test_a_cancelled_answer_leaves_the_memory_as_it_was(self, model: VideoModel, tmp_path: Path) -> None:
        engine = StreamEngine(model, self.CONFIG)
        for frame in noise_frames(7):
            engine.push(frame)
        before, gate, given = engine.snapshot(), threading.Event(), list[Answer]()

        def slow(request: Record, turn: Turn) -> Replies:
            with closing(self.handler(engine, given)(request, turn)) as records:
                for record in records:
                    yield record
                    assert gate.wait(PATIENCE_S)

        with serving(tmp_path, slow) as turnstile:
            with closing(ask_live(tmp_path, {"question": "What is that?"})) as replies:
                next(replies)
            gate.set()
            until(lambda: turnstile.length == 0)
            assert given == []
            assert same_memory(engine.snapshot(), before)
            *_, last = ask_engine(tmp_path, "What is that?")
        engine.restore(before)
        *_, expected = engine.ask("What is that?", self.SAMPLING)
        assert isinstance(expected, Answer)
        assert last["text"] == expected.text


def ask_engine(folder: Path, question: str) -> list[Record]:
    return list(ask_live(folder, {"question": question}))


def same_memory(one: EngineState, other: EngineState) -> bool:
    caches = one.cache.keys() == other.cache.keys() and all(
        torch.equal(one.cache[name], other.cache[name]) for name in one.cache
    )
    return caches and (one.frame_times_s, one.last_exchange) == (other.frame_times_s, other.last_exchange)
