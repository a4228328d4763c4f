"""Cameras of this machine, by OpenCV, which is imported only when one is opened."""

from __future__ import annotations

import atexit
import queue
import re
import time
from collections.abc import Generator
from concurrent.futures import Future, wait
from contextlib import suppress
from fractions import Fraction
from functools import partial
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hermes.errors import SourceError
from hermes.sources.base import Report, rate_hint
from hermes.sources.cameras import find_camera, which_there_are
from hermes.sources.daemon import in_daemon
from hermes.sources.live import Connecting, LiveSource, Shot
from hermes.sources.opening import printable

_FAILED_READS = 3  # in a row, before the camera is closed
_POLL_S = 0.2
_LAST_READ_S = 1.0  # for a read that is under way when nobody wants pictures any more
_UNPLUG = "unplug it and plug it in again"
_CAP_PROP_FPS = 5  # cv2.CAP_PROP_FPS
_PACKAGES = {
    "libGL.so.1": "libgl1",
    "libEGL.so.1": "libegl1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libSM.so.6": "libsm6",
    "libXext.so.6": "libxext6",
    "libXrender.so.1": "libxrender1",
    "libxcb.so.1": "libxcb1",
}
"""Libraries that the wheel of OpenCV takes from the system, and the packages of Debian and Ubuntu that have them."""


def is_camera(spec: str) -> bool:
    """Whether it names a camera: `0`, `/dev/video0`, `camera:NAME`."""
    return spec.isdecimal() or spec.startswith("camera:") or re.fullmatch(r"/dev/video\d+", spec) is not None


class Camera(LiveSource):
    """A camera; its times are those of arrival.

    OpenCV's reads may block for ever, so they happen in a thread that is left behind when they do.

    Args:
        spec: index, `/dev/videoN` or `camera:NAME`; anything else is a file in a camera's place.

    Raises:
        SourceError: there is no such camera, it gives no picture, or OpenCV is not installed as it should be.
    """

    def __init__(self, spec: str, connecting: Connecting) -> None:
        self._capture_class = _opencv()
        self._device = _device(spec)
        self._patience_s = connecting.timeout_s
        self._fps: float | None = None
        super().__init__(printable(spec), connecting.reconnect)

    def _connect(self, report: Report) -> Generator[Shot, None, None]:
        read: queue.Queue[NDArray[np.uint8] | Exception] = queue.Queue(1)
        left = Event()
        reading = in_daemon(partial(self._read, read, left))
        end = partial(_end, reading, left)
        atexit.register(end)
        try:
            while (found := self._next(read)) is not None:
                if isinstance(found, Exception):
                    raise found
                yield Shot(None, Fraction(0), partial(_to_rgb, found))
        finally:
            atexit.unregister(end)
            end()

    def _next(self, read: queue.Queue[NDArray[np.uint8] | Exception]) -> NDArray[np.uint8] | Exception | None:
        """What comes next; None when nobody wants it any more."""
        give_up_s = time.monotonic() + self._patience_s
        while not self._ending.is_set() and time.monotonic() < give_up_s:
            with suppress(queue.Empty):
                return read.get(timeout=_POLL_S)
        late = f"camera {self._name}: no picture came within {self._patience_s:g} s"
        return None if self._ending.is_set() else SourceError(late, _UNPLUG)

    def _read(self, read: queue.Queue[NDArray[np.uint8] | Exception], left: Event) -> None:
        capture = None
        try:
            capture = self._capture_class(self._device)
            if not capture.isOpened():
                raise SourceError(f"there is no camera {self._name}, or something else uses it", which_there_are())
            self._fps = rate_hint(capture.get(_CAP_PROP_FPS))
            failed = 0
            while failed < _FAILED_READS and not left.is_set():
                is_good, bgr = capture.read()
                failed = 0 if is_good else failed + 1
                if is_good:
                    _put(read, left, bgr)
            if failed:
                raise SourceError(
                    f"camera {self._name}: {_FAILED_READS} reads in a row failed", "look whether it is still plugged in"
                )
        except SourceError as error:
            _put(read, left, error)
        except Exception as error:
            _put(read, left, SourceError(f"camera {self._name}: {_first_line(error)}", _UNPLUG))
        finally:
            if capture is not None:
                capture.release()

    def _describe(self) -> tuple[float | None, str]:
        return self._fps, "raw"


def _end(reading: Future[None], left: Event) -> None:
    """Let the thread come to its end, if it does. Python's own would catch it within OpenCV, and that aborts the process."""
    left.set()
    wait([reading], _LAST_READ_S)


def _put(read: queue.Queue[Any], left: Event, found: object) -> None:
    while not left.is_set():
        try:
            read.put(found, timeout=_POLL_S)
        except queue.Full:
            continue
        return


def _opencv() -> Any:
    """OpenCV's class of captures."""
    try:
        import cv2  # noqa: PLC0415 - only for cameras
    except ModuleNotFoundError:
        raise SourceError("OpenCV is not installed, and cameras need it", "pip install opencv-python") from None
    except ImportError as error:
        raise _unloadable(str(error)) from None
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # we say it ourselves
    return cv2.VideoCapture


def _unloadable(message: str) -> SourceError:
    library = next((word for word in re.findall(r"lib[\w.+-]+\.so[\w.]*", message)), None)
    if library is None:
        return SourceError(
            f"OpenCV cannot be loaded: {message.splitlines()[0]}", "pip install --force-reinstall opencv-python"
        )
    package = _PACKAGES.get(library)
    install = f"install the package {package}" if package else "install the package that has it"
    without = "or pip uninstall opencv-python and pip install opencv-python-headless, which does without"
    return SourceError(f"OpenCV cannot be loaded: the system library {library} is missing", f"{install}, {without}")


def _device(spec: str) -> int | str:
    number = re.fullmatch(r"(?:/dev/video)?(\d+)", spec)
    if number:
        return int(number[1])
    return find_camera(spec.removeprefix("camera:")).index if spec.startswith("camera:") else spec


def _to_rgb(bgr: NDArray[np.uint8], max_side: int | None) -> NDArray[np.uint8]:
    return np.ascontiguousarray(bgr[..., ::-1])


def _first_line(error: Exception) -> str:
    lines = printable(str(error)).splitlines()
    return lines[0] if lines else type(error).__name__
