"""An RTSP server on 127.0.0.1 (RFC 2326), whose RTP packets come from libav and go over the connection of the requests."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import md5

from tests.serving import TcpCamera

SDP = """v=0
o=- 0 0 IN IP4 127.0.0.1
s=camera
c=IN IP4 0.0.0.0
t=0 0
m=video 0 RTP/AVP 96
a=rtpmap:96 H264/90000
a=fmtp:96 packetization-mode=1
a=control:track
""".replace("\n", "\r\n")
REALM, NONCE = "cameras", "0123456789abcdef"
PACKET_BYTES = "100"  # so few that most pictures need several packets


class RtspCamera(TcpCamera):
    """A `TcpCamera` that speaks RTSP; a client that does not play uses up no plan.

    Args:
        plans: as those of `TcpCamera`.
        login: user and password, asked for with Digest; None lets everybody in.

    Attributes:
        transports: what each client that set up a stream wanted it to be sent by, as the header says it.
    """

    def __init__(self, plans: Sequence[tuple[float, float]], login: tuple[str, str] | None = None) -> None:
        self._login = login
        self.transports = list[str]()
        super().__init__(plans)
        self.address = self.address.replace("tcp://", "rtsp://") + "/live"

    def meet(self, connection: socket.socket) -> None:
        """Answer requests until one of them is PLAY, and do as planned."""
        with connection.makefile("rb") as requests:
            while head := _head(requests):
                method, headers = head[0].split()[0], dict(line.split(": ", 1) for line in head[1:])
                status, lines, body = self._answer(method, headers)
                lines = [f"RTSP/1.0 {status}", f"CSeq: {headers['CSeq']}", *lines, f"Content-Length: {len(body)}"]
                connection.sendall("\r\n".join([*lines, "", body]).encode())
                if method == "PLAY":
                    self.play(_Interleaved(connection), "rtp", packetsize=PACKET_BYTES, rtpflags="skip_rtcp")
                    return

    def _answer(self, method: str, headers: dict[str, str]) -> tuple[str, list[str], str]:
        """Status, further header lines and body of a reply."""
        match method:
            case "OPTIONS":
                return "200 OK", ["Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN"], ""
            case _ if not self._may(method, headers.get("Authorization", "")):
                return "401 Unauthorized", [f'WWW-Authenticate: Digest realm="{REALM}", nonce="{NONCE}"'], ""
            case "DESCRIBE":
                return "200 OK", [f"Content-Base: {self.address}/", "Content-Type: application/sdp"], SDP
            case "SETUP":
                self.transports.append(headers["Transport"])
                return "200 OK", ["Transport: RTP/AVP/TCP;unicast;interleaved=0-1", "Session: 1"], ""
        return "200 OK", ["Session: 1"], ""

    def _may(self, method: str, authorization: str) -> bool:
        """Whether a request comes from somebody who knows the password (RFC 2069)."""
        if self._login is None:
            return True
        fields = dict(re.findall(r'(\w+)="([^"]*)"', authorization))
        user, password = self._login
        secret, asked = _md5(f"{user}:{REALM}:{password}"), _md5(f"{method}:{fields.get('uri')}")
        return fields.get("username") == user and fields.get("response") == _md5(f"{secret}:{NONCE}:{asked}")


class _Interleaved:
    """Takes RTP packets, which libav writes one by one, and sends them between the replies (RFC 2326, 10.12)."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def write(self, packet: bytes) -> int:
        self._connection.sendall(struct.pack(">cBH", b"$", 0, len(packet)) + packet)
        return len(packet)


def _head(requests: Iterator[bytes]) -> list[str]:
    """The lines of the next request, none where there is no more."""
    lines: list[str] = []
    for line in requests:
        if not (text := line.decode().rstrip()):
            return lines
        lines.append(text)
    return []


def _md5(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()


@contextmanager
def rtsp_camera(*plans: tuple[float, float], login: tuple[str, str] | None = None) -> Iterator[RtspCamera]:
    """An `RtspCamera` while it lasts."""
    camera = RtspCamera(plans, login)
    try:
        yield camera
    finally:
        camera.close()
