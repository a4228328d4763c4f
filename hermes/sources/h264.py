"""Pictures as H.264 packets and back, one in, one out, bit for bit the same whenever they are decoded."""

from __future__ import annotations

from fractions import Fraction
from typing import cast

import av
import numpy as np
from av.codec.codec import UnknownCodecError
from av.error import FFmpegError
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from hermes.errors import SourceError

_OPTIONS = {"preset": "veryfast", "tune": "zerolatency", "crf": "20", "g": "100000", "x264-params": "log-level=none"}
_FORMAT = "yuv444p"  # takes odd sides, and keeps the colours of small things


class Encoder:
    """One group of pictures of one size: the first packet stands alone, each other needs all before it.

    Raises:
        SourceError: PyAV has no encoder for H.264.
    """

    def __init__(self, width: int, height: int) -> None:
        try:
            context = VideoCodecContext.create("libx264", "w")
        except UnknownCodecError as error:
            raise SourceError("PyAV cannot encode H.264 here", "install its own build: pip install av") from error
        context.width, context.height, context.pix_fmt = width, height, _FORMAT
        context.framerate = Fraction(1)  # times are kept beside the pictures
        context.thread_count = 1
        context.options = _OPTIONS
        self.size = width, height
        self._context = context

    def encode(self, rgb: NDArray[np.uint8]) -> bytes:
        """The packet of the next picture, (height, width, 3); `tune=zerolatency` keeps none back."""
        picture = VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")
        return b"".join(map(bytes, self._context.encode(picture.reformat(format=_FORMAT))))


class Decoder:
    """Decodes the packets of one `Encoder`, in their order."""

    def __init__(self) -> None:
        self._context = VideoCodecContext.create("h264", "r")
        self._context.thread_count = 1  # threads would keep pictures back

    def decode(self, packet: bytes, name: str = "a picture") -> VideoFrame:
        """The next picture, for `to_rgb`; raises `SourceError`, which calls it `name`, when the packet is damaged."""
        try:
            (picture,) = self._context.decode(av.Packet(packet))
        except (FFmpegError, ValueError) as error:
            raise SourceError(f"{name} is damaged", "use --nearest to ask a saved memory") from error
        return picture


def to_rgb(picture: VideoFrame, max_side: int | None = None) -> NDArray[np.uint8]:
    """(height, width, 3), whatever `max_side` allows: a picture is as it was seen only in the size that it was seen in."""
    return cast("NDArray[np.uint8]", picture.to_ndarray(format="rgb24"))
