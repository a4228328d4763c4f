"""Video files made on the spot with PyAV, so that no test needs a program or a download.

Frame n of a numbered clip is grey with luma 16 + n and is lossless, so a test can read which frame it was given.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import cast

import av
import numpy as np
from numpy.typing import NDArray

from hermes.frames import Frame

LOSSLESS = {"libx264": {"qp": "0"}}
CORNERS = {"R": (255, 0, 0), "G": (0, 255, 0), "B": (0, 0, 255), "W": (255, 255, 255)}


def steady(count: int, fps: int = 10, start: float = 0.0) -> list[float]:
    """Times of `count` frames at a constant rate, in seconds."""
    return [start + number / fps for number in range(count)]


def clip(
    path: Path,
    times: Sequence[float],
    *,
    size: tuple[int, int] = (64, 48),
    codec: str = "libx264",
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
    gop: int = 20,
    pixel_aspect: Fraction | None = None,
    clock: Fraction = Fraction(1, 90_000),
) -> Path:
    """A numbered clip whose frame k is shown at `times[k]` seconds; the suffix of `path` names the container."""
    width, height = size

    def picture(number: int) -> av.VideoFrame:
        planes = np.full((height * 3 // 2, width), 128, np.uint8)
        planes[:height] = 16 + number % 220
        return av.VideoFrame.from_ndarray(planes, format="yuv420p")

    return write(
        path,
        [(time, picture(number)) for number, time in enumerate(times)],
        codec=codec,
        options=LOSSLESS.get(codec, {}) | (options or {}),
        container_options=container_options,
        gop=gop,
        pixel_aspect=pixel_aspect,
        clock=clock,
    )


def write(
    path: Path,
    frames: Iterable[tuple[float, av.VideoFrame]],
    *,
    codec: str,
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
    gop: int = 20,
    pixel_aspect: Fraction | None = None,
    clock: Fraction = Fraction(1, 90_000),
) -> Path:
    """Encode (seconds, frame) pairs; the first frame sets size and pixel format."""
    shown = list(frames)
    with av.open(str(path), "w", options=container_options or {}) as container:
        stream = cast("av.VideoStream", container.add_stream(codec, rate=10, options=options or {}))
        stream.width, stream.height, stream.pix_fmt = shown[0][1].width, shown[0][1].height, shown[0][1].format.name
        stream.codec_context.time_base = stream.time_base = clock
        stream.codec_context.gop_size = gop
        if pixel_aspect is not None:
            stream.codec_context.sample_aspect_ratio = pixel_aspect
        for time, frame in shown:
            frame.pts, frame.time_base = round(time / clock), clock
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def rgb_clip(path: Path, rgb: NDArray[np.uint8], count: int = 1) -> Path:
    """A lossless Matroska clip of one picture (height, width, 3), shown `count` times at 10 a second."""
    frame = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format="bgr0")
    return write(path, [(time, frame) for time in steady(count)], codec="ffv1", options={"level": "1"})


def corners_clip(path: Path, matrix: tuple[int, int, int, int] = (1, 0, 0, 1)) -> Path:
    """R G over B W, 32 x 24, with the entries a, b, c, d of a display matrix written into the `tkhd` box of an MP4."""
    rgb = np.zeros((24, 32, 3), np.uint8)
    rgb[:12, :16], rgb[:12, 16:], rgb[12:, :16], rgb[12:, 16:] = (CORNERS[name] for name in "RGBW")
    frame = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format="yuv444p")
    write(path, [(0.0, frame), (0.1, frame)], codec="libx264", options={"qp": "0"})
    data = bytearray(path.read_bytes())
    a, b, c, d = (entry << 16 for entry in matrix)
    struct.pack_into(">9i", data, data.index(b"tkhd") + 44, a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    return path


def corners(rgb: NDArray[np.uint8]) -> str:
    """Names of the corner colours, row by row: `RG/BW`."""

    def name(pixel: NDArray[np.uint8]) -> str:
        return min(CORNERS, key=lambda color: int(np.abs(pixel.astype(int) - CORNERS[color]).sum()))

    return f"{name(rgb[1, 1])}{name(rgb[1, -2])}/{name(rgb[-2, 1])}{name(rgb[-2, -2])}"


def audio(path: Path, seconds: float = 1.0) -> Path:
    """A file with one AAC stream of silence."""
    with av.open(str(path), "w") as container:
        add_silence(container, seconds)
    return path


def add_silence(container: av.container.OutputContainer, seconds: float) -> None:
    stream = container.add_stream("aac", rate=8000, layout="mono")
    for start in range(0, int(8000 * seconds), 1024):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 8000, start, Fraction(1, 8000)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def numbers(frames: Iterable[Frame]) -> list[int]:
    """Which frames of a numbered clip these are."""
    return [number(frame) for frame in frames]


def number(frame: Frame) -> int:
    """The luma - 16 whose grey is nearest."""
    return int(np.abs(_GREYS - frame.rgb.mean()).argmin())


def _greys() -> NDArray[np.uint8]:
    """RGB level of each luma from 16 to 235."""
    planes = np.full((3, 220), 128, np.uint8)
    planes[:2] = np.arange(16, 236)
    return av.VideoFrame.from_ndarray(planes, format="yuv420p").to_ndarray(format="rgb24")[0, :, 0]  # type: ignore[return-value]


_GREYS = _greys()


def hurt(path: Path, is_hurt: Callable[[int], bool]) -> Path:
    """Overwrite the packets with these numbers, in the order they are stored, by bytes that no decoder accepts."""
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    for order, (position, size) in enumerate(packets):
        if is_hurt(order):
            assert position is not None
            data[position : position + size] = b"\xff" * size
    path.write_bytes(data)
    return path


def cut(path: Path, share: float) -> Path:
    """Keep only the first `share` of the bytes."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path
