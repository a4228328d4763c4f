"""What a session keeps of a run's settings, and the player that they make again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

import typer

from hermes.errors import ModelError, UsageError
from hermes.sessions import Recording, Session, SessionStore, SourceIdentity, find_recording, rewind
from hermes.sources import open_files, open_source
from hermes.sources.base import Picture, Report, Source, SourceInfo
from hermes.sources.opening import printable
from hermes.timecode import format_time
from hermes_cli.course import CutFilm, check_seen, skips
from hermes_cli.film import Film, Pacing
from hermes_cli.kept import read_settings
from hermes_cli.knobs import given, written
from hermes_cli.loading import load_player
from hermes_cli.options import ConnectingOptions, MemoryOptions, ModelOptions, PlayingOptions, Settings
from hermes_cli.player import HALF_MILLISECOND_S, Player
from hermes_cli.questions import TimedQuestion
from hermes_cli.screen import Screen
from hermes_cli.transport import Transport

BRING_BACK = "bring it back, or name the file where it is now"
"""What to do about a source that is gone or has changed."""

OR_NEAREST = "bring it back, give --source FILE where it is now, or use --nearest to ask the memory saved last before that"
"""The same for `hermes ask`."""

_HERE = ("device", "cache_dir", "offline", *(field.name for field in fields(ConnectingOptions)))
"""Options that belong to the machine of the moment and how it reaches a source, and not to the session."""

_PACE = ("realtime", "speed", "buffer")
"""Options of a run that plays on."""


def find_session(written: str | None, source: str | None = None) -> Session:
    """The session of that id or name, or the newest one, of a source where one is given. It is played from that source.

    Raises:
        UsageError: there is none, or it is not of that source.
        SourceError: it cannot be read.
    """
    store, named = SessionStore(), SourceIdentity.of(source) if source else None
    session = store.find(written) if written else store.latest(named)
    if named is not None:
        there = session.info.source
        if not there.same_as(named):
            raise UsageError(
                f"session {session.info.id} is of {printable(there.name)} and not of {printable(named.name)}",
                "leave out one of the two",
            )
        session.info = replace(session.info, source=there.now_at(named))
    return session


def replayed_film(session: Session, hint: str = BRING_BACK, playing: PlayingOptions | None = None) -> CutFilm:
    """What a session has seen: its recording, else its source. Without both there is nothing to play: see `reaches`.

    Args:
        hint: what to do about a source that is gone or has changed.
        playing: how the source is reached now.

    Raises:
        SourceError: the source cannot be opened, or the session is damaged.
        UsageError: the source is gone or has changed, or its address had a password, which is not kept.
    """
    recording = _recording(session)
    if recording is not None:
        return _cut(session, Film(recording, read_settings(session).fps, 0.0, math.inf))
    return recalled_film(session, hint, playing) if session.info.source.path else lost_film(session)


def reaches(session: Session, film: Film, at_s: float) -> bool:
    """Whether a film has all frames between the memory of a session that was saved last before a moment and that moment."""
    checkpoint = session.newest_checkpoint(at_s)
    match film.source:
        case LostSource():
            return False
        case Recording() as recording:
            end_s = recording.info.duration_s
            ended_early = end_s is not None and end_s < at_s < math.inf  # the disk was full
            return recording.first <= (checkpoint.frames if checkpoint else 0) and not ended_early
    return True


def _cut(session: Session, film: Film) -> CutFilm:
    """What a session has skipped is no part of its film."""
    return CutFilm.of(film, skips(session.log()))


def _recording(session: Session) -> Recording | None:
    return find_recording(session.folder, session.info.source.name)


def recalled_film(
    session: Session, hint: str = BRING_BACK, playing: PlayingOptions | None = None, written: str | None = None
) -> CutFilm:
    """The source of a session, played as it was then, from any moment on.

    Args:
        playing: how the source is reached now, and how fast it is to go.
        written: the source as the user names it now; of an address, only that has the password.

    Other arguments and errors as `replayed_film`.
    """
    source, kept = session.info.source, read_settings(session)
    if change := source.change():
        raise UsageError(f"{printable(source.name)}: {change}", hint)
    pacing, connecting = (playing.pacing(), playing.reaching.connecting()) if playing else (Pacing(), None)
    if source.files is not None:
        opened = open_files([Path(file.path) for file in source.files], printable(source.name))
    else:
        opened = open_source(source.path or written or source.name, connecting)
    try:
        pacing.check(opened.info)
    except UsageError:
        opened.stop()
        raise
    return _cut(session, Film(opened, kept.fps, kept.start_s, kept.end_s, pacing))


class LostSource(Source):
    """A source that is gone, or never could be played twice: it has a name, perhaps a length, and no pictures."""

    def __init__(self, name: str, duration_s: float | None) -> None:
        super().__init__()
        self.info = SourceInfo(name, 0, 0, duration_s, None, "")

    def pictures(self, begin: Fraction, report: Report) -> Generator[Picture, None, None]:
        yield from ()

    def frame_at(self, time_s: float, *, max_side: int | None = None) -> NoReturn:
        """Only ever asked for past its stated end; raises `UsageError`."""
        raise UsageError(f"{self.info.name} ends at {format_time(self.info.duration_s or 0.0)}", "give a time before that")


def lost_film(session: Session) -> CutFilm:
    """What is left of a session's source when it is done without; raises `SourceError` where the session is damaged."""
    kept = read_settings(session)
    lost = LostSource(session.info.source.name, kept.duration_s)
    return _cut(session, Film(lost, kept.fps, kept.start_s, kept.end_s))


