"""Where pictures come from. The only part of the product that imports `av` (PyAV, Python bindings of libav) and OpenCV."""

from __future__ import annotations

import os
from pathlib import Path

from hermes.sources.addresses import Address, is_address
from hermes.sources.base import EarlyEnd, FrameList, Health, Picture, Report, Source, SourceInfo, State
from hermes.sources.camera import Camera, is_camera
from hermes.sources.feed import Buffering, Feed, Pulse
from hermes.sources.live import Connecting
from hermes.sources.network import open_address
from hermes.sources.playlist import find_videos, is_pattern, open_files, open_playlist
from hermes.sources.stdin import PipedFile
from hermes.sources.video_file import VideoFile

__all__ = [
    "Buffering",
    "Connecting",
    "EarlyEnd",
    "Feed",
    "FrameList",
    "Health",
    "Picture",
    "Pulse",
    "Report",
    "Source",
    "SourceInfo",
    "State",
    "VideoFile",
    "find_videos",
    "is_several",
    "open_files",
    "open_source",
]


def open_source(spec: str | Path, connecting: Connecting | None = None) -> Source:
    """The source that a user names on the command line.

    `-` is standard input; a number, `/dev/videoN` or `camera:NAME` a camera (a file of that name is `./0`); what begins like
    `rtsp://` an address; a folder or a pattern of file names that is no file the videos in it; the rest is a video file.

    Args:
        spec: as it was written; a `Path` is always a video file.
        connecting: how cameras and streams are reached, if not as usual.

    Raises:
        SourceError: it cannot be opened or shown.
        UsageError: it is an address of another kind.
    """
    connecting = connecting or Connecting()
    if isinstance(spec, Path):
        return VideoFile(spec)
    if spec == "-":
        return PipedFile()
    if is_address(spec):
        return open_address(Address.parse(spec, connecting.password), connecting)
    if is_camera(spec):
        return Camera(spec, connecting)
    return open_playlist(spec) if is_several(spec) else VideoFile(spec)


def is_several(spec: str) -> bool:
    """Whether it is a folder of videos or a pattern of their names, and not one video, a camera, an address or a pipe."""
    if spec == "-" or is_address(spec) or is_camera(spec):
        return False
    return os.path.isdir(spec) or (is_pattern(spec) and not os.path.lexists(spec))  # noqa: PTH112 - Path raises for some names
