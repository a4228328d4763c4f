"""A video that is piped in."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from hermes.errors import SourceError
from hermes.sources.opening import LocalFile
from hermes.sources.video_file import VideoFile


class PipedFile(VideoFile):
    """Standard input as a film. It is first copied to a temporary file, since most containers are not read in one go.

    Raises:
        SourceError: it is a terminal, closed, empty, or no video.
    """

    def __init__(self) -> None:
        if sys.stdin is None or sys.stdin.isatty():
            raise SourceError("nothing is piped into standard input", "use it like: hermes watch - < video.mp4")
        self._copy = tempfile.NamedTemporaryFile(prefix="hermes-")  # noqa: SIM115 - gone when nobody needs it
        shutil.copyfileobj(sys.stdin.buffer, self._copy)
        if not self._copy.tell():
            raise SourceError("nothing came through standard input", "pipe the video in: hermes watch - < video.mp4")
        self._copy.flush()
        super().__init__(LocalFile(Path(self._copy.name), "standard input"))
