"""What the PyAV that is installed here can decode."""

from __future__ import annotations

import io
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy as np
from av.codec import Codec
from av.codec.codec import UnknownCodecError
from av.error import FFmpegError

from hermes.errors import SourceError

_DECODERS = {
    "h264": ("h264",),
    "hevc": ("hevc",),
    "vp9": ("vp9", "libvpx-vp9"),
    "av1": ("libdav1d", "libaom-av1"),  # FFmpeg's own "av1" needs a GPU that decodes
    "mpeg4": ("mpeg4",),
    "mjpeg": ("mjpeg",),
    "prores": ("prores",),
}
"""What cameras, phones, editors and the web use, and FFmpeg's names of the decoders that read it without a GPU."""

_CHECKED_FRAMES = 3


@dataclass(frozen=True)
class Codecs:
    """PyAV and the FFmpeg underneath.

    Attributes:
        version: of PyAV.
        ffmpeg: version of FFmpeg, as its builder wrote it.
        libraries: name of each of its libraries to version.
        decoders: codec name to whether it can be decoded here.
    """

    version: str
    ffmpeg: str
    libraries: dict[str, str]
    decoders: dict[str, bool]


def installed_codecs() -> Codecs:
    """The codecs that are here."""
    libraries = {name: ".".join(map(str, version)) for name, version in av.library_versions.items()}
    decoders = {name: any(map(_has_decoder, choices)) for name, choices in _DECODERS.items()}
    return Codecs(av.__version__, av.ffmpeg_version_info, libraries, decoders)


def _has_decoder(name: str) -> bool:
    try:
        Codec(name, "r")
    except UnknownCodecError:
        return False
    return True


def check_decoding() -> int:
    """Encode a few pictures in memory and decode them again; returns how many there were.

    Raises:
        SourceError: they do not come back.
    """
    file = io.BytesIO()
    try:
        _encode(file)
        file.seek(0)
        with av.open(file, "r") as container:
            levels = [float(frame.to_ndarray(format="gray").mean()) for frame in container.decode(video=0)]
    except FFmpegError as error:
        raise SourceError(f"PyAV cannot decode what it has encoded: {error}", "install PyAV again") from error
    if len(levels) != _CHECKED_FRAMES or levels != sorted(set(levels)):
        raise SourceError("PyAV does not give back the pictures that it has encoded", "install PyAV again")
    return len(levels)


def _encode(file: io.BytesIO) -> None:
    """Grey pictures, each lighter than the one before, with an encoder that is part of every FFmpeg."""
    with av.open(file, "w", format="matroska") as container:
        stream = container.add_stream("mpeg4", rate=1)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for second in range(_CHECKED_FRAMES):
            picture = np.full((48, 64, 3), 60 * (second + 1), np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = second, Fraction(1)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
