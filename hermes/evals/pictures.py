"""The video of a question: a file, or single pictures in an array or a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hermes.errors import SourceError
from hermes.evals.annotations import is_folder
from hermes.evals.question import Clip
from hermes.sources import Picture, Report, Source, SourceInfo, open_source

_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_DAMAGED = "download it again"


def open_clip(clip: Clip) -> Source:
    """The source behind a clip; raises `SourceError` where it cannot be opened."""
    if clip.path.suffix == ".npy":
        return _array(clip.path, clip.fps or 1.0)
    if is_folder(clip.path):
        return _folder(clip.path, clip.fps or 1.0)
    return open_source(clip.path)


class Stills(Source):
    """Single pictures at a constant rate, read one by one as they are wanted.

    Args:
        name: what messages call them.
        count: how many, at least one.
        fps: how many a second.
        read: gives a picture by its number, (height, width, 3) uint8; raises `SourceError`.
    """

    def __init__(self, name: str, count: int, fps: float, read: Callable[[int], NDArray[np.uint8]]) -> None:
        super().__init__()
        self._count, self._read, self._step = count, read, 1 / Fraction(str(fps))
        height, width, _ = read(0).shape
        self.info = SourceInfo(name, width, height, float(count * self._step), fps, "rgb24")

    def pictures(self, begin: Fraction, report: Report) -> Generator[Picture, None, None]:
        first = min(max(int(begin // self._step), 0), self._count - 1)
        for number in range(first, self._count):
            yield Picture(number * self._step, self._step, partial(self._render, number))

    def _render(self, number: int, max_side: int | None) -> NDArray[np.uint8]:
        return self._read(number)


def _array(path: Path, fps: float) -> Source:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file", "check the path") from None
    except (OSError, ValueError, EOFError, OverflowError) as error:
        raise SourceError(f"{path} is no array of pictures that can be read", _DAMAGED) from error
    if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8 or 0 in array.shape:
        form = f"{array.shape}, {array.dtype}"
        raise SourceError(f"{path} is no array of pictures ({form})", "it should be (pictures, height, width, 3), uint8")
    return Stills(str(path), len(array), fps, lambda number: np.array(array[number]))


def _folder(path: Path, fps: float) -> Source:
    files = sorted((file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES), key=_natural)
    if not files:
        raise SourceError(f"{path}: no pictures in this folder", "check the path")
    return Stills(str(path), len(files), fps, lambda number: _read_picture(files[number]))


def _read_picture(file: Path) -> NDArray[np.uint8]:
    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SourceError(f"{file} is no picture that can be read", _DAMAGED) from error


def _natural(file: Path) -> list[tuple[int, str]]:
    """Numbers in a name by their value."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", file.name)]
