"""Going back: the memory as it was at a moment, from a saved one and the frames between."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes.sessions.session import Session

if TYPE_CHECKING:
    from hermes.engine import StreamEngine
    from hermes.guidance import Exchange


@dataclass(frozen=True)
class Remembered:
    """A question that coloured what the memory kept from there on.

    Attributes:
        frames: sampled frames that had been taken in when it was asked.
    """

    frames: int
    exchange: Exchange


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
    return deque(item for item in remembered(session.log().records) if item.frames >= engine.frames_seen)


def remembered(log: Iterable[Mapping[str, Any]]) -> list[Remembered]:
    """The questions of a log that coloured the memory, in the order of their frames.

    A run that went on from an earlier memory has logged its questions behind those of the run before, which it repeats.
    """
    from hermes.guidance import Exchange  # noqa: PLC0415 - loads torch

    answers = (record for record in log if record.get("type") == "answer" and record.get("remembered"))
    found = [Remembered(record["frames"], Exchange(record["question"], record["answer"])) for record in answers]
    return sorted(found, key=lambda question: question.frames)
