"""Moving a run that is saved: on and back in its film, to an empty memory, to another session. Its film stands still."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from hermes.errors import UsageError
from hermes.events import ChunkEncoded
from hermes.sessions import Checkpoint, Session, SessionStore, rewind
from hermes.sessions.store import checked_name
from hermes.sources.opening import printable
from hermes_cli.course import CutFilm, seek_record, skips
from hermes_cli.kept import kept_settings, read_settings
from hermes_cli.recall import BRING_BACK
from hermes_cli.serving import RECORD, Host, is_recorded

if TYPE_CHECKING:
    from hermes.engine import EngineState, StreamEngine

AT_INSTEAD = "/at TIME QUESTION asks about a moment that was played"
"""What to do where there is no way back."""

_SAME = ("policy", "memory", "prompt_style", "dtype", "quant", "max_pixels")  # settings that a memory depends on
_CONTINUE = "hermes watch -c --session ID goes on with any session"


def save(host: Host, name: str | None) -> float | None:
    """Save the memory as it is and name the session; returns the time of the newest memory that is saved, if one is.

    Raises:
        UsageError: that cannot be a name.
    """
    if name is not None:
        host.session.info = replace(host.session.info, name=checked_name(name))
        host.write_info()
    host.save_memory()
    newest = host.session.newest_checkpoint(math.inf)
    return None if newest is None else newest.time_s


def skip(host: Host, until_s: float) -> None:
    """Let the film go on at a later moment: what lies between is not seen."""
    host.save_memory()  # the last one before that
    _give_up_later(host)
    host.log(seek_record(host.player.engine, until_s))


def check_way_back(host: Host) -> None:
    """Raise `UsageError` where there is none, since frames are recorded or the source has changed."""
    session = host.session
    if is_recorded(session):
        raise UsageError("with --record the video goes only forwards", AT_INSTEAD)
    if change := session.info.source.change():
        raise UsageError(f"{session.info.source.name}: {change}", BRING_BACK)


def go_back(host: Host, at_s: float) -> ChunkEncoded | None:
    """Return to the memory of an earlier moment; those of later ones are given up. Returns the last chunk before it.

    There is a way back: see `check_way_back`.

    Raises:
        SourceError: the saved memory is damaged, or the source cannot be read.
    """
    session, player, engine = host.session, host.watched.player, host.player.engine
    host.save_memory()
    in_gap = any(at_s in gap for gap in host.skips)
    try:
        with player.turn():
            engine.restore(empty_memory(engine))
            past = rewind(engine, session, at_s)
        player.past.clear()
        player.past.extend(past)
        chunk = player.catch_up(at_s)
    finally:  # however far it came, that is where it is now
        _give_up_later(host)
        host.log(seek_record(engine, at_s if in_gap or engine.now_s is None else engine.now_s))
    return chunk


def _give_up_later(host: Host) -> None:
    """Memories and questions of a run that had come further than its memory has now are of another course.

    This comes before the record that says so: a session without them whose log does not know yet has only less to go on.
    """
    engine, past = host.player.engine, host.watched.player.past
    while past and past[-1].frames > engine.frames_seen:
        past.pop()
    for checkpoint in host.session.checkpoints:
        if checkpoint.frames > engine.frames_seen:
            checkpoint.path.unlink(missing_ok=True)


def begin_anew(host: Host, start_s: float) -> None:
    """End the session and begin another one with an empty memory, at a moment of the film.

    Raises:
        UsageError: frames of a live source are recorded.
        OSError: the new session cannot be written; the old one goes on.
    """
    film, info = host.watched.player.film, host.session.info
    is_live = film.source.info.is_live
    if is_live and is_recorded(host.session):
        raise UsageError("a recording of a live source cannot begin anew", "end it, and start hermes watch again")
    fresh = CutFilm.of(film if is_live else replace(film, start_s=start_s), ())
    told = kept_settings(replace(host.player, film=fresh), host.settings) | {RECORD: host.saving.record}
    writer = SessionStore().create(info.source, info.model, info.revision, told, None, host.saving.session_size)
    host.follow_with(writer, replace(host.watched.player, film=fresh), empty_memory(host.player.engine))


def load(host: Host, found: Session) -> float:
    """End the session and go on with another one, from its newest memory; returns the moment of that.

    Raises:
        UsageError: it is not of this source, this model or these settings; its source has changed; nothing of it is saved;
            another process writes it.
        SourceError: it is damaged.
    """
    checkpoint = _check_loadable(host, found)
    told, film, state = read_settings(found), host.watched.player.film, found.load(checkpoint)
    if state.owner != empty_memory(host.player.engine).owner:
        raise UsageError(f"session {found.info.id} was made with another prompt", _CONTINUE)
    writer = SessionStore().reopen(found, host.saving.session_size)
    film = CutFilm(film.source, told.fps, told.start_s, told.end_s, film.pacing, skips(found.log()))
    host.follow_with(writer, replace(host.watched.player, film=film), state)
    return checkpoint.time_s


def _check_loadable(host: Host, found: Session) -> Checkpoint:
    own, info = host.session.info, found.info
    if info.id == own.id:
        raise UsageError("that is the session that is being watched", "/seek TIME goes back in it")
    if not info.source.same_as(own.source):
        raise UsageError(f"session {info.id} is of {printable(info.source.name)}", _CONTINUE)
    if change := info.source.change():
        raise UsageError(f"{info.source.name}: {change}", BRING_BACK)
    if (info.model, info.revision) != (own.model, own.revision):
        raise UsageError(f"session {info.id} was made with the model {info.model}", _CONTINUE)
    if differs := _difference(info.settings, own.settings):
        raise UsageError(f"session {info.id} was made with another {differs.replace('_', ' ')}", _CONTINUE)
    if is_recorded(found):
        raise UsageError(f"session {info.id} was recorded", _CONTINUE)
    checkpoint = found.newest_checkpoint(math.inf)
    if checkpoint is None:
        raise UsageError(f"no memory of session {info.id} was saved", "/reset begins with an empty one")
    return checkpoint


def _difference(these: Mapping[str, Any], those: Mapping[str, Any]) -> str | None:
    """The first of the settings that a memory depends on which is another one here than there."""
    flat = [{**{name: settings.get(name) for name in _SAME}, **settings["memory"]} for settings in (these, those)]
    names = (name for name in dict.fromkeys(chain(*flat)) if name != "memory")
    return next((name for name in names if flat[0].get(name) != flat[1].get(name)), None)


def empty_memory(engine: StreamEngine) -> EngineState:
    """The memory before the first frame."""
    from hermes.engine import StreamEngine  # noqa: PLC0415 - loads torch

    return StreamEngine(engine.model, engine.config, engine.policy, engine.prompt_style).snapshot()
