"""Video served on 127.0.0.1 by threads of the test, as cameras and web servers serve it."""

from __future__ import annotations

import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from fractions import Fraction
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import av
import numpy as np

FPS = 60


class TcpCamera:
    """Sends MPEG-TS in real time to one client after another, each time a plan: seconds of pictures, then what follows.

    Args:
        plans: for each connection (seconds of pictures, seconds of silence); then it is cut.

    Attributes:
        address: where it is; nobody is there after the last plan.
        served: how many connections there were.
    """

    def __init__(self, plans: Sequence[tuple[float, float]]) -> None:
        self._plans = plans
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self._closing = threading.Event()
        self.served = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while self.served < len(self._plans):
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, suppress(OSError, av.FFmpegError):
                self.meet(connection)
        self._listening.close()

    def meet(self, connection: socket.socket) -> None:
        """Do as planned for the next client."""
        with connection.makefile("wb", buffering=0) as file:
            self.play(file, "mpegts")

    def play(self, file: Any, form: str, **options: str) -> None:
        """Write pictures to a file in a container format of libav, in real time, and fall silent, as planned."""
        seconds, silent_s = self._plans[self.served]
        self.served += 1
        self._mux(file, form, options, seconds)
        self._closing.wait(silent_s)

    def _mux(self, file: Any, form: str, container_options: dict[str, str], seconds: float) -> None:
        with closing(av.open(file, "w", format=form, container_options=container_options)) as container:
            options = {"preset": "ultrafast", "tune": "zerolatency"}
            stream = container.add_stream("libx264", rate=FPS, options=options)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            stream.codec_context.gop_size = 5
            begin_s = time.monotonic()
            for number in range(round(seconds * FPS)):
                if self._closing.wait(max(0.0, begin_s + number / FPS - time.monotonic())):
                    return
                planes = np.full((72, 64), 128, np.uint8)
                planes[:48] = 16 + number % 200
                frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
                frame.pts, frame.time_base = number, Fraction(1, FPS)
                container.mux(stream.encode(frame))


@contextmanager
def tcp_camera(*plans: tuple[float, float]) -> Iterator[TcpCamera]:
    """A `TcpCamera` while it lasts."""
    camera = TcpCamera(plans)
    try:
        yield camera
    finally:
        camera.close()


class _Quiet(SimpleHTTPRequestHandler):
    login: bytes | None = None

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Only to those who may."""
        expected = None if self.login is None else f"Basic {b64encode(self.login).decode()}"
        if expected is None or self.headers.get("Authorization") == expected:
            return super().do_GET()
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="films"')
        return self.end_headers()


@contextmanager
def http_server(folder: Path, login: str | None = None) -> Iterator[str]:
    """The address of a web server for a folder, which asks for `user:password` if there is a login."""
    handler = type("_Handler", (_Quiet,), {"login": login and login.encode()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
