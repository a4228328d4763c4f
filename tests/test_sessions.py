"""Sessions on the disk: exact states, files that survive anything, one writer, and what is thinned out."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from io import FileIO
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from hermes.config import MemoryConfig
from hermes.engine import EngineState, StreamEngine
from hermes.errors import SourceError, UsageError
from hermes.events import Answer
from hermes.guidance import Exchange
from hermes.models import VideoModel
from hermes.sessions import (
    FORMAT_VERSION,
    Checkpoint,
    Session,
    SessionStore,
    SessionWriter,
    SourceIdentity,
    default_cap,
    files,
    thinned,
)
from hermes.sessions.log import read_log
from tests.conftest import noise_frames

FORK = multiprocessing.get_context("fork")
RECORDS: list[dict[str, Any]] = [
    {"type": "answer", "at": 20.5, "question": "Wer?", "answer": "N\u00e9"},
    {"type": "note", "text": "a\nb"},
    {"type": "answer", "at": 3.0, "question": "What?", "answer": "A star."},
]


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "state")


def begin(store: SessionStore, source: str = "rtsp://camera/1", **more: Any) -> SessionWriter:
    return store.create(SourceIdentity.of(source), "tiny", "abc", {"fps": 1.0, "memory": {"budget": 24}}, **more)


def state(frames: int, values: int = 64) -> EngineState:
    """A state with tensors of every kind that a cache holds, all from the number of its frames."""
    generator = torch.Generator().manual_seed(frames)
    bits = torch.randint(-(2**15), 2**15, (2, 3, values), generator=generator).to(torch.int16)
    cache = {
        "video_time": torch.tensor(math.pi * frames, dtype=torch.float64),
        "0.keys": bits.view(torch.bfloat16),  # every bit pattern, NaN among them
        "0.values": torch.randn(2, 3, values, generator=generator).transpose(0, 1),
        "0.raw_keys": torch.zeros(2, 0, 8),
        "0.place": torch.arange(frames).view(1, -1),
    }
    exchange = Exchange("W\u00e9\U0001f642?", 'a "quote"\n') if frames % 2 else None
    times_s = tuple(index / 3 for index in range(frames))
    return EngineState("a fingerprint", cache, times_s, (), exchange)


def assert_same(found: EngineState, wanted: EngineState) -> None:
    assert replace(found, cache={}) == replace(wanted, cache={})
    assert found.cache.keys() == wanted.cache.keys()
    for name, tensor in wanted.cache.items():
        other = found.cache[name]
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape), name
        assert other.contiguous().reshape(-1).view(torch.uint8).equal(tensor.contiguous().reshape(-1).view(torch.uint8)), (
            name
        )


# States


@pytest.mark.parametrize("frames", [1, 2, 7])
def test_a_state_comes_back_bit_for_bit(store: SessionStore, frames: int) -> None:
    with begin(store) as writer:
        saved = writer.save(state(frames))
        assert (saved.frames, saved.time_s) == (frames, (frames - 1) / 3)
        assert writer.checkpoints == (saved,)
        assert_same(store.latest().load(saved), state(frames))


def test_an_engine_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(model: VideoModel, store: SessionStore) -> None:
    config = MemoryConfig(budget=24, chunk_frames=4)
    frames = noise_frames(24)
    engine = StreamEngine(model, config)
    with begin(store) as writer:
        for frame in frames[:12]:
            engine.push(frame)
        list(engine.ask("What was there?"))
        writer.save(engine.snapshot())
    for frame in frames[12:]:
        engine.push(frame)
    session = store.latest()
    other = StreamEngine(model, config)
    (checkpoint,) = session.checkpoints
    other.restore(session.load(checkpoint))
    for frame in frames[12:]:
        other.push(frame)
    answers = [[event.text for event in each.ask("And now?") if isinstance(event, Answer)] for each in (engine, other)]
    assert answers[0] == answers[1]
    assert_same(other.snapshot(), engine.snapshot())


def test_frames_that_wait_are_the_callers_to_leave_out(store: SessionStore) -> None:
    with begin(store) as writer, pytest.raises(AssertionError):
        writer.save(replace(state(4), pending=tuple(noise_frames(1))))


def test_the_newest_checkpoint_has_seen_nothing_after_the_moment(store: SessionStore) -> None:
    with begin(store) as writer:
        saved = [writer.save(state(frames)) for frames in (2, 5, 9)]
    session = store.latest()
    third = 1 / 3
    assert session.newest_checkpoint(0.0) is None
    assert session.newest_checkpoint(math.nextafter(third, 0)) is None
    assert session.newest_checkpoint(third) == saved[0]
    assert session.newest_checkpoint(math.nextafter(4 / 3, 0)) == saved[0]
    assert session.newest_checkpoint(4 / 3) == saved[1]
    assert session.newest_checkpoint(math.inf) == saved[2]


# What happens to a process


def _work(writer: SessionWriter, reports: Connection) -> None:
    for number in range(1, 10_000):
        writer.append({"number": number})
        reports.send(("line", number))
        writer.save(state(number, values=20_000))
        reports.send(("checkpoint", number))


def _begin_and_work(root: Path, reports: Connection) -> None:
    _work(begin(SessionStore(root), max_bytes=2_000_000), reports)


def test_whatever_was_finished_is_there_after_a_kill_at_any_instant(tmp_path: Path) -> None:
    randomly = random.Random(0)
    for attempt in range(30):
        root = tmp_path / str(attempt)
        here, there = FORK.Pipe(duplex=False)
        process = FORK.Process(target=_begin_and_work, args=(root, there))
        process.start()
        there.close()
        finished = {"line": 0, "checkpoint": 0}
        if attempt % 3:
            finished.update([here.recv()])
        time.sleep(randomly.uniform(0, 0.05))
        assert process.pid
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        finished |= dict(_rest(here))
        _check_survivor(SessionStore(root), finished)


def _rest(reports: Connection) -> Iterator[tuple[str, int]]:
    with suppress(EOFError):
        while True:
            yield reports.recv()


def _check_survivor(store: SessionStore, finished: dict[str, int]) -> None:
    assert store.damaged() == []
    for session in store.sessions():
        assert not session.is_live
        log = session.log()
        assert log.damaged <= 1
        assert [record["number"] for record in log] == list(range(1, len(log.records) + 1))
        assert len(log.records) >= finished["line"]
        for checkpoint in session.checkpoints:
            assert_same(session.load(checkpoint), state(checkpoint.frames, values=20_000))
        newest = session.newest_checkpoint(math.inf)
        assert (newest.frames if newest else 0) >= finished["checkpoint"]
    if finished["line"]:
        with store.reopen(store.latest()) as writer:
            assert not list(writer.folder.glob(".*"))
            writer.save(state(20_000, values=1))
            writer.append({"number": 0})
        assert store.latest().log().records[-1] == {"number": 0}
    begin(store, name="after it").close()
    assert [path.name for path in store.folder.glob(".*")] == [".lock"]


@pytest.mark.parametrize("instant", ["half written", "written", "in place"])
def test_a_kill_in_the_middle_of_a_save_costs_only_that_one(store: SessionStore, instant: str) -> None:
    begin(store, max_bytes=1).close()
    write_all, replace_file = files.write_all, Path.replace

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def write_half(file: FileIO, data: bytes) -> None:
        write_all(file, data[: len(data) // 2])
        die()

    def place(temporary: Path, target: Path) -> Path:
        if instant == "in place":
            replace_file(temporary, target)
        die()
        return target

    def save_and_die() -> None:
        writer = store.reopen(store.latest(), max_bytes=1)
        for frames in (2, 5):
            writer.save(state(frames))
        if instant == "half written":
            files.write_all = write_half
        Path.replace = place  # type: ignore[method-assign, assignment]
        writer.save(state(7))

    assert _in_a_fork(save_and_die) == -signal.SIGKILL
    session = store.latest()
    there = session.checkpoints
    assert [checkpoint.frames for checkpoint in there] == ([2, 5, 7] if instant == "in place" else [2, 5])
    for checkpoint in there:
        assert_same(session.load(checkpoint), state(checkpoint.frames))


def _in_a_fork(work: Callable[[], None]) -> int:
    """The exit code of a child process that does it."""
    process = FORK.Process(target=work)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def test_a_full_disk_leaves_what_was_there(store: SessionStore) -> None:
    writer = begin(store, max_bytes=1)
    saved = writer.save(state(3))
    writer.append(RECORDS[0])
    before = {path.name: path.read_bytes() for path in writer.folder.iterdir()}

    def fill() -> None:
        room = 20  # bytes beyond the log's end
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before["log.jsonl"]) + room, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for step in (lambda: writer.save(state(4)), lambda: writer.append(RECORDS[1])):
            with pytest.raises(OSError, match="File too large"):
                step()

    assert _in_a_fork(fill) == 0
    assert_same(writer.load(saved), state(3))
    after = {path.name: path.read_bytes() for path in writer.folder.iterdir()}
    log = after.pop("log.jsonl")
    assert log.startswith(before.pop("log.jsonl"))
    assert after == before
    writer.append(RECORDS[2])
    assert list(writer.log()) == [RECORDS[0], RECORDS[2]]
    assert writer.log().damaged == 1


def test_a_session_has_one_writer_and_any_number_of_readers(store: SessionStore) -> None:
    writer = begin(store)
    session = store.latest()
    assert session.is_live
    with pytest.raises(UsageError, match="another process"):
        store.reopen(session)
    with pytest.raises(UsageError, match="another process"):
        store.remove(session.folder)

    def intrude() -> None:
        with pytest.raises(UsageError, match="another process"):
            store.reopen(Session(session.folder))
        with pytest.raises(UsageError, match="another process"):
            store.remove(session.folder)

    assert _in_a_fork(intrude) == 0
    writer.append(RECORDS[0])
    writer.close()
    writer.close()
    assert not session.is_live
    with store.reopen(session) as again:
        again.append(RECORDS[1])
        assert session.is_live
    assert list(session.log()) == RECORDS[:2]
    store.remove(session.folder)
    assert store.sessions() == []
    assert not session.folder.exists()


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_only_the_owner_can_read_a_session_whatever_the_umask(store: SessionStore, umask: int) -> None:
    before = os.umask(umask)
    try:
        with begin(store) as writer:
            writer.save(state(3))
            writer.append(RECORDS[0])
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in writer.folder.iterdir()}
    assert set(modes) == {"session.json", "log.jsonl", "lock", writer.checkpoints[0].path.name}
    assert set(modes.values()) == {0o600}
    for folder in (writer.folder, store.folder, store.folder.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# The log


@pytest.fixture
def written(store: SessionStore) -> SessionWriter:
    writer = begin(store)
    for record in RECORDS:
        writer.append(record)
    return writer


def test_a_log_cut_at_any_byte_gives_every_whole_record_and_goes_on(written: SessionWriter) -> None:
    path = written.log().path
    whole = path.read_bytes()
    ends = [index for index, byte in enumerate(whole) if byte == ord("\n")]  # a record is whole without its line end
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        complete = sum(end <= cut for end in ends)
        log = read_log(path)
        assert list(log) == list(written.log()) == RECORDS[:complete]
        written.append({"type": "more"})
        assert list(written.log()) == [*RECORDS[:complete], {"type": "more"}]
        assert written.log().damaged == log.damaged
        assert path.read_bytes().startswith(whole[:cut])


@pytest.mark.parametrize(
    "damage",
    [b"\0" * 9000, b'{"broken', b"\xff\xfe", b"[" * 100_000, b"[1]", b"1" * 5000, b"{} {}"],
    ids=lambda text: text[:8],
)
def test_a_damaged_line_is_told_and_kept(written: SessionWriter, damage: bytes) -> None:
    path = written.log().path
    before = path.read_bytes()
    path.write_bytes(before + damage)
    written.append({"type": "more"})
    log = written.log()
    assert list(log) == [*RECORDS, {"type": "more"}]
    assert log.notice == f"recovered 4 of 5 entries; 1 damaged line is kept in {path}"
    assert path.read_bytes().startswith(before + damage)


def test_a_record_that_lacks_what_it_should_hold_is_damage(written: SessionWriter) -> None:
    answer = {"type": "answer", "at": 3.0, "frames": 4, "question": "?", "answer": "!", "remembered": True}
    odd: list[dict[str, Any]] = [{"at": "3"}, {"at": None}, {"at": True}, {"at": 1e300}, {"answer": 3}, {"question": None}]
    odd += [{"frames": None}, {"frames": "4"}, {"frames": -1}, {"frames": 4.5}, {"type": "clear", "frames": None}]
    odd += [{"type": "seek"}, {"type": "seek", "until": "4"}, {"type": "seek", "until": 4.0, "frames": None}]
    for change in odd:
        written.append(answer | change)
    written.append({"type": "stop", "at": "late"})
    with written.log().path.open("ab") as file:
        file.write(b'{"type": "stop", "at": NaN}\n{"type": "stop", "at": 1e999}\n')
    assert list(written.log()) == RECORDS
    assert written.log().damaged == len(odd) + 3
    for whole in (answer, answer | {"remembered": False, "frames": None}, {"type": "stop", "at": None}):
        written.append(whole)
        assert written.log().records[-1] == whole


def test_a_whole_log_says_nothing_and_gives_its_answers_by_time(written: SessionWriter, tmp_path: Path) -> None:
    assert written.log().notice is None
    assert written.log().answers == [RECORDS[2], RECORDS[0]]
    written.log().path.write_bytes(b"")
    assert (list(written.log()), written.log().notice) == ([], None)
    assert list(read_log(tmp_path / "none")) == []


def test_a_line_that_is_being_written_is_no_damage(written: SessionWriter) -> None:
    with written.log().path.open("ab") as file:
        file.write(b'{"type": "ans')
    assert (list(written.log()), written.log().notice) == (RECORDS, None)
    written.close()
    assert written.log().damaged == 1


# Formats


def test_a_newer_damaged_or_foreign_session_is_told_skipped_and_left_alone(store: SessionStore) -> None:
    good = begin(store)
    good.close()
    wrong: dict[str, bytes | dict[str, Any]] = {
        "newer": {"version": FORMAT_VERSION + 98},
        "foreign": b'{"format": "something else"}',
        "list": b"[]",
        "cut": b'{"format": "hermes se',
        "empty": b"",
        "nul": b"\0" * 900,
        "deep": b"[" * 100_000,
        "bare": b'{"format": "hermes session", "version": 1}',
        "typed": {"model": 3},
        "dated": {"created": "yesterday"},
        "moved": {"id": "another"},
        "more": {"unknown": 1},
        "sourceless": {"source": None},
        "version a text": {"version": "2"},
        "version null": {"version": None},
        "version zero": {"version": 0},
        "version true": {"version": True},
        "not finite": b'{"format": "hermes session", "version": NaN}',
        "sizeless": {"source": {"name": "film.mp4", "path": "/film.mp4", "size": "big"}},
    }
    whole = json.loads((good.folder / "session.json").read_bytes())
    for name, content in wrong.items():
        folder = store.folder / name
        folder.mkdir()
        data = content if isinstance(content, bytes) else json.dumps({**whole, "id": name, **content}).encode()
        (folder / "session.json").write_bytes(data)
    (store.folder / "nothing").mkdir()
    (store.folder / "a folder" / "session.json").mkdir(parents=True)
    (store.folder / "a file").write_text("x")
    before = {path: path.read_bytes() for path in store.folder.rglob("*.json") if path.is_file()}
    assert [session.info.id for session in store.sessions()] == [good.info.id]
    assert len(store.damaged()) == len(wrong) + 2
    for name in [*wrong, "nothing", "a folder"]:
        with pytest.raises(SourceError, match=rf"^session {name}\b") as caught:
            store.find(name)
        assert caught.value.hint
    with pytest.raises(SourceError, match="is of format 99; this hermes reads up to 1") as newer:
        store.find("newer")
    assert "update" in newer.value.hint
    begin(store).close()
    assert before.items() <= {path: path.read_bytes() for path in store.folder.rglob("*.json") if path.is_file()}.items()


def test_a_folder_in_place_of_a_file_breaks_nothing(written: SessionWriter, store: SessionStore) -> None:
    written.close()
    for name in ("log.jsonl", "lock"):
        (written.folder / name).unlink()
        (written.folder / name).mkdir()
    session = store.latest()
    assert (list(session.log()), session.is_live, session.last_s) == ([], False, None)
    assert session.log().notice == f"{session.folder / 'log.jsonl'} cannot be read: Is a directory"
    with pytest.raises(SourceError, match=r"cannot be written: lock: Is a directory"):
        store.reopen(session)
    store.remove(session.folder)
    assert not session.folder.exists()


def test_what_was_watched_is_told_by_memories_stops_and_what_was_asked_on_the_way(store: SessionStore) -> None:
    writer = begin(store)
    assert writer.last_s is None
    saved = writer.save(state(7))
    assert writer.last_s == saved.time_s
    answer = {"type": "answer", "frames": 9, "question": "?", "answer": "!"}
    for record, last_s in (
        (answer | {"at": 99.0, "remembered": False}, saved.time_s),
        ({"type": "stop", "at": None}, saved.time_s),
        (answer | {"at": 8.5, "remembered": True}, 8.5),
        ({"type": "stop", "at": 11.0, "frames": 12}, 11.0),
        (answer | {"at": 4.0, "remembered": True}, 11.0),
        ({"type": "seek", "at": 9.0, "frames": 10, "until": 20.0}, 9.0),
        ({"type": "stop", "at": 20.0, "frames": 11}, 20.0),
        ({"type": "seek", "at": 8.0, "frames": 9, "until": 8.0}, 8.5),
    ):
        writer.append(record)
        assert writer.last_s == last_s
    assert [record.get("left") for record in writer.log() if record["type"] == "stop"] == [None, True, True]


def _with_metadata(path: Path, **changes: str) -> None:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    save_file({name: tensor.clone() for name, tensor in load_file(path).items()}, path, {**metadata, **changes})


def _flip(path: Path, index: int) -> None:
    """One bit of it."""
    data = bytearray(path.read_bytes())
    data[index] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-37]),
    "nul": lambda path: path.write_bytes(b"\0" * 9000),
    "text": lambda path: path.write_text("hello"),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "folder": lambda path: path.rename(path.with_name("away")).parent.joinpath(path.name).mkdir(),
    "foreign": lambda path: save_file({"a": torch.zeros(3)}, path),
    "newer": lambda path: _with_metadata(path, version="99"),
    "version null": lambda path: _with_metadata(path, version="null"),
    "a flipped bit": lambda path: _flip(path, -1),
    "another answer": lambda path: path.write_bytes(path.read_bytes().replace(b"a fingerprint", b"a fingerprinT")),
    "no checksum": lambda path: _with_metadata(path, crc32=""),
    "no owner": lambda path: _with_metadata(path, owner="[]"),
    "no json": lambda path: _with_metadata(path, last_exchange="{"),
    "timeless": lambda path: save_file({"a": torch.zeros(3)}, path, {"format": "hermes checkpoint", "version": "1"}),
    "renamed": lambda path: path.write_bytes(next(path.parent.glob("*2-*")).read_bytes()),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_told_and_left_alone(store: SessionStore, damage: str) -> None:
    with begin(store) as writer:
        good, bad = writer.save(state(2)), writer.save(state(5))
    DAMAGES[damage](bad.path)
    after = bad.path.read_bytes() if bad.path.is_file() else None
    with pytest.raises(SourceError) as caught:
        store.latest().load(bad)
    assert bad.path.name in caught.value.message
    assert caught.value.hint
    assert after == (bad.path.read_bytes() if bad.path.is_file() else None)
    assert_same(store.latest().load(good), state(2))


def test_other_files_in_the_folder_are_no_checkpoints(store: SessionStore) -> None:
    with begin(store) as writer:
        saved = writer.save(state(2))
        for name in (
            "model.safetensors",
            "00000001-x.safetensors",
            "00000001-1..2.safetensors",
            "00000009-1e999.safetensors",
            f".{saved.path.name}.tmp",
        ):
            (writer.folder / name).write_bytes(b"x" * 10)
        assert writer.checkpoints == (saved,)
        assert writer.nbytes >= saved.nbytes + 50
    store.reopen(store.latest()).close()
    assert {path.name for path in writer.folder.glob("*.safetensors")} > {"model.safetensors", saved.path.name}
    assert not list(writer.folder.glob(".*"))


# Finding


def test_ids_sort_by_time_and_the_newest_session_comes_first(store: SessionStore) -> None:
    ids = []
    for _ in range(20):
        with begin(store) as writer:
            ids.append(writer.info.id)
    assert ids == sorted(set(ids))
    assert [session.info.id for session in store.sessions()] == ids[::-1]
    assert store.latest().info.id == ids[-1]
    assert all(len(identifier) == len("20261130-1432-k3f") for identifier in ids)


def test_sessions_of_one_instant_have_ids_of_their_own(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = time.time_ns()
    instants = (now_ns + repeated // 3 * 2_000_000 for repeated in range(30))  # each is looked at three times
    monkeypatch.setattr(time, "time_ns", lambda: next(instants))
    ids = [begin(store).info.id for _ in range(8)]
    assert ids == sorted(set(ids))


def test_a_session_is_found_by_id_by_name_and_by_the_start_of_its_id(store: SessionStore) -> None:
    first, second, third = (begin(store, name=name).info for name in ("front door", None, "front door"))
    assert store.find(first.id).info == first
    assert store.find("front door").info == third
    for length in range(1, len(second.id)):
        start = second.id[:length]
        if sum(info.id.startswith(start) for info in (first, second, third)) == 1:
            assert store.find(start).info == second
        else:
            with pytest.raises(UsageError, match="several sessions start with"):
                store.find(start)
    with pytest.raises(UsageError) as caught:
        store.find("front dor")
    assert caught.value.hint == "did you mean front door?"
    for nothing in ("", "zzz", "..", "/", "../sessions", ".lock"):
        with pytest.raises(UsageError, match="there is no session"):
            store.find(nothing)


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[2J", "x" * 101])
def test_what_cannot_be_a_name_is_refused_before_anything_is_made(store: SessionStore, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a name"):
        begin(store, name=name)
    assert not store.folder.exists()


def test_any_name_is_kept_and_none_is_a_path(store: SessionStore) -> None:
    for name in ("../../etc", "/", "Z\u00fcrich \u2600", "a b"):
        writer = begin(store, name=name)
        assert (writer.info.name, writer.folder.parent) == (name, store.folder)
        assert store.find(name).folder == writer.folder


def test_the_latest_session_of_a_source(store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"there is no session$"):
        store.latest()
    film = tmp_path / "film.mp4"
    film.write_bytes(b"x" * 100_000)
    of_film, _ = begin(store, "film.mp4").info, begin(store, "0")
    assert store.latest(SourceIdentity.of(str(film))).info == of_film
    film.write_bytes(b"y")
    assert store.latest(SourceIdentity.of("./film.mp4")).info == of_film
    film.write_bytes(b"x" * 100_000)
    film.rename(tmp_path / "moved.mp4")
    assert store.latest(SourceIdentity.of("moved.mp4")).info == of_film
    with pytest.raises(UsageError, match=r"there is no session of film\.mp4"):
        store.latest(SourceIdentity.of("film.mp4"))


def test_the_newest_session_is_not_skipped_when_it_is_damaged(store: SessionStore) -> None:
    with begin(store, "a.mp4") as older:
        good = older.info
    bad = begin(store, "b.mp4")
    bad.close()
    (store.folder / "notes").mkdir()  # which is no session at all
    assert store.latest().info == bad.info
    (bad.folder / "session.json").write_bytes(b"")
    with pytest.raises(SourceError, match=f"session {bad.info.id} is damaged") as caught:
        store.latest()
    assert "--session ID" in caught.value.hint
    assert store.latest(SourceIdentity.of("a.mp4")).info == good
    with pytest.raises(SourceError, match=r"no session that can be read is of b\.mp4"):
        store.latest(SourceIdentity.of("b.mp4"))
    store.remove(store.folder_of(good.id), store.folder_of(bad.info.id))
    with pytest.raises(UsageError, match=r"there is no session$"):
        store.latest()
    with pytest.raises(UsageError, match=r"there is no session 'a folder'"):
        store.folder_of("a folder")


def test_a_source_knows_whether_it_has_changed(tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(b"x" * 200_000)
    identity = SourceIdentity.of(str(film))
    assert (identity.path, identity.size) == (str(film), 200_000)
    os.utime(film, (1, 1))
    assert identity.change() is None
    film.write_bytes(b"x" * 200_001)
    assert identity.change() == "it has changed, from 200000 bytes to 200001"
    film.write_bytes(b"x" * 60_000 + b"y" + b"x" * 139_999)
    assert identity.change() == "it has changed, and starts with other bytes"
    film.unlink()
    assert identity.change() == "it is gone or cannot be read"
    film.mkdir()
    assert identity.change() == "it is gone or cannot be read"
    for other in ("0", "/dev/null", "a\0b", str(tmp_path)):
        assert SourceIdentity.of(other) == SourceIdentity(other)
        assert SourceIdentity(other).change() is None


def test_no_password_is_kept() -> None:
    for address, kept in {
        "rtsp://me:p@ss:w@10.0.0.1:554/live?x=1": "rtsp://me:***@10.0.0.1:554/live?x=1",
        "rtsp://me:secret@camera": "rtsp://me:***@camera",
        "rtsp://camera:554/a@b": "rtsp://camera:554/a@b",
        "https://x.org/a:b@c": "https://x.org/a:b@c",
    }.items():
        assert SourceIdentity.of(address).name == kept
    assert SourceIdentity.of("rtsp://a:1@h/").same_as(SourceIdentity.of("rtsp://a:2@h/"))


def test_a_name_that_is_not_utf_8_comes_back(store: SessionStore, tmp_path: Path) -> None:
    film = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.mp4")
    Path(film).write_bytes(b"x")
    begin(store, film).close()
    source = store.latest().info.source
    assert (source.path, source.change()) == (film, None)


def test_the_state_folder_is_the_users_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_STATE_DIR", str(tmp_path / "mine"))
    assert SessionStore().folder == tmp_path / "mine" / "sessions"
    monkeypatch.setenv("HERMES_STATE_DIR", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert SessionStore().folder == tmp_path / "xdg" / "hermes" / "sessions"
    (tmp_path / "file").write_text("x")
    store = SessionStore(tmp_path / "file")
    assert (store.sessions(), store.damaged()) == ([], [])
    with pytest.raises(UsageError, match="cannot write") as caught:
        begin(store)
    assert "HERMES_STATE_DIR" in caught.value.hint


def test_looking_through_sessions_loads_no_torch(store: SessionStore) -> None:
    with begin(store) as writer:
        writer.save(state(3))
    code = (
        "import sys; from pathlib import Path; from hermes.sessions import SessionStore; "
        "session = SessionStore(Path(sys.argv[1])).latest(); print(len(session.checkpoints), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, store.folder.parent], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]


# Thinning

SIZES = st.integers(min_value=1, max_value=1000)


@given(st.lists(st.tuples(st.floats(min_value=0, max_value=1e9), SIZES), min_size=1, max_size=40), st.integers(0, 20_000))
def test_thinning_keeps_the_first_and_the_newest_and_the_cap(found: list[tuple[float, int]], cap: int) -> None:
    times = sorted(time for time, _ in found)
    sizes = [size for _, size in found]
    kept = thinned(times, sizes, cap)
    assert kept == sorted(set(kept))
    assert {0, len(times) - 1} <= set(kept) <= set(range(len(times)))
    total = sum(sizes[index] for index in kept)
    assert total <= cap or len(kept) <= 2
    if sum(sizes) <= cap:
        assert len(kept) == len(times)


@settings(deadline=None)
@given(st.integers(min_value=4, max_value=30), st.integers(min_value=2, max_value=300), st.floats(0.1, 100))
def test_gaps_grow_with_age_geometrically(room: int, steps: int, step_s: float) -> None:
    times: list[float] = []
    for number in range(steps):
        times.append(number * step_s)
        times = [times[index] for index in thinned(times, [1] * len(times), room)]
    assert len(times) == min(room, steps)
    ratio = (steps - 1) ** (2 / (room - 2))
    for older, newer in pairwise(times):
        age = times[-1] - newer
        assert newer - older <= max(step_s, (ratio - 1) * age) * (1 + 1e-9)


def test_a_writer_thins_after_the_new_checkpoint_is_safe(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    size = begin(store).save(state(100)).nbytes
    writer = begin(store, max_bytes=8 * size)
    for frames in range(1, 101):
        saved = writer.save(state(frames))
        there = writer.checkpoints
        assert there[-1] == saved
        assert there[0].frames == 1
        assert sum(checkpoint.nbytes for checkpoint in there) <= 8 * size
    assert len(writer.checkpoints) >= 8
    deleted_early: list[Checkpoint] = []

    def fail(path: Path, target: Path) -> Path:
        deleted_early.extend(checkpoint for checkpoint in there if not checkpoint.path.exists())
        raise OSError(28, "No space left on device")

    there = writer.checkpoints
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        writer.save(state(101))
    assert (deleted_early, writer.checkpoints) == ([], there)
    assert not list(writer.folder.glob(".*"))


def test_the_cap_holds_when_a_session_goes_on(store: SessionStore) -> None:
    writer = begin(store)
    saved = [writer.save(state(frames)) for frames in range(1, 13)]
    writer.close()
    assert len(writer.checkpoints) == 12
    with store.reopen(store.latest(), max_bytes=1) as again:
        newest: Checkpoint = again.save(state(13))
        assert again.checkpoints == (saved[0], newest)


def test_the_default_cap_fits_a_model() -> None:
    assert default_cap(1_000_000) == 2**28
    assert default_cap(230_000_000) == 24 * 230_000_000
    assert default_cap(2**30) == 8 * 2**30
    assert default_cap(2**34) == 2 * 2**34
