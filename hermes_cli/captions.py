"""Captions: their forms, a file of them, and how far a run that was interrupted came with one."""

from __future__ import annotations

import html
import math
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from hermes.errors import UsageError
from hermes.events import Answer
from hermes.sessions import Session, SessionStore, SourceIdentity
from hermes.sources.opening import printable
from hermes.timecode import format_time
from hermes_cli.answers import Answers
from hermes_cli.export import without_arrows
from hermes_cli.player import Asking
from hermes_cli.records import Record
from hermes_cli.terminal import json_line
from hermes_cli.writing import expanded

_PLAN, _CAPTION = "captions", "caption"  # types of records in the log of a session


@dataclass(frozen=True)
class Caption:
    """What a file says of a time.

    Attributes:
        number: from 1.
        start_s, end_s: the time.
        text: on one line.
    """

    number: int
    start_s: float
    end_s: float
    text: str


def _srt(caption: Caption) -> str:
    times = _times(caption).replace(".", ",")
    return f"{caption.number}\n{times}\n{without_arrows(caption.text)}\n\n"


def _vtt(caption: Caption) -> str:
    return f"{_times(caption)}\n{html.escape(caption.text, quote=False)}\n\n"


def _jsonl(caption: Caption) -> str:
    return json_line({"type": "caption", "start": caption.start_s, "end": caption.end_s, "text": caption.text})


def _txt(caption: Caption) -> str:
    return f"[{format_time(caption.start_s)}] {caption.text}\n"


def _times(caption: Caption) -> str:
    return f"{format_time(caption.start_s)} --> {format_time(caption.end_s)}"


WRITERS: dict[str, Callable[[Caption], str]] = {".srt": _srt, ".vtt": _vtt, ".jsonl": _jsonl, ".txt": _txt}
"""Suffix of a file to how it holds a caption."""

_HEADERS = {".vtt": "WEBVTT\n\n"}


@dataclass(frozen=True)
class Plan:
    """What a run was to write.

    Attributes:
        file: absolute path.
        every_s: how often.
        question: what is asked each time.
        until_change: whether what is said again is left out.
    """

    file: str
    every_s: float
    question: str
    until_change: bool

    @classmethod
    def of(cls, file: Path, every_s: float, question: str, until_change: bool) -> Plan:
        """That of a file as the user names it."""
        return cls(_absolute(file), every_s, question, until_change)

    @property
    def kind(self) -> str:
        """Suffix of the file, a key of `WRITERS`."""
        return Path(self.file).suffix.lower()

    def record(self) -> Record:
        """The first record of such a run in the log of its session."""
        return {"type": _PLAN, **asdict(self)}

    def written(self, captions: Iterable[Caption]) -> bytes:
        """A file with these captions."""
        text = _HEADERS.get(self.kind, "") + "".join(map(WRITERS[self.kind], captions))
        return text.encode("utf-8", "backslashreplace")


class Captions(Answers):
    """Writes each answer as a caption, when it is whole, and flushes, so that nothing is lost and others can read along.

    A caption stands in the log of the session before it stands in the file, so that one which is cut short can be told.

    Args:
        file: where to, at its end.
        plan: what is written.
        start_s: where the first caption begins.
        log: takes records of the session's log.
        before: those that stand in the file.
    """

    def __init__(
        self, file: TextIO, plan: Plan, start_s: float, log: Callable[[Record], None], before: Sequence[Caption] = ()
    ) -> None:
        super().__init__()
        self._file, self._plan, self._log = file, plan, log
        self._last = before[-1] if before else Caption(0, start_s, start_s, "")
        if not before:
            self._put(_HEADERS.get(plan.kind, ""))

    def whole(self, asking: Asking, answered: Answer | None) -> None:
        last, text = self._last, " ".join(self.text.split()) or "-"
        said_again = self._plan.until_change and not asking.remember and last.number > 0 and text == last.text
        if answered is None or asking.at_s <= last.end_s or said_again:  # what was interrupted is no caption
            return
        self._last = Caption(last.number + 1, last.end_s, asking.at_s, text)
        self._log({"type": _CAPTION, **asdict(self._last)})
        self._put(WRITERS[self._plan.kind](self._last))

    def _put(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


@dataclass(frozen=True)
class Interrupted:
    """A run that wrote captions, to go on with.

    Attributes:
        session: of it.
        plan: what it was to write.
        captions: those that are whole in its file.
    """

    session: Session
    plan: Plan
    captions: tuple[Caption, ...]

    @property
    def end_s(self) -> float:
        """Where they end; minus infinity where there are none."""
        return self.captions[-1].end_s if self.captions else -math.inf

    @property
    def nbytes(self) -> int:
        """How much of the file they are."""
        return len(self.plan.written(self.captions)) if self.captions else 0


def interrupted(source: str, file: Path) -> Interrupted:
    """The newest run that wrote captions of a source into a file, and how far it came.

    Raises:
        UsageError: there is none, the source is a named pipe, the file is gone, or it is not as that run left it.
    """
    named, absolute = SourceIdentity.of(source), _absolute(file)
    for session in SessionStore().sessions():
        there = session.info.source
        plan = _plan(session) if there.same_as(named) else None
        if plan is not None and os.path.realpath(plan.file) == os.path.realpath(absolute):
            session.info = replace(session.info, source=there.now_at(named))
            return Interrupted(session, plan, _whole(session, plan, file))
    refuse_pipe(Path(source), "give the video file that the captions were begun with")
    raise UsageError(
        f"no session has captions of {printable(named.name)} in {printable(str(file))}", "leave -c out to begin with them"
    )


def refuse_pipe(path: Path, hint: str) -> None:
    """Raise `UsageError` for a named pipe: to open it is to wait for whoever is at its other end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # whoever opens it says why
        return
    if stat.S_ISFIFO(mode):
        raise UsageError(f"{printable(str(path))} is a named pipe, not a file", hint)


def _plan(session: Session) -> Plan | None:
    record = next((record for record in session.log() if record.get("type") == _PLAN), None)
    plan = None if record is None else _of(Plan, record)
    return plan if plan is not None and plan.kind in WRITERS else None


def _whole(session: Session, plan: Plan, file: Path) -> tuple[Caption, ...]:
    """The captions that are whole in the file; what may follow the last of them is the beginning of another."""
    name = printable(str(file))
    try:
        content = Path(plan.file).read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}", "leave -c out to begin anew") from error
    captions = _logged(session.log())
    if not plan.written(captions).startswith(content):
        raise UsageError(
            f"{name} is not as session {session.info.id} left it", "undo what was changed, or begin anew with --force"
        )
    while captions and len(plan.written(captions)) > len(content):
        captions.pop()
    return tuple(captions)


def _logged(log: Iterable[Mapping[str, Any]]) -> list[Caption]:
    """Captions that were begun; a run that went on has written some of them again."""
    captions = list[Caption]()
    for record in log:
        caption = _of(Caption, record) if record.get("type") == _CAPTION else None
        if caption is not None and 0 < caption.number <= len(captions) + 1:
            captions[caption.number - 1 :] = [caption]
    return captions


def _of(kind: Callable[..., Any], record: Mapping[str, Any]) -> Any:
    """What a record holds; None where it is damaged."""
    try:
        return kind(**{name: value for name, value in record.items() if name != "type"})
    except TypeError:
        return None


def _absolute(file: Path) -> str:
    return str(expanded(file).absolute())
