"""Several videos as one: a folder or a pattern."""

from __future__ import annotations

import glob
import re
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from hermes.errors import SourceError
from hermes.sources.base import EarlyEnd, Picture, Report, Source
from hermes.sources.opening import printable
from hermes.sources.video_file import VideoFile

_SUFFIXES: tuple[str, ...] = (
    "3gp",
    "asf",
    "avi",
    "flv",
    "m2ts",
    "m4v",
    "mkv",
    "mov",
    "mp4",
    "mpeg",
    "mpg",
    "mts",
    "mxf",
    "ogv",
    "ts",
    "vob",
)
_SUFFIXES += ("webm", "wmv")


def is_pattern(spec: str) -> bool:
    """Whether it is to be taken as a pattern of file names."""
    return re.search(r"[*?\[]", spec) is not None


def find_videos(spec: str) -> list[Path]:
    """The videos of a folder or of a pattern (`**` for any depth), in natural order: `2.mp4` before `10.mp4`."""
    if Path(spec).is_dir():
        there = Path(spec).iterdir()
        paths = [path for path in there if path.suffix.lower().removeprefix(".") in _SUFFIXES and path.is_file()]
    else:
        paths = [Path(path) for path in glob.glob(spec, recursive=True) if Path(path).is_file()]  # noqa: PTH207 - absolute ones
    return sorted(paths, key=_natural)


def open_playlist(spec: str) -> Source:
    """What `find_videos` finds, as one; raises `SourceError` if that is nothing, or one of it cannot be opened."""
    paths = find_videos(spec)
    if not paths:
        nothing = "no videos in this folder" if Path(spec).is_dir() else "no file fits this pattern"
        hint = "check the path; a pattern stands in quotes, or the shell takes it"
        raise SourceError(f"{printable(spec)}: {nothing}", hint)
    return open_files(paths, printable(spec))


def open_files(paths: Sequence[Path], name: str) -> Source:
    """Videos one after another, as many as there are; raises `SourceError` if one of them cannot be opened."""
    return Playlist([VideoFile(path) for path in paths], name)


class Playlist(Source):
    """Films played one after another; time goes on, so a moment counts from the start of the first one.

    A film is as long as it turns out to be, whatever it states.

    Args:
        films: at least one.
        name: what messages call them together.
    """

    def __init__(self, films: Sequence[Source], name: str) -> None:
        super().__init__()
        self._films = tuple(films)
        self._lengths: dict[int, Fraction] = {}
        stated = [film.info.duration_s for film in films]
        whole = sum(length for length in stated if length is not None)
        self.info = replace(films[0].info, name=name, duration_s=None if None in stated else whole)

    def pictures(self, begin: Fraction, report: Report) -> Generator[Picture, None, None]:
        offset, last = Fraction(0), len(self._films) - 1
        for number, film in enumerate(self._films):
            if number == last or begin < offset + self._length(number):
                own = Report()
                with closing(film.pictures(begin - offset, own)) as pictures:
                    for picture in pictures:
                        yield replace(picture, time=picture.time + offset)
                        end = picture.time + picture.duration
                self._lengths[number] = end
                _add(report, own, offset, is_last=number == last)
            offset += self._length(number)

    def _length(self, number: int) -> Fraction:
        if number not in self._lengths:
            self._lengths[number] = self._films[number].measured_length()
        return self._lengths[number]


def _add(report: Report, own: Report, offset: Fraction, is_last: bool) -> None:
    """Count what one film met."""
    report.damaged_packets += own.damaged_packets
    report.jumps += own.jumps
    report.untimed |= own.untimed
    early = own.ended_early
    if early is not None and not is_last:
        report.cut_short += 1
    elif early is not None:
        stated_s = None if early.stated_s is None else early.stated_s + float(offset)
        report.ended_early = EarlyEnd(early.end_s + float(offset), stated_s)


def _natural(path: Path) -> list[tuple[bool, int, str]]:
    """What paths are sorted by: numbers in them by their value."""
    parts = re.split(r"(\d+)", str(path))
    return [(True, int(part), "") if part.isdecimal() else (False, 0, part.casefold()) for part in parts if part]
