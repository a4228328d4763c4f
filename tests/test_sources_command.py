"""Live and paced sources on the command line: `hermes watch` of them, `hermes probe`, `hermes cameras`."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes.config import MemoryConfig, Sampling
from hermes.engine import StreamEngine
from hermes.errors import UsageError
from hermes.models import VideoModel
from hermes.policies import make_policy
from hermes.sources import Connecting, Pulse, cameras
from hermes_cli.app import main
from hermes_cli.choosing import Choice
from hermes_cli.film import Film, Pacing
from hermes_cli.options import ConnectingOptions, PlayingOptions, times
from hermes_cli.player import Ended, Player, Seen, Warned
from hermes_cli.questions import TimedQuestion
from hermes_cli.transport import Transport
from tests.clips import clip, steady
from tests.conftest import needs_opencv
from tests.serving import tcp_camera

ROOT = Path(__file__).parent.parent
ONCE = Connecting(timeout_s=2.0, reconnect=0)


@pytest.fixture
def make_player(model: VideoModel) -> Callable[..., Player]:
    config = MemoryConfig(budget=96, chunk_frames=4)

    def make(film: Film, **more: Any) -> Player:
        engine = StreamEngine(model, config, make_policy("hermes", config))
        return Player(film, engine, Sampling(max_new_tokens=2), "hermes", Choice("tiny random", "tiny", ""), **more)

    return make


@needs_opencv
def test_a_camera_is_played_until_it_gives_up_and_answers_on_the_way(make_player: Callable[..., Player]) -> None:
    with tcp_camera((2.0, 0)) as camera:
        player = make_player(Film.open(camera.address, 10.0, "start", "end", connecting=ONCE))
        events = list(player.play([TimedQuestion(0.5, "what"), TimedQuestion(math.inf, "what")]))
    pulses = [event for event in events if isinstance(event, Pulse)]
    seen = [event.time_s for event in events if isinstance(event, Seen)]
    warnings = [event.message for event in events if isinstance(event, Warned)]
    assert [type(event).__name__ for event in events].count("Answer") == 2
    assert seen[0] == 0
    assert seen == sorted(set(seen))
    assert pulses[-1].state == "ended"
    assert {pulse.attempts for pulse in pulses} == {0}
    assert any(text.endswith("; gave up") for text in warnings)
    assert warnings[-1].startswith("stream ended at 00:00:0")
    assert player.film.source.report.ended_early is not None


def test_a_session_of_a_camera_goes_on_behind_what_it_has_seen(make_player: Callable[..., Player]) -> None:
    with tcp_camera((2.0, 0)) as camera, closing(Film.open(camera.address, 10.0, "start", "end").feed(600.0)) as feed:
        first = feed.take(30.0)
    assert first is not None
    assert first.time_s == pytest.approx(600.1)


def test_now_is_the_first_picture_of_a_camera_and_no_moment_is_looked_for(make_player: Callable[..., Player]) -> None:
    with tcp_camera((30.0, 0), (30.0, 0)) as camera:
        with pytest.raises(UsageError, match="it goes at its own speed"):
            Film.open(camera.address, 5.0, "start", "end", Pacing(2.0))
        film = Film.open(camera.address, 5.0, "start", "1.5")  # which waits until the camera is free again
        assert film.moment("now") == 0
        assert film.speed == math.inf
        events = list(make_player(film).play([TimedQuestion(film.moment("now"), "what")], to_the_end=False))
    assert sum(isinstance(event, Seen) for event in events) == 1


def test_a_waiting_source_can_be_left(make_player: Callable[..., Player]) -> None:
    with tcp_camera((1.0, 60.0)) as camera:
        film = Film.open(camera.address, 5.0, "start", "end", connecting=Connecting(timeout_s=5.0, reconnect=0))
        player = make_player(film, transport=Transport(film.speed))
        events = []
        for event in player.play([]):
            events.append(event)
            if isinstance(event, Pulse) and event.silent_s is not None and event.silent_s > 0.5:
                player.transport.stop()
    assert player.engine.frames_seen
    assert not any(isinstance(event, Ended) for event in events)


def test_a_film_is_held_back_to_its_speed(tmp_path: Path, make_player: Callable[..., Player]) -> None:
    path = clip(tmp_path / "film.mp4", steady(30))
    film = PlayingOptions(ConnectingOptions(), fps=10.0, speed=4.0).open(str(path))
    begin_s = time.monotonic()
    list(make_player(film, transport=Transport(film.speed)).play([]))
    assert time.monotonic() - begin_s >= 2.9 / 4


def test_options_become_settings(tmp_path: Path) -> None:
    path = str(clip(tmp_path / "film.mp4", steady(3)))
    assert PlayingOptions(ConnectingOptions()).open(path).speed == math.inf
    assert PlayingOptions(ConnectingOptions(), realtime=True).open(path).speed == 1.0
    assert PlayingOptions(ConnectingOptions(), realtime=False).open(path).speed == math.inf
    with pytest.raises(UsageError, match="excludes"):
        PlayingOptions(ConnectingOptions(), realtime=False, speed=2.0)
    for speed in (0.0, -1.0, math.nan):
        with pytest.raises(UsageError, match="at a speed of"):
            PlayingOptions(ConnectingOptions(), speed=speed).open(path)
    assert (times("7"), times(" INF "), times("0")) == (7, None, 0)
    for text in ("-1", "", "two", "1.5"):
        with pytest.raises(UsageError, match="not a number of times"):
            times(text)


def test_where_a_password_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ConnectingOptions().connecting().password is None
    monkeypatch.setenv("HERMES_RTSP_PASSWORD", "of the environment")
    assert ConnectingOptions().connecting().password == "of the environment"
    (tmp_path / "password").write_text("of the file \r\n")
    assert ConnectingOptions(password_file=tmp_path / "password").connecting().password == "of the file "
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        ConnectingOptions(password_file=tmp_path / "none").connecting()


def test_probe_says_what_a_source_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = clip(tmp_path / "film.mp4", steady(20))
    assert main(["probe", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "type": "probe",
        "source": str(path),
        "live": False,
        "codec": "h264",
        "width": 64,
        "height": 48,
        "rotation": 0,
        "mirrored": False,
        "fps": 10.0,
        "duration": 2.0,
        "first_frame": "ok",
    }
    assert main(["probe", str(path)]) == 0
    assert "duration     00:00:02.000\n" in capsys.readouterr().out
    with tcp_camera((3.0, 0)) as camera:
        assert main(["probe", camera.address, "--timeout", "3"]) == 0
    assert "kind         live\n" in capsys.readouterr().out
    assert main(["probe", str(tmp_path / "none.mp4")]) == 3
    assert capsys.readouterr().out == ""


def test_cameras_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cameras, "_NODES", tmp_path)
    monkeypatch.setattr("hermes_cli.commands.cameras.can_list_cameras", lambda: True)
    assert main(["cameras"]) == 0
    assert "no camera is connected" in capsys.readouterr().out
    for number, index in ((10, 0), (3, 0), (4, 1)):
        (tmp_path / f"video{number}").mkdir()
        (tmp_path / f"video{number}" / "name").write_text(f"Cam\x1b {number}\n")
        (tmp_path / f"video{number}" / "index").write_text(f"{index}\n")
    assert main(["cameras"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["3", "Cam", "3", "/dev/video3"],
        ["10", "Cam", "10", "/dev/video10"],
    ]
    assert main(["cameras", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(record["index"], record["device"]) for record in records] == [(3, "/dev/video3"), (10, "/dev/video10")]


def test_ctrl_c_ends_a_read_that_blocks() -> None:
    """The camera falls silent for a minute, and so would a read of it."""
    waiting = (
        "import sys; from contextlib import closing; from hermes.sources import Connecting, Feed, open_source\n"
        "source = open_source(sys.argv[1], Connecting(timeout_s=60.0))\n"
        "with closing(Feed(source, source.frames(10))) as feed:\n"
        "    while True:\n"
        "        print(feed.take(1.0) is None, flush=True)\n"
    )
    with tcp_camera((1.0, 60.0)) as camera:
        command = [sys.executable, "-c", waiting, camera.address]
        done = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert done.stdout
        while done.stdout.readline() != "True\n":
            assert done.poll() is None
        done.send_signal(signal.SIGINT)
        _, errors = done.communicate(timeout=20)
    assert errors.strip().endswith("KeyboardInterrupt")


@needs_opencv
@pytest.mark.parametrize("command", ["watch", "probe"])
def test_a_camera_that_is_not_there(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "99"]) == 3
    assert "error: there is no camera 99" in capsys.readouterr().err


def test_opencv_is_imported_only_for_cameras() -> None:
    code = "import sys, hermes_cli.app, hermes.sources; sys.exit('cv2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_no_thread_stays() -> None:
    give_up_s = time.monotonic() + 30
    while any(thread.name == "hermes-source" for thread in threading.enumerate()):
        assert time.monotonic() < give_up_s
        time.sleep(0.01)
