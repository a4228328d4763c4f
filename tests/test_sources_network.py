"""Films and streams by the network, from servers on 127.0.0.1; and passwords, which turn up nowhere."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.errors import SourceError, UsageError
from hermes.frames import Frame
from hermes.sources import Connecting, Feed, VideoFile, live, open_source
from hermes.sources.addresses import Address, hide_password
from tests.clips import clip, numbers, steady
from tests.serving import http_server, tcp_camera

ROOT = Path(__file__).parent.parent
DEADLINE_S = 60.0
SECRET = "p@ss:w0rd#1?x"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(live, "_STALLED_S", 0.3)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    give_up_s = time.monotonic() + DEADLINE_S
    while any(thread.name == "hermes-source" for thread in threading.enumerate()):
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where somebody listens and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def refused(spec: str, connecting: Connecting = Connecting(timeout_s=0.5)) -> SourceError:  # noqa: B008
    with pytest.raises(SourceError) as caught:
        open_source(spec, connecting)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def segments(folder: Path) -> Path:
    """A film of six seconds, and in `live.m3u8` beside it the same in three segments."""
    path = clip(folder / "film.mp4", steady(60))
    playlist = str(folder / "live.m3u8")
    with av.open(str(path)) as film, av.open(playlist, "w", format="hls", options={"hls_time": "1"}) as container:
        stream = container.add_stream_from_template(film.streams.video[0])
        for packet in film.demux(film.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                container.mux(packet)
    return path


class TestHttp:
    @pytest.mark.parametrize("name", ["film.mkv", "film.mp4"])
    def test_a_film_by_http_is_the_film(self, tmp_path: Path, name: str) -> None:
        faststart = {"movflags": "faststart"} if name.endswith("mp4") else {}
        path = clip(tmp_path / name, steady(60), container_options=faststart)
        with http_server(tmp_path) as address:
            source = open_source(f"{address}/{name}")
            assert isinstance(source, VideoFile)
            assert (source.info.name, source.info.is_live) == (f"{address}/{name}", False)
            assert source.info.duration_s == VideoFile(path).info.duration_s
            assert numbers(source.frames(2.0)) == numbers(VideoFile(path).frames(2.0))
            assert numbers([source.frame_at(4.0)]) == [40]

    def test_what_is_no_video_and_what_is_not_there(self, tmp_path: Path) -> None:
        (tmp_path / "page.html").write_text("<html>no film</html>")
        with http_server(tmp_path) as address:
            assert "no video that can be read" in refused(f"{address}/page.html").message
            assert refused(f"{address}/none.mp4").message.endswith(
                "none.mp4 cannot be reached: Server returned 404 Not Found"
            )


class TestHls:
    def test_a_whole_playlist_is_a_film(self, tmp_path: Path) -> None:
        path = segments(tmp_path)
        with http_server(tmp_path, "user:p@ss") as address:
            assert refused(f"{address}/live.m3u8").message.endswith("wrong user or password")
            source = open_source(f"{address}/live.m3u8".replace("http://", "hls://user:p@ss@"))
            assert isinstance(source, VideoFile)
            assert "p@ss" not in source.info.name
            assert numbers(source.frames(5.0)) == numbers(VideoFile(path).frames(5.0))
            assert numbers([source.frame_at(3.0)]) == [30]

    def test_an_open_one_is_a_stream_that_goes_on_with_it_and_is_lost_when_it_stands_still(self, tmp_path: Path) -> None:
        segments(tmp_path)
        playlist = tmp_path / "live.m3u8"
        *begun, last, name, _ = playlist.read_text().splitlines(keepends=True)
        playlist.write_text("".join(begun))
        seen, news = list[Frame](), list[str]()
        with http_server(tmp_path) as address:
            source = open_source(f"{address}/live.m3u8", Connecting(timeout_s=3.0, reconnect=0))
            assert source.info.is_live
            playlist.write_text("".join([*begun, last, name]))
            with closing(Feed(source, source.frames(10), "all")) as feed:
                while not feed.ended:
                    frame = feed.take(0.1)
                    seen += [frame] if frame else []
                    news += feed.news()
        assert numbers(seen)[-20:] == list(range(40, 60))
        assert news[-1] == f"{address}/live.m3u8: nothing came within 3 s; gave up"


class TestTcp:
    def test_a_camera_that_is_cut_and_stalls_and_comes_back(self) -> None:
        """The first connection breaks off, the second falls silent for longer than we wait, the third is the last."""
        with tcp_camera((1.2, 0), (1.0, 1.8), (1.0, 0)) as camera:
            source = open_source(camera.address, Connecting(timeout_s=1.0, reconnect=5))
            assert (source.info.is_live, source.info.codec, source.info.width) == (True, "h264", 64)
            times, news, states, newest = [], list[str](), list[str](), None
            with closing(Feed(source, source.frames(10), "all")) as feed:
                while not feed.ended:
                    frame = feed.take(0.1)
                    times += [frame.time_s] if frame else []
                    news += feed.news()
                    newest = feed.pulse() or newest
                    states += [newest.state] if newest and [newest.state] != states[-1:] else []
            assert camera.served == 3
        assert times == sorted(set(times))
        assert states[0] == "live"
        assert states[-1] == "ended"
        assert {"reconnecting", "stalled"} <= set(states)
        assert newest is not None
        assert newest.reconnects == 2
        assert news[0] == f"{camera.address}: the connection was closed; connecting again"
        assert sum(text.startswith(f"{camera.address}: nothing was seen from 00:00:0") for text in news) == 2
        assert news[-1].endswith("; gave up")
        assert source.report.ended_early is not None

    def test_nobody_there_and_nobody_who_says_anything(self, silent_port: int) -> None:
        assert refused("tcp://127.0.0.1:9").message == "tcp://127.0.0.1:9 cannot be reached: Connection refused"
        for scheme in ("tcp", "rtsp", "http"):
            assert "nothing came within 0.5 s" in refused(f"{scheme}://127.0.0.1:{silent_port}/x").message

    def test_an_address_of_another_kind(self) -> None:
        with pytest.raises(UsageError, match="gopher:// is not an address of a video stream"):
            open_source("gopher://example.org/x")


class TestPasswords:
    @pytest.mark.parametrize(
        ("spec", "shown", "url"),
        [
            ("rtsp://user:p@ss:w0rd#1@host:9/x", "rtsp://user:***@host:9/x", "rtsp://user:p%40ss%3Aw0rd%231@host:9/x"),
            ("rtsp://user:p%40ss@host/x", "rtsp://user:***@host/x", "rtsp://user:p%40ss@host/x"),
            ("rtsp://user:a/b?c@host/x", "rtsp://user:***@host/x", "rtsp://user:a%2Fb%3Fc@host/x"),
            ("RTSP://us er:s@[::1]:554/@1", "rtsp://us er:***@[::1]:554/@1", "rtsp://us%20er:s@[::1]:554/@1"),
            ("rtsp://user@host/x", "rtsp://user@host/x", "rtsp://user@host/x"),
            ("http://host:80/a@2x.m3u8", "http://host:80/a@2x.m3u8", "http://host:80/a@2x.m3u8"),
            (
                "hls://host/live.m3u8?token=t0p&n=1",
                "hls://host/live.m3u8?token=***&n=1",
                "http://host/live.m3u8?token=t0p&n=1",
            ),
        ],
    )
    def test_are_split_off_at_the_last_at_before_the_path(self, spec: str, shown: str, url: str) -> None:
        address = Address.parse(spec)
        assert (address.shown, address.url) == (shown, url)
        assert hide_password(spec) == shown
        assert hide_password(shown) == shown

    @given(st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S"))).filter(lambda text: "%" not in text))
    def test_reach_libav_whole_and_show_nowhere(self, text: str) -> None:
        password = f"Zq{text}"
        address = Address.parse("rtsp://user@192.0.2.1:554/x", password)
        assert address.url == f"rtsp://user:{quote(password, safe='')}@192.0.2.1:554/x"
        assert address.shown == "rtsp://user:***@192.0.2.1:554/x"
        assert password not in repr(address)
        assert address.scrub(f"{address.url}: {password}") == f"{address.shown}: ***"

    def test_one_that_was_hidden_is_asked_for(self) -> None:
        with pytest.raises(UsageError, match=r"rtsp://user:\*\*\*@127.0.0.1:9/x: the password is not known"):
            open_source("rtsp://user:***@127.0.0.1:9/x")
        connecting = Connecting(timeout_s=1.0, password="known")
        assert "cannot be reached" in refused("rtsp://user:***@127.0.0.1:9/x", connecting).message

    def test_are_in_no_message_log_or_traceback(self, silent_port: int, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        for port in (9, silent_port):
            for spec in (f"rtsp://user:{SECRET}@127.0.0.1:{port}/x", f"http://u:{quote(SECRET, safe='')}@127.0.0.1:{port}/"):
                error = refused(spec)
                text = "".join(traceback.format_exception(error)) + error.hint + caplog.text + repr(error)
                assert SECRET not in text
                assert quote(SECRET, safe="") not in text
                assert "***" in error.message

    def test_are_in_nothing_that_the_program_writes(self, tmp_path: Path) -> None:
        (tmp_path / "password").write_text(SECRET + "\n")
        spec = f"rtsp://user:{SECRET}@127.0.0.1:9/x"
        given_elsewhere = ["--password-file", str(tmp_path / "password")]
        for arguments in (
            ["watch", spec, "-vv", "--json"],
            ["probe", spec],
            ["probe", "rtsp://u@127.0.0.1:9", *given_elsewhere],
        ):
            command = [sys.executable, "-m", "hermes_cli", *arguments]
            done = subprocess.run(command, cwd=ROOT, input="", capture_output=True, text=True, check=False)
            assert done.returncode == 3
            assert "***@127.0.0.1:9" in done.stderr
            assert SECRET not in done.stdout + done.stderr
            assert quote(SECRET, safe="") not in done.stdout + done.stderr