def recalled_player(session: Session, film: Film, settings: Settings, screen: Screen) -> Player:
    """The player of a session with an empty memory, on this machine; raises as `load_player`.

    Args:
        settings: of the command that asks; where the model runs is taken from there, and how answers are decoded if given.
    """
    info, kept = session.info, read_settings(session)
    model = replace(settings.model, model=info.model, **kept.model)
    memory = MemoryOptions(settings.memory.method, kept.policy)
    sampling = replace(kept.sampling, **given(settings.answering))
    player = load_player(film, kept.memory, sampling, replace(settings, model=model, memory=memory), screen)
    if info.revision != player.engine.model.revision:
        raise ModelError(
            f"session {info.id} was made with another revision of {info.model}: {info.revision}",
            f"fetch that one: hf download {info.model} --revision {info.revision}",
        )
    return player


def continued_player(session: Session, film: Film, settings: Settings, screen: Screen) -> Player:
    """The player of a session, ready to go on where its recording ends, or else where its memory was saved last.

    Raises:
        SourceError: the saved memory is damaged.
        ModelError: the model cannot be fetched or loaded.
    """
    player = rewound(session, recalled_player(session, film, settings, screen), math.inf, screen)
    recorded = replayed_film(session) if _recording(session) else None
    if recorded and reaches(session, recorded, math.inf):  # read from the source, those frames would be others
        deque(replace(player, film=recorded, transport=Transport()).play([]), maxlen=0)
    return player


def check_to_come(session: Session, questions: Iterable[TimedQuestion]) -> None:
    """Raise `UsageError` for a question about a moment that a session has skipped, or passed where it goes on."""
    checkpoint, recording = session.newest_checkpoint(math.inf), _recording(session)
    passed_s = -math.inf if checkpoint is None else checkpoint.time_s
    if recording is not None and recording.first <= (checkpoint.frames if checkpoint else 0):
        passed_s = max(passed_s, recording.frame_at(math.inf).time_s)
    skipped = skips(session.log())
    for question in questions:
        check_seen(skipped, question.time_s)
        if question.time_s < passed_s - HALF_MILLISECOND_S:
            time = format_time(question.time_s).removesuffix(".000").removeprefix("00:")
            raise UsageError(
                f"{time} was played before: session {session.info.id} goes on at {format_time(passed_s)}",
                f'ask about it with hermes ask --session {session.info.id} --at {time} "{question.text}"',
            )


def rewound(session: Session, player: Player, at_s: float, screen: Screen) -> Player:
    """The player with the newest saved memory at or before a moment; what is lost of the log or new in a folder is told."""
    for notice in (session.log().notice, session.info.source.addition()):
        if notice:
            screen.warn(f"session {session.info.id}: {notice}")
    return replace(player, past=rewind(player.engine, session, at_s))


def check_no_settings(context: typer.Context, plays_on: bool = False) -> None:
    """Raise `UsageError` for an option on the command line that a session has decided already.

    Args:
        plays_on: whether its video is played on, which may be at any pace.
    """
    free = (*_HERE, *_PACE) if plays_on else _HERE
    decided = [*written(context, PlayingOptions), *written(context, ModelOptions), *written(context, MemoryOptions)]
    if refused := [name for name in decided if name not in free]:
        raise UsageError(
            f"a session keeps its own settings: --{refused[0].replace('_', '-')} cannot be changed",
            "leave it out, or give the video itself to play it with other settings",
        )
