"""What a session keeps of a run's settings, and the player that they make again."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

import typer

from hermes.config import MemoryConfig, Sampling
from hermes.errors import ModelError, UsageError
from hermes.sessions import Session, SessionStore, SourceIdentity, rewind
from hermes.sources import open_source
from hermes.sources.base import Picture, Report, Source, SourceInfo
from hermes_cli.film import Film
from hermes_cli.knobs import given, written
from hermes_cli.loading import load_player
from hermes_cli.options import MemoryOptions, ModelOptions, PlayingOptions, Settings
from hermes_cli.player import Player
from hermes_cli.screen import Screen

_HERE = ("device", "cache_dir", "offline")
"""Options of a model that belong to the machine of the moment and not to the session."""


def find_session(written: str | None, source: str | None = None) -> Session:
    """The session of that id or name, or the newest one, of a source where one is given; raises as `SessionStore.find`."""
    store = SessionStore()
    if written:
        return store.find(written)
    return store.latest(SourceIdentity.of(source) if source else None)


def kept_settings(player: Player, settings: Settings) -> dict[str, Any]:
    """Every knob that an answer depends on, as JSON."""
    film = player.film
    return {
        "fps": film.fps,
        "start": film.start_s,
        "end": None if math.isinf(film.end_s) else film.end_s,
        "policy": player.policy,
        "memory": asdict(player.engine.config),
        "sampling": asdict(player.sampling),
        "prompt_style": settings.model.prompt_style,
        "dtype": settings.model.dtype,
        "quant": settings.model.quant,
        "max_pixels": settings.model.max_pixels,
        "device": player.engine.model.device.type,
    }


def recalled_film(session: Session) -> Film:
    """The source of a session, played as it was then.

    Raises:
        SourceError: it cannot be opened.
        UsageError: it is gone or has changed.
    """
    source, kept = session.info.source, session.info.settings
    if change := source.change():
        raise UsageError(
            f"{source.name} {change}",
            "bring it back, or use --nearest to ask the memory that was saved last before that moment",
        )
    end_s = math.inf if kept["end"] is None else kept["end"]
    return Film(open_source(source.path or source.name), kept["fps"], kept["start"], end_s)


class LostSource(Source):
    """A source that is gone, or never could be played twice: it has a name, and no pictures."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.info = SourceInfo(name, 0, 0, None, None, "")

    def pictures(self, begin: Fraction, report: Report) -> Generator[Picture, None, None]:
        yield from ()


def lost_film(session: Session) -> Film:
    """What is left of a session's source when it is done without."""
    return Film(LostSource(session.info.source.name), session.info.settings["fps"], 0.0, math.inf)


def recalled_player(session: Session, film: Film, settings: Settings, screen: Screen) -> Player:
    """The player of a session with an empty memory, on this machine; raises as `load_player`.

    Args:
        settings: of the command that asks; where the model runs is taken from there, and how answers are decoded if given.
    """
    info, kept = session.info, session.info.settings
    model = replace(
        settings.model,
        model=info.model,
        prompt_style=kept["prompt_style"],
        dtype=kept["dtype"],
        quant=kept["quant"],
        max_pixels=kept["max_pixels"],
    )
    memory = MemoryOptions(settings.memory.method, kept["policy"])
    memory_kept: dict[str, Any] = {  # JSON has no tuples
        name: tuple(value) if isinstance(value, list) else value for name, value in kept["memory"].items()
    }
    config = MemoryConfig(**memory_kept)
    sampling = Sampling(**{**kept["sampling"], **given(settings.answering)})
    player = load_player(film, config, sampling, replace(settings, model=model, memory=memory), screen)
    if info.revision != player.engine.model.revision:
        raise ModelError(
            f"session {info.id} was made with another revision of {info.model}: {info.revision}",
            f"fetch that one: hf download {info.model} --revision {info.revision}",
        )
    return player


def continued_player(session: Session, settings: Settings, screen: Screen) -> Player:
    """The player of a session, ready to go on where its memory was saved last.

    Raises:
        SourceError: the source cannot be opened, or the saved memory is damaged.
        UsageError: the source is gone or has changed.
        ModelError: the model cannot be fetched or loaded.
    """
    return rewound(session, recalled_player(session, recalled_film(session), settings, screen), math.inf)


def rewound(session: Session, player: Player, at_s: float) -> Player:
    """The player with the newest saved memory at or before a moment."""
    return replace(player, past=rewind(player.engine, session, at_s))


def check_no_settings(context: typer.Context) -> None:
    """Raise `UsageError` for an option on the command line that a session has decided already."""
    decided = [*written(context, PlayingOptions), *written(context, ModelOptions), *written(context, MemoryOptions)]
    if refused := [name for name in decided if name not in _HERE]:
        raise UsageError(
            f"a session keeps its own settings: --{refused[0].replace('_', '-')} cannot be changed",
            "leave it out, or give the video itself to play it with other settings",
        )
