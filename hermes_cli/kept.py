"""The settings of a run as its session keeps them, and reading them back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar, get_args

from hermes.config import MemoryConfig, Sampling
from hermes.errors import SourceError, UsageError
from hermes.sessions import Session
from hermes_cli.options import DtypeName, PolicyName, PromptStyleName, QuantName, Settings
from hermes_cli.player import Player

_T = TypeVar("_T", MemoryConfig, Sampling)

_MODEL = {"prompt_style": PromptStyleName, "dtype": DtypeName, "quant": QuantName}


def kept_settings(player: Player, settings: Settings) -> dict[str, Any]:
    """Every knob that an answer depends on, as JSON."""
    film = player.film
    return {
        "fps": film.fps,
        "start": film.start_s,
        "end": None if math.isinf(film.end_s) else film.end_s,
        "duration": film.source.info.duration_s,
        "policy": player.policy,
        "memory": asdict(player.engine.config),
        "sampling": asdict(player.sampling),
        "prompt_style": settings.model.prompt_style,
        "dtype": settings.model.dtype,
        "quant": settings.model.quant,
        "max_pixels": settings.model.max_pixels,
        "device": player.engine.model.device.type,
    }


@dataclass(frozen=True)
class Kept:
    """The settings of a session.

    Attributes:
        fps, start_s, end_s: as `Film` has them.
        duration_s: stated length of the source; None where it had none.
        model: options of the model, other than its name and where it runs.
    """

    fps: float
    start_s: float
    end_s: float
    duration_s: float | None
    policy: PolicyName
    memory: MemoryConfig
    sampling: Sampling
    model: dict[str, Any]


def read_settings(session: Session) -> Kept:
    """The settings of a session; raises `SourceError` where they are damaged."""
    try:
        return _kept(session.info.settings)
    except (AttributeError, KeyError, TypeError, ValueError, UsageError) as error:
        raise SourceError(
            f"session {session.info.id} is damaged: its settings are not those of a run",
            f"nothing was changed; what is left of it is in {session.folder}",
        ) from error


def _kept(told: dict[str, Any]) -> Kept:
    end_s, duration_s = told["end"], told.get("duration")
    times_s = [told["start"], *(time_s for time_s in (end_s, duration_s) if time_s is not None)]
    _require(_alike(time_s, 0.0) and time_s >= 0 for time_s in times_s)
    _require([_alike(told["fps"], 1.0) and told["fps"] > 0, told["policy"] in get_args(PolicyName)])
    _require(told[name] in get_args(names) for name, names in _MODEL.items())
    _require([told["max_pixels"] is None or _alike(told["max_pixels"], 1)])
    return Kept(
        told["fps"],
        told["start"],
        math.inf if end_s is None else end_s,
        duration_s,
        told["policy"],
        _restored(MemoryConfig(), told["memory"]),
        _restored(Sampling(), told["sampling"]),
        {name: told[name] for name in (*_MODEL, "max_pixels")},
    )


def _restored(default: _T, told: dict[str, Any]) -> _T:
    values: dict[str, Any] = {  # JSON has no tuples
        name: tuple(value) if isinstance(value, list) else value for name, value in told.items()
    }
    _require(_alike(values[field.name], getattr(default, field.name)) for field in fields(default))
    return type(default)(**values)


def _alike(value: object, model: object) -> bool:
    """Whether a value is of the kind of another; whole numbers are numbers too."""
    if isinstance(model, tuple):
        return isinstance(value, tuple) and len(value) == len(model) and all(map(_alike, value, model))
    kinds = (int, float) if isinstance(model, float) else (type(model),)
    return type(value) in kinds


def _require(conditions: Iterable[bool]) -> None:
    if not all(conditions):
        raise ValueError
