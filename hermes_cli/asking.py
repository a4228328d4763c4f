"""Asking a session: whoever is watching it, or what was saved of it."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from typing import Any

from hermes.errors import UsageError
from hermes.events import Answer, AnswerDelta, Moment
from hermes.live import NotLiveError, ask_live
from hermes.sessions import Session, SessionStore
from hermes.timecode import format_time
from hermes_cli import records
from hermes_cli.answers import make_answers
from hermes_cli.film import Film
from hermes_cli.knobs import given
from hermes_cli.options import Settings
from hermes_cli.player import Asking, Event, Player, Warned
from hermes_cli.questions import TimedQuestion
from hermes_cli.recall import OR_NEAREST, lost_film, reaches, recalled_player, replayed_film, rewound
from hermes_cli.screen import Screen
from hermes_cli.tally import Tally
from hermes_cli.terminal import json_line, write_out
from hermes_cli.viewing import viewing


def ask_running(session: Session, question: str, at: str | None, nearest: bool, settings: Settings) -> bool:
    """Ask whoever is watching a session; returns False when nobody is. Raises what the other side reports."""
    request = {"question": question, "at": at, "nearest": nearest, "sampling": given(settings.answering)}
    screen, answers, tally = Screen(settings.output), make_answers(settings.output), Tally()
    as_json = settings.output.json or settings.output.json_lines
    try:
        with closing(ask_live(session.folder, request)) as reply:
            for record in reply:
                if as_json and record["type"] == "answer":
                    write_out(json_line(record["record"]))
                elif event := _event(record):
                    screen.show(event, tally)
                    if not as_json:
                        answers.show(event)
    except NotLiveError:
        return False
    except KeyboardInterrupt:
        answers.interrupt()
        raise
    return True


def ask_saved(session: Session, question: str, at: str | None, nearest: bool, settings: Settings) -> None:
    """Answer as the session would have at a moment, by default the last one it came to; the answer joins its log.

    Where the frames before that moment cannot be had again, the newest memory saved before it answers.

    Args:
        nearest: ask that memory in any case, and do without the source.

    Raises:
        UsageError: the time cannot be read, lies past the end, was skipped or has no saved memory before it; the source is
            gone or has changed.
        SourceError: the source cannot be opened, or the session is damaged.
    """
    film = lost_film(session) if nearest else replayed_film(session, OR_NEAREST, settings.playing)
    moment_s = film.moment(at) if at is not None else session.last_s
    if moment_s is None:
        raise UsageError(f"session {session.info.id} has seen nothing yet", "give a time: --at 00:20")
    film.check_seen(moment_s)
    nearest = nearest or not reaches(session, film, moment_s)
    if nearest and session.newest_checkpoint(moment_s) is None:
        raise UsageError(f"no memory of session {session.info.id} was saved before that moment", "give a later --at")
    with viewing(partial(_rewound_player, session, film, moment_s, settings), settings.output) as asked:
        asked.saved = partial(_log, session, [])
        if nearest:
            asked.screen.note(f"asking the memory that was saved at {format_time(asked.player.engine.now_s or 0.0)}")
            asked.ask(question)
        else:
            asked.play([TimedQuestion(moment_s, question)], to_the_end=False)
        asked.finish()


def _rewound_player(session: Session, film: Film, moment_s: float, settings: Settings, screen: Screen) -> Player:
    return rewound(session, recalled_player(session, film, settings, screen), moment_s, screen)


def _log(session: Session, asked: list[Asking], event: Event) -> None:
    """Add an answer to a session's log, unless another process is writing it."""
    match event:
        case Asking():
            asked.append(event)
        case Answer():
            with suppress(OSError, UsageError), SessionStore().reopen(session) as writer:
                writer.append(records.logged_answer(asked[-1], event, remembered=False))


def _event(record: dict[str, Any]) -> Event | None:
    """The event that a record of a running watch tells of."""
    kind, told = record["type"], {key: value for key, value in record.items() if key != "type"}
    match kind:
        case "asking":
            return Asking(**told)
        case "delta":
            return AnswerDelta(**told)
        case "warning":
            return Warned(**told)
        case "answer":
            answered = told["answered"]
            return Answer(**{**answered, "evidence": tuple(Moment(**moment) for moment in answered["evidence"])})
    return None
