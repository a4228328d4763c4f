"""Where pictures come from. The only part of the product that imports `av` (PyAV, Python bindings of libav)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hermes.errors import SourceError
from hermes.sources.base import EarlyEnd, FrameList, Picture, Report, Source, SourceInfo
from hermes.sources.opening import ACCEPTED, printable
from hermes.sources.video_file import VideoFile

__all__ = ["EarlyEnd", "FrameList", "Picture", "Report", "Source", "SourceInfo", "VideoFile", "open_source"]


def open_source(spec: str | Path) -> Source:
    """The source that a user names on the command line: today the path of one local video file.

    Raises:
        SourceError: it names a camera, an address, standard input or a pattern, or `VideoFile` refuses it.
    """
    kind = None if isinstance(spec, Path) else _other_kind(spec)
    if kind is not None:
        raise SourceError(f"the source is {kind}, and only video files can be played", ACCEPTED)
    return VideoFile(spec)


def _other_kind(spec: str) -> str | None:
    """What `spec` means when it is not a path. An address is not repeated: it may hold a password."""
    if spec == "-":
        return "standard input"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", spec):
        return "a network address"
    if spec.isdecimal() or spec.startswith("camera:"):
        return f"a camera ({printable(spec)}; a file of that name is ./{printable(spec)})"
    if re.search(r"[*?\[]", spec) and not os.path.lexists(spec):
        return f"a pattern ({printable(spec)})"
    return None
