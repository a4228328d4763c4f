"""`hermes watch` of an RTSP camera: its password, what happens when it falls silent, is cut, or is not there."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from hermes.sources import live
from hermes_cli.app import main
from tests.rtsp import rtsp_camera

LOGIN = ("user", "p@ss:w0rd")
WATCH = ("-m", "tiny", "--fps", "10", "--chunk", "4", "--budget", "24", "--timeout", "1")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(live, "_STALLED_S", 0.3)
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.delenv("HERMES_RTSP_PASSWORD", raising=False)


def test_it_is_watched_by_tcp_and_its_password_is_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    with rtsp_camera((60.0, 0), login=LOGIN) as camera:
        address = camera.address.replace("//", f"//{':'.join(LOGIN)}@")
        code = main(["watch", address, *WATCH, "--json-lines", "--end", "2", "--ask", "now What is on screen?"])
        assert camera.transports == ["RTP/AVP/TCP;unicast;interleaved=0-1"]
    out, err = capfd.readouterr()
    kinds = [json.loads(line)["type"] for line in out.splitlines()]
    assert code == 0
    assert (kinds[0], kinds.count("answer")) == ("start", 1)
    assert kinds.count("chunk") > 3
    kept = [path.read_bytes() for path in Path(os.environ["HERMES_STATE_DIR"]).rglob("*") if path.is_file()]
    assert any(b"rtsp://user:***@127.0.0.1" in content for content in kept)
    assert not any(LOGIN[1].encode() in content for content in [*kept, out.encode(), err.encode()])


def test_it_is_cut_falls_silent_comes_back_and_is_given_up(capfd: pytest.CaptureFixture[str]) -> None:
    """The first connection breaks off, the second falls silent for longer than we wait, behind the third there is nobody."""
    with rtsp_camera((2.5, 0), (1.4, 2.5), (1.4, 0)) as camera:
        address = camera.address
        assert main(["watch", address, *WATCH, "--json-lines", "--reconnect", "4", "--no-save"]) == 6
        assert camera.served == 3
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    told = [record["message"].removeprefix(address) for record in records if record["type"] == "warning"]
    stalls = [number for number, text in enumerate(told) if text == ": no new picture comes"]
    lost = [number for number, text in enumerate(told) if text.endswith("connecting again")]
    assert [told[number] for number in lost] == [
        ": the connection was closed; connecting again",
        ": nothing came within 1 s; connecting again",
        ": the connection was closed; connecting again",
    ]
    assert any(lost[0] < number < lost[1] for number in stalls)
    assert all(any(text.startswith(": nothing was seen") for text in told[number : number + 2]) for number in lost[:2])
    assert told[-2] == " cannot be reached: Connection refused; gave up"
    ends = [record["end"] for record in records if record["type"] == "chunk"]
    assert ends == sorted(set(ends))


@pytest.mark.parametrize("login", ["", "user:wrong@"])
def test_without_the_right_password_nothing_is_played(login: str, capfd: pytest.CaptureFixture[str]) -> None:
    with rtsp_camera((1.0, 0), login=LOGIN) as camera:
        assert main(["watch", camera.address.replace("//", f"//{login}"), *WATCH]) == 3
        assert camera.served == 0
    error, hint = capfd.readouterr().err.splitlines()
    assert error.endswith("/live: wrong user or password")
    assert hint.startswith("hint: HERMES_RTSP_PASSWORD")
    assert "wrong@" not in error


def test_nobody_there_and_a_camera_that_sends_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with rtsp_camera((0.0, 30.0)) as camera:
        for address, trouble in (
            (f"rtsp://127.0.0.1:{port}/live", " cannot be reached: Connection refused"),
            (camera.address, ": nothing came within 1 s"),
        ):
            assert main(["watch", address, *WATCH]) == 3
            assert capfd.readouterr().err.splitlines()[0] == f"error: {address}{trouble}"
