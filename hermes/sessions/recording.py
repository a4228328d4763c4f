"""The sampled frames of a session, as the model saw them: pictures as H.264, times exactly.

A recording is a folder of segments: a stream of H.264 and, beside it, an index in JSON Lines of the frames in it. A segment
is named by the number of frames before it, and begins with a run of the session or when the one before is long enough. A
frame is written to the stream before it is written to the index, so one that is in the index is there, however its writer
ended.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path

from hermes.errors import SourceError
from hermes.frames import Frame
from hermes.sessions.files import make_private_folder, open_private, parse_json, sync_folder
from hermes.sources.base import Picture, Report, Source, SourceInfo
from hermes.sources.h264 import Decoder, Encoder, to_rgb

DEFAULT_BYTES = 4 * 2**30
"""Of a recording where nobody says: days of a camera at a frame a second."""

_FOLDER = "recording"
_STREAM, _INDEX = ".h264", ".jsonl"
_GROUP_FRAMES = 16  # to go back, half of them are decoded in vain; in smaller groups the pictures are larger
_SEGMENT_FRAMES = 16 * _GROUP_FRAMES


class Recorder:
    """Adds frames to the recording of a session; one at a time does.

    A picture needs those before it in its group, so a recording is not thinned out as saved memories are. Where it gets too
    large its oldest segment goes, and moments in that are asked of the nearest saved memory. `--session-size` allows the
    recording as much as the memories, beside them.

    A kill loses no frame that was taken, a power cut no whole group of pictures.

    Args:
        folder: of the session.
        seen: number of frames that the session has seen before. Those of them that are recorded stay.
        max_bytes: of the recording; `DEFAULT_BYTES` when None. One segment always fits.
    """

    def __init__(self, folder: Path, seen: int = 0, max_bytes: int | None = None) -> None:
        self._folder = folder / _FOLDER
        self._seen = seen
        self._max_bytes = DEFAULT_BYTES if max_bytes is None else max_bytes
        self._segment: _Segment | None = None

    def take(self, frame: Frame) -> Frame:
        """Record the next frame of the stream; returns it as it will be read back, bit for bit.

        Raises:
            OSError: it cannot be written, for example because the disk is full; those before it are there.
            SourceError: PyAV cannot encode H.264.
        """
        if self._segment is None or self._segment.frames == _SEGMENT_FRAMES:
            self._begin_segment()
        assert self._segment is not None
        recorded = self._segment.add(frame)
        self._seen += 1
        return recorded

    def close(self) -> None:
        """Have everything on the disk; nothing happens the second time."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _begin_segment(self) -> None:
        self.close()
        make_private_folder(self._folder)
        old = sorted(self._folder.glob("[0-9]*"))
        while old and int(old[-1].stem) >= self._seen:  # nothing that a memory has seen
            old.pop().unlink()
        sizes = [path.stat().st_size for path in old]
        excess = sum(sizes) + sum(sizes[-2:]) - self._max_bytes  # with one more that is like the last
        for path, size in zip(old, sizes, strict=True):
            if excess > 0:
                path.unlink()
                excess -= size
        self._segment = _Segment(self._folder / f"{self._seen:08}")


class _Segment:
    """A segment that grows.

    Args:
        path: of its files, without their suffixes.

    Attributes:
        frames: number of them in it.
    """

    def __init__(self, path: Path) -> None:
        self.frames = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._stream = io.BufferedWriter(open_private(path.with_suffix(_STREAM), flags))
        self._index = io.BufferedWriter(open_private(path.with_suffix(_INDEX), flags))
        sync_folder(path.parent)
        self._encoder: Encoder | None = None
        self._decoder = Decoder()
        self._in_group = 0

    def add(self, frame: Frame) -> Frame:
        """As `Recorder.take`."""
        height, width, _ = frame.rgb.shape
        if self._encoder is None or self._encoder.size != (width, height) or self._in_group == _GROUP_FRAMES:
            self._sync()
            self._encoder, self._decoder, self._in_group = Encoder(width, height), Decoder(), 0
        packet = self._encoder.encode(frame.rgb)
        recorded = Frame(frame.time_s, to_rgb(self._decoder.decode(packet)))
        line = {"time_s": frame.time_s, "bytes": len(packet), "in_group": self._in_group, "size": [width, height]}
        for file, data in ((self._stream, packet), (self._index, json.dumps(line, allow_nan=False).encode() + b"\n")):
            file.write(data)
            file.flush()
        self.frames += 1
        self._in_group += 1
        return recorded

    def close(self) -> None:
        with self._stream, self._index:
            self._sync()

    def _sync(self) -> None:
        for file in (self._stream, self._index):
            os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class _Entry:
    """A frame of a recording.

    Attributes:
        stream: the file that it is in, from `offset` on.
        in_group: number of frames before it that it needs.
    """

    stream: Path
    offset: int
    nbytes: int
    time_s: float
    in_group: int
    size: tuple[int, int]


