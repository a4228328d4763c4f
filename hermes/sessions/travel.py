"""Going back: the memory as it was at a moment, from a saved one and the frames between."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes.sessions.log import Log
from hermes.sessions.session import Session

if TYPE_CHECKING:
    from hermes.engine import StreamEngine
    from hermes.guidance import Exchange


@dataclass(frozen=True)
class Remembered:
    """A question that coloured what the memory kept from there on.

    Attributes:
        frames: sampled frames that had been taken in when it was asked.
        exchange: None where the conversation was forgotten instead.
    """

    frames: int
    exchange: Exchange | None


def rewind(engine: StreamEngine, session: Session, at_s: float) -> deque[Remembered]:
    """Put the newest saved memory at or before a moment into an engine; an empty engine stays as it is if there is none.

    Frames behind it are read again from the source. An engine that takes them, and each remembered question before the
    frame that follows it, comes to the memory that it had then, bit for bit.

    Returns: the questions that are still to be remembered, in order.

    Raises:
        SourceError: the saved memory is damaged or from a newer version.
        UsageError: it belongs to another model or prompt.
    """
    checkpoint = session.newest_checkpoint(at_s)
    if checkpoint is not None:
        engine.restore(session.load(checkpoint))
    return recollect(engine, session.log())


def recollect(engine: StreamEngine, log: Log) -> deque[Remembered]:
    """Let an engine remember the question of a log that it would remember where it is now.

    What was saved may hold another one: one that was asked while frames waited for their chunk, which are not saved, and
    that was left again by going back. A damaged log may lack the question, so that the saved one stays.

    Returns: the questions that are still to be remembered, in order.
    """
    found = remembered(log)
    before = [item for item in found if item.frames <= engine.frames_seen]
    if before or log.notice is None:
        engine.last_exchange = before[-1].exchange if before else None
    return deque(item for item in found if item.frames >= engine.frames_seen)


def remembered(log: Iterable[Mapping[str, Any]]) -> list[Remembered]:
    """The questions of a log that coloured the memory, in the order of their frames.

    A run that went on from an earlier memory has logged its questions behind those of the run before, which it repeats.
    """
    found = (_remembered(record) for record in log if not record.get("left"))
    return sorted((item for item in found if item is not None), key=lambda item: item.frames)


def _remembered(record: Mapping[str, Any]) -> Remembered | None:
    from hermes.guidance import Exchange  # noqa: PLC0415 - loads torch

    if record.get("type") == "clear":
        return Remembered(record["frames"], None)
    if record.get("type") == "answer" and record.get("remembered"):
        return Remembered(record["frames"], Exchange(record["question"], record["answer"]))
    return None
