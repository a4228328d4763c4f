"""`--record`: what a session has seen can be seen again, bit for bit, when its source is gone."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.engine import StreamEngine
from hermes.errors import SourceError
from hermes.frames import Frame
from hermes.models import VideoModel
from hermes.sessions import Recorder, Recording, SessionStore, SourceIdentity, find_recording
from hermes.sources.base import FrameList
from tests.conftest import noise_frames
from tests.test_engine import assert_same_memory, memory_of
from tests.test_recall import MEMORY, NOW, start, wait_for
from tests.test_recall import film as film  # noqa: PLC0414 - fixtures
from tests.test_recall import run as run  # noqa: PLC0414
from tests.test_travel import new_engine, said, travelled


def smooth_frames(sizes: Sequence[tuple[int, int]], step_s: float = 1.0) -> list[Frame]:
    """Pictures of (width, height) that change a little from one to the next, at times that no decimal fraction is."""
    rng = np.random.default_rng(3)
    large = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8).repeat(16, 0).repeat(16, 1)
    return [
        Frame(step_s * number + 1 / 3, np.roll(large, number, 1)[:height, :width])
        for number, (width, height) in enumerate(sizes)
    ]


def recorded(folder: Path, frames: Sequence[Frame], **settings: Any) -> list[Frame]:
    """What a recorder gives back."""
    recorder = Recorder(folder, **settings)
    taken = [recorder.take(frame) for frame in frames]
    recorder.close()
    return taken


def assert_same_frames(found: Sequence[Frame], wanted: Sequence[Frame]) -> None:
    assert [frame.time_s for frame in found] == [frame.time_s for frame in wanted]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.rgb, other.rgb)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90), st.integers(1, 20)), min_size=1, max_size=4),
    step_s=st.sampled_from([0.04, 1.0, 1 / 7]),
)
def test_what_was_taken_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, int, int]], step_s: float
) -> None:
    """Any sizes, sizes that change in mid-stream, and times to the last bit; from the start and from any moment."""
    folder = tmp_path_factory.mktemp("session")
    frames = smooth_frames([(width, height) for width, height, count in runs for _ in range(count)], step_s)
    taken = recorded(folder, frames)
    assert [(frame.time_s, frame.rgb.shape) for frame in taken] == [(frame.time_s, frame.rgb.shape) for frame in frames]
    recording = Recording(folder, "film")
    assert_same_frames(list(recording.frames(fps=0.1)), taken)  # they have been sampled before
    middle = len(taken) // 2
    assert_same_frames([recording.frame_at(taken[middle].time_s)], taken[middle : middle + 1])
    assert_same_frames(list(recording.frames(start_s=taken[middle].time_s)), taken[middle:])


def test_pictures_stay_what_they_were_and_become_small(tmp_path: Path) -> None:
    frames = smooth_frames([(320, 320)] * 32)
    taken = recorded(tmp_path, frames)
    for frame, again in zip(frames, taken, strict=True):
        assert np.abs(frame.rgb.astype(float) - again.rgb).mean() < 4  # of 255
    size = sum(path.stat().st_size for path in (tmp_path / "recording").iterdir())
    assert size < sum(frame.rgb.nbytes for frame in frames) / 20


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    recorded(tmp_path, noise_frames(2))
    assert (tmp_path / "recording").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "recording").iterdir()} == {0o600}


def test_a_second_run_goes_on_where_the_first_was_cut_short(tmp_path: Path) -> None:
    frames = smooth_frames([(40, 30)] * 40)
    taken = recorded(tmp_path, frames[:20])
    index = next((tmp_path / "recording").glob("*.jsonl"))
    index.write_bytes(index.read_bytes()[:-5])  # half a line
    assert_same_frames(list(Recording(tmp_path, "film").frames()), taken[:19])
    taken = [*taken[:19], *recorded(tmp_path, frames[19:], seen=19)]
    assert_same_frames(list(Recording(tmp_path, "film").frames()), taken)


def test_frames_that_no_memory_has_seen_are_recorded_anew(tmp_path: Path) -> None:
    """When a session goes on from a memory, because what was recorded behind it does not follow."""
    frames = noise_frames(300, width=16, height=16)
    recorded(tmp_path, frames)
    taken = recorded(tmp_path, frames[200:280], seen=200)
    recording = Recording(tmp_path, "film")
    assert recording.first == 200
    assert_same_frames(list(recording.frames()), taken)


def test_a_stream_that_was_cut_anywhere_is_readable_up_to_there(tmp_path: Path) -> None:
    taken = recorded(tmp_path, smooth_frames([(40, 30)] * 20))
    stream = next((tmp_path / "recording").glob("*.h264"))
    whole = stream.read_bytes()
    for length in np.random.default_rng(0).integers(0, len(whole), 20).tolist():
        stream.write_bytes(whole[:length])
        recording = find_recording(tmp_path, "film")
        found = [] if recording is None else list(recording.frames())
        assert_same_frames(found, taken[: len(found)])
        assert len(found) < 20


def test_old_segments_make_room(tmp_path: Path) -> None:
    frames = noise_frames(1000, width=16, height=16)
    taken = recorded(tmp_path, frames, max_bytes=250_000)
    assert sum(path.stat().st_size for path in (tmp_path / "recording").iterdir()) <= 250_000
    recording = Recording(tmp_path, "film")
    assert 0 < recording.first < 1000
    assert_same_frames(list(recording.frames()), taken[recording.first :])


def test_a_killed_recorder_leaves_every_frame_that_it_gave_back(tmp_path: Path) -> None:
    frames = smooth_frames([(64, 48)] * 400)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # an own process, with nothing of the test's around it
        recorder = Recorder(tmp_path)
        for frame in frames:
            recorder.take(frame)
            os.write(writing, b".")
        os._exit(0)
    told = sum(len(os.read(reading, 1)) for _ in range(100))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = list(Recording(tmp_path, "film").frames())
    assert told <= len(found) < 400
    assert_same_frames(found, recorded(tmp_path / "again", frames[: len(found)]))


@pytest.mark.parametrize(
    "change",
    [
        *({"time_s": value} for value in ("abc", None, math.nan, math.inf, -5.0, True)),
        *({"bytes": value} for value in (-3, 2.5, "x", 10**9)),
        *({"in_group": value} for value in (99, -1, "1")),
        *({"size": value} for value in ([1, 2, 3], "ab", ["a", "b"], 3, None)),
    ],
    ids=str,
)
def test_a_damaged_index_ends_before_the_damage(tmp_path: Path, change: dict[str, object]) -> None:
    taken = recorded(tmp_path, noise_frames(5))
    index = next((tmp_path / "recording").glob("*.jsonl"))
    lines = index.read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | change)
    index.write_text("\n".join([*lines, ""]))
    recording = Recording(tmp_path, "film")
    assert_same_frames(list(recording.frames()), taken[:2])
    assert_same_frames([recording.frame_at(math.inf)], taken[1:2])


def test_nothing_recorded_is_no_recording(tmp_path: Path) -> None:
    assert find_recording(tmp_path, "film") is None
    with pytest.raises(SourceError, match="nothing was recorded"):
        Recording(tmp_path, "film")


def test_a_damaged_picture_is_told(tmp_path: Path) -> None:
    recorded(tmp_path, noise_frames(4))
    stream = next((tmp_path / "recording").glob("*.h264"))
    stream.write_bytes(bytes(stream.stat().st_size))
    with pytest.raises(SourceError, match="damaged"):
        list(Recording(tmp_path, "film").frames())


def test_the_memory_is_the_same_from_the_recording(model: VideoModel, tmp_path: Path) -> None:
    """Frames in memory, of two sizes, watched live through a recorder; then the same moments without them."""
    frames = [*noise_frames(13), *(Frame(13.0 + frame.time_s, frame.rgb) for frame in noise_frames(12, width=33, height=51))]
    with SessionStore(tmp_path).create(SourceIdentity.of("camera"), model.name, None, {}) as writer:
        recorder, live, then = Recorder(writer.folder), new_engine(model, "lazy"), {}
        for frame in FrameList(frames).frames(1.0):
            live.push(recorder.take(frame))
            if live.frames_seen == 8:
                writer.save(live.snapshot())
            if frame.time_s in (2.0, 9.0, 14.0, 20.0, 24.0):
                then[frame.time_s] = memory_of(live), said(live)
        recorder.close()
    assert len(then) == 5
    for at_s, (memory, answer) in then.items():
        film = list(Recording(writer.folder, "camera").frames())
        back = travelled(new_engine(model, "lazy"), writer, film, at_s)
        assert_same_memory(memory_of(back), memory)
        assert said(back) == answer


# ---------------------------------------------------------------- the commands

MOMENTS = ("00:02", "00:05", "00:09", "00:12", "end")
ASKED = [word for time_s in MOMENTS for word in ("--ask", f"{time_s} {NOW}")]


@pytest.mark.parametrize("lost", ["gone", "changed"])
def test_five_moments_are_answered_as_they_were_without_the_source(run: Any, film: Path, lost: str) -> None:
    code, live, _ = run("watch", film, *MEMORY, "--record", *ASKED)
    assert code == 0
    if lost == "gone":
        film.unlink()
    else:
        film.write_bytes(b"something else")
    again = [run("ask", "--at", at, NOW) for at in MOMENTS]
    assert [code for code, _, _ in again] == [0] * 5
    assert [out for _, out, _ in again] == live.splitlines(keepends=True)
    assert all("saved" not in told for _, _, told in again)


def test_the_model_sees_what_is_kept(run: Any, film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push, seen = StreamEngine.push, list[Frame]()

    def watched(engine: StreamEngine, frame: Frame, *coming: Any) -> Any:
        seen.append(frame)
        return push(engine, frame, *coming)

    monkeypatch.setattr(StreamEngine, "push", watched)
    run("watch", film, *MEMORY, "--record")
    session = SessionStore().latest()
    assert len(seen) == 16
    assert_same_frames(list(Recording(session.folder, "film").frames()), seen)


def test_a_recorded_run_goes_on_as_if_it_had_not_stopped(run: Any, film: Path) -> None:
    whole = run("watch", film, *MEMORY, "--record", *ASKED)[1]
    first = run("watch", film, *MEMORY, "--record", *ASKED[:4], "--end", "00:07")[1]
    session = SessionStore().latest()
    info = json.loads((session.folder / "session.json").read_text())
    info["settings"]["end"] = None  # as if it had been interrupted there
    (session.folder / "session.json").write_text(json.dumps(info))
    code, _, told = run("watch", "-c", "--ask", f"00:05 {NOW}")  # behind the last saved memory, but recorded
    assert (code, "goes on at 00:00:06.000" in told) == (2, True)
    code, rest, _ = run("watch", "-c", *ASKED[4:])
    assert (code, first + rest) == (0, whole)
    recording = Recording(session.folder, "film")
    assert (recording.first, [frame.time_s for frame in recording.frames()]) == (0, [float(second) for second in range(16)])
    film.unlink()
    assert "".join(run("ask", "--session", session.info.id, "--at", at, NOW)[1] for at in MOMENTS) == whole


def test_a_running_watch_goes_back_through_its_recording(run: Any, film: Path) -> None:
    watch = start("watch", film, *MEMORY, "--record", stdin=subprocess.PIPE)
    store = SessionStore()
    wait_for(lambda: any(session.checkpoints and session.checkpoints[-1].frames == 16 for session in store.sessions()))
    film.rename(film.with_suffix(".away"))
    live = [run("ask", "--at", at, NOW) for at in MOMENTS[:4]]
    watch.communicate("")
    assert live == [(0, run("ask", "--at", at, NOW)[1], told) for at, (_, _, told) in zip(MOMENTS, live, strict=False)]


@pytest.fixture
def camera(run: Any, film: Path) -> str:
    """The id of a session whose source cannot be played again, and that was not recorded."""
    run("watch", film, *MEMORY)
    session = SessionStore().latest()
    info = json.loads((session.folder / "session.json").read_text())
    info["source"] |= {"name": "camera:0", "path": None, "size": None, "mtime_ns": None, "head_sha256": None}
    (session.folder / "session.json").write_text(json.dumps(info))
    film.unlink()
    return session.info.id


def test_without_a_recording_a_camera_is_asked_from_the_nearest_memory(run: Any, camera: str) -> None:
    newest = SessionStore().find(camera).newest_checkpoint(9.5)
    code, out, told = run("ask", "--at", "00:09.5", NOW, "--json")
    assert code == 0
    assert newest
    assert json.loads(out)["at"] == newest.time_s
    assert f"the memory that was saved at 00:00:{newest.time_s:06.3f}" in told
    code, _, told = run("ask", "--at", "00:00", NOW)
    assert (code, "was saved before that moment" in told) == (2, True)


def test_a_recording_that_has_made_room_is_not_taken_for_a_whole_one(run: Any, film: Path) -> None:
    run("watch", film, *MEMORY, "--record")
    session = SessionStore().latest()
    for path in (session.folder / "recording").iterdir():
        path.rename(path.with_stem("00000008"))  # as if eight frames before it had gone
    for checkpoint in session.checkpoints[:-1]:
        checkpoint.path.unlink()
    code, _, told = run("ask", "--at", "00:09", NOW)
    assert (code, "was saved before that moment" in told) == (2, True)


def test_options_that_contradict_each_other(run: Any, film: Path) -> None:
    assert run("watch", film, *MEMORY, "--record", "--no-save")[0] == 2
    run("watch", film, *MEMORY)
    code, _, told = run("watch", "-c", "--record")
    assert (code, "has not been recorded" in told) == (2, True)


def test_a_full_disk_ends_the_recording_and_not_the_watch(run: Any, film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take, taken = Recorder.take, list[float]()

    def failing(recorder: Recorder, frame: Frame) -> Frame:
        taken.append(frame.time_s)
        if frame.time_s >= 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return take(recorder, frame)

    monkeypatch.setattr(Recorder, "take", failing)
    code, out, told = run("watch", film, *MEMORY, "--record", "--ask", f"end {NOW}")
    assert (code, out.count("\n")) == (0, 1)
    assert "no longer saved: No space left" in told
    assert taken[-1] == 6
    newest = SessionStore().latest().checkpoints[-1].time_s
    assert newest < 6  # what is there fits together
    code, again, told = run("ask", NOW, "--json")  # about 00:15, which is not there
    assert (code, json.loads(again)["at"]) == (0, newest)
    assert "the memory that was saved at" in told