class Recording(Source):
    """The frames that a session has recorded so far, as the model saw them.

    Args:
        folder: of the session.
        name: what messages call it.

    Attributes:
        first: number of frames that were seen before the first one here: more than 0 where old ones have made room.

    Raises:
        SourceError: nothing was recorded.
    """

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__()
        self.first, self._entries = _read(folder / _FOLDER)
        if not self._entries:
            raise SourceError(f"{name}: nothing was recorded", "use hermes watch --record")
        times = [Fraction(entry.time_s) for entry in self._entries]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        self._durations = [*gaps, gaps[-1] if gaps else Fraction(0)]  # the last one stays as long as the one before it
        self.info = SourceInfo(name, *self._entries[0].size, float(times[-1] + self._durations[-1]), None, "h264")

    def frames(
        self, fps: float | None = None, start_s: float = 0.0, end_s: float | None = None, *, max_side: int | None = None
    ) -> Generator[Frame, None, None]:
        """As `Source.frames`, but all of them at any rate, since they were sampled when they were recorded."""
        return super().frames(None, start_s, end_s, max_side=max_side)

    def pictures(self, begin: Fraction, report: Report) -> Generator[Picture, None, None]:
        """As `Source.pictures`; raises `SourceError` when a frame is damaged or has just made room."""
        start = max((number for number, entry in enumerate(self._entries) if entry.time_s <= begin), default=0)
        decoder = Decoder()
        for number in range(start - self._entries[start].in_group, len(self._entries)):
            entry = self._entries[number]
            if entry.in_group == 0:
                decoder = Decoder()
            picture = decoder.decode(_packet(entry), entry.stream.name)
            if number >= start:
                yield Picture(Fraction(entry.time_s), self._durations[number], partial(to_rgb, picture))


def find_recording(folder: Path, name: str) -> Recording | None:
    """The recording of a session; arguments as `Recording`, None where nothing was recorded."""
    try:
        return Recording(folder, name)
    except SourceError:
        return None


def _packet(entry: _Entry) -> bytes:
    try:
        with entry.stream.open("rb") as stream:
            stream.seek(entry.offset)
            return stream.read(entry.nbytes)
    except FileNotFoundError as error:
        raise SourceError(f"{entry.stream.name} has just been deleted to make room", "ask again") from error
    except OSError as error:
        raise SourceError(f"{entry.stream} cannot be read: {error.strerror}", "check its owner and mode") from error


def _read(folder: Path) -> tuple[int, list[_Entry]]:
    """How many frames were seen before the oldest one, and from there on all of them, without a hole."""
    first, found = 0, list[_Entry]()
    for index in sorted(folder.glob(f"{'[0-9]' * 8}{_INDEX}")):
        before = int(index.stem)
        if before != first + len(found):
            first, found = before, []
        found += _entries(index)
    return first, found


def _entries(index: Path) -> Iterator[_Entry]:
    """The frames of a segment, up to the first one that is not whole."""
    stream, offset, before = index.with_suffix(_STREAM), 0, None
    try:
        nbytes = stream.stat().st_size
        for line in index.read_bytes().splitlines():
            told = parse_json(line)
            entry = _Entry(stream, offset, told["bytes"], told["time_s"], told["in_group"], (*told["size"],))
            offset += entry.nbytes
            if offset > nbytes or not _follows(entry, before):
                return
            before = entry
            yield entry
    except (
        OSError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ):  # half a line, or a segment that makes room at this moment
        return


def _follows(entry: _Entry, before: _Entry | None) -> bool:
    """Whether it is a frame, and may come behind another one of its segment."""
    whole = all(type(number) is int and number > 0 for number in (entry.nbytes, *entry.size)) and len(entry.size) == 2
    if not whole or type(entry.time_s) not in (int, float):
        return False
    if before is None:
        return entry.in_group == 0
    return entry.in_group in (0, before.in_group + 1) and entry.time_s >= before.time_s
