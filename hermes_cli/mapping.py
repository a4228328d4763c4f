"""The memory map of a session or of what is being played, with what is written around it."""

from __future__ import annotations

from typing import Any

from hermes.config import MemoryConfig
from hermes.errors import SourceError, UsageError
from hermes.events import Answer, Moment
from hermes.sessions import Checkpoint, Session
from hermes.sources.opening import printable
from hermes.timecode import format_time, parse, resolve
from hermes_cli.drawing.sheet import Answered, Sheet
from hermes_cli.player import Player


def sheet_of_session(session: Session, at: str | None) -> Sheet:
    """The newest memory that a session saved at or before a moment, the last one by default.

    Needs neither the session's model nor its source: `hermes.memory_map` reads everything off the saved memory, and the
    session's settings say policy, budget and roles.

    Raises:
        UsageError: the time cannot be read, or no memory was saved by then.
        SourceError: the session or the saved memory is damaged.
    """
    from hermes.memory_map import map_of_state  # noqa: PLC0415 - loads torch

    info, kept = session.info, session.info.settings
    try:
        policy, memory = str(kept["policy"]), kept["memory"]
        config = MemoryConfig(memory["budget"], shallow_share=memory["shallow_share"], deep_share=memory["deep_share"])
    except (KeyError, TypeError) as error:
        raise SourceError(f"session {info.id} is damaged: it lacks its settings", "choose another --session") from error
    checkpoint, answered = _newest(session, at)
    memory_map = map_of_state(session.load(checkpoint), config)
    saved = f"{checkpoint.frames} frames, saved at {format_time(checkpoint.time_s)}"
    name = f"{info.id} ({printable(info.name)})" if info.name else info.id
    heading = f"session {name} of {printable(info.source.name)}"
    return Sheet(memory_map, heading, f"{_method(policy, config)}; {saved}", answered)


def sheet_of_player(player: Player, answer: Answer | None = None) -> Sheet:
    """The memory of a player as it stands, with the evidence of an answer.

    Raises:
        UsageError: there is nothing in the memory yet.
    """
    from hermes.memory_map import map_of_engine  # noqa: PLC0415 - loads torch

    with player.turn():
        memory_map = map_of_engine(player.engine)
    heading = f"memory of {printable(player.film.source.info.name)}"
    now = f"{len(memory_map.frame_times_s)} frames, up to {format_time(float(memory_map.frame_times_s[-1]))}"
    answered = Answered(answer.question, answer.at_s or 0.0, answer.evidence) if answer and answer.evidence else None
    return Sheet(memory_map, heading, f"{_method(player.policy, player.engine.config)}; {now}", answered)


def _method(policy: str, config: MemoryConfig) -> str:
    from hermes.policies import make_policy  # noqa: PLC0415 - loads torch

    return f"{policy}, budget {config.budget}" if make_policy(policy, config).bounded else f"{policy}, no budget"


def _newest(session: Session, at: str | None) -> tuple[Checkpoint, Answered | None]:
    """The checkpoint of a moment, and the last answer that was given about it or what came before."""
    there = session.checkpoints
    if not there:
        hint = "hermes watch saves one with the first full chunk"
        raise UsageError(f"no memory of session {session.info.id} has been saved", hint)
    last_s, fps = there[-1].time_s, session.info.settings.get("fps")
    at_s = resolve(parse(at or "end"), duration_s=last_s, fps=fps, name=f"session {session.info.id}")
    checkpoint = session.newest_checkpoint(at_s)
    if checkpoint is None:
        first = format_time(there[0].time_s)
        raise UsageError(f"no memory of session {session.info.id} was saved by {at}", f"the first was saved at {first}")
    return checkpoint, _last_answer(session, at_s)


def _last_answer(session: Session, at_s: float) -> Answered | None:
    log = session.log()
    about = [record for record in log.answers if record["at"] <= at_s and not record.get("left")]
    record = next((record for record in reversed(log.records) if record in about), None)
    evidence = tuple(Moment(**_as_moment(entry)) for entry in record.get("evidence") or ()) if record else ()
    return Answered(record["question"], float(record["at"]), evidence) if record and evidence else None


def _as_moment(entry: dict[str, Any]) -> dict[str, float]:
    return {"start_s": float(entry["start"]), "end_s": float(entry["end"]), "share": float(entry["share"])}
