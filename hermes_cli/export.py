"""The questions and answers of a session as a file for other programs: text, subtitles, a table, JSON, Markdown."""

from __future__ import annotations

import html
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hermes.timecode import format_time
from hermes_cli.terminal import clean

if TYPE_CHECKING:
    from hermes.sessions import SessionInfo

_SHOWN_MS = 5000
_LEFT = "(left again: the video was moved back to before this)"
_ARROW = re.compile("-{2,}>")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>&#|~])|^(?=[-+=]|[0-9]+[.)])", re.MULTILINE)


@dataclass(frozen=True)
class Cue:
    """An answer for as long as it is shown: until the next one, five seconds at most."""

    start_ms: int
    end_ms: int
    question: str
    answer: str

    @property
    def start(self) -> str:
        """`HH:MM:SS.mmm`."""
        return format_time(self.start_ms / 1000)

    @property
    def end(self) -> str:
        """`HH:MM:SS.mmm`."""
        return format_time(self.end_ms / 1000)

    @property
    def lines(self) -> str:
        """Question and answer without an empty line, which would end a subtitle, and never nothing."""
        return "\n".join(line for line in f"{self.question}\n{self.answer}".split("\n") if line.strip()) or "-"


def without_arrows(text: str) -> str:
    """A text for SubRip, which has no escapes: an arrow in it would be taken for a time line."""
    return _ARROW.sub("->", text)


def cues(answers: Sequence[dict[str, Any]]) -> list[Cue]:
    """The answers of a log in order of time. Those of one moment are shown together, so that none has no length.

    One of a stretch that was left again by going back says so on a line of its own.
    """
    starts = [max(0, round(record["at"] * 1000)) for record in answers]
    return [
        Cue(
            start,
            min([start + _SHOWN_MS, *starts[bisect_right(starts, start) :][:1]]),
            clean(record["question"]).strip(),
            clean(record["answer"]).strip() + (f"\n{_LEFT}" if record.get("left") else ""),
        )
        for start, record in zip(starts, answers, strict=True)
    ]


def _txt(info: SessionInfo, answers: Sequence[dict[str, Any]]) -> Iterator[str]:
    for cue in cues(answers):
        yield f"[{cue.start}] {cue.question}\n{cue.answer}\n\n"


def _srt(info: SessionInfo, answers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """SubRip."""
    for number, cue in enumerate(cues(answers), 1):
        times = f"{cue.start} --> {cue.end}".replace(".", ",")
        yield f"{number}\n{times}\n{without_arrows(cue.lines)}\n\n"


def _vtt(info: SessionInfo, answers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """WebVTT (https://www.w3.org/TR/webvtt1): texts are escaped as in HTML."""
    yield "WEBVTT\n\n"
    for cue in cues(answers):
        yield f"{cue.start} --> {cue.end}\n{html.escape(cue.lines, quote=False)}\n\n"


def _tsv(info: SessionInfo, answers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Times in whole milliseconds, one line an answer."""
    yield "start\tend\tquestion\tanswer\n"
    for cue in cues(answers):
        yield f"{cue.start_ms}\t{cue.end_ms}\t{' '.join(cue.question.split())}\t{' '.join(cue.answer.split())}\n"


def _json(info: SessionInfo, answers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The records of the log as they are."""
    yield json.dumps({"type": "session", **asdict(info), "answers": list(answers)}, indent=2, allow_nan=False) + "\n"


def _md(info: SessionInfo, answers: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield f"# {_escaped(info.name or info.source.name)}\n\n"
    yield f"Session {info.id} of {_escaped(info.source.name)}, answered by {_escaped(info.model)}\n"
    for cue in cues(answers):
        yield f"\n## {cue.start}\n\n{_escaped(cue.question, '> ')}\n\n{_escaped(cue.answer)}\n"


def _escaped(text: str, margin: str = "") -> str:
    """The text as Markdown that shows it as it is, each line behind a margin."""
    lines = (_MARKDOWN.sub(r"\\\1", line.strip()) for line in clean(text).split("\n"))
    return "\n".join(f"{margin}{line}".rstrip() for line in lines)


_WRITERS: dict[str, Callable[[SessionInfo, Sequence[dict[str, Any]]], Iterator[str]]] = {
    "txt": _txt,
    "srt": _srt,
    "vtt": _vtt,
    "tsv": _tsv,
    "json": _json,
    "md": _md,
}

FORMATS = tuple(_WRITERS)


def exported(kind: str, info: SessionInfo, answers: Sequence[dict[str, Any]]) -> str:
    """The answers of a session, in order of time, in one of `FORMATS`."""
    return "".join(_WRITERS[kind](info, answers))
