"""Events as JSON objects with stable keys: seconds as floats, milliseconds with `_ms`, unknown as null."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from hermes import __version__
from hermes.events import Answer, ChunkEncoded, Moment
from hermes.timecode import format_time
from hermes_cli.player import Asking, Forgotten, Player
from hermes_cli.tally import Tally

Record = dict[str, Any]


def start(player: Player) -> Record:
    """What is played, by which model, into which memory."""
    film, engine = player.film, player.engine
    return {
        "type": "start",
        "hermes": __version__,
        "source": film.source.info.name,
        "duration": film.source.info.duration_s,
        "width": film.source.info.width,
        "height": film.source.info.height,
        "start": film.start_s,
        "end": None if math.isinf(film.end_s) else film.end_s,
        "fps": film.fps,
        **_model(player),
        "model_alias": player.choice.alias,
        "model_reason": player.choice.reason,
        "device": str(engine.model.device),
        "dtype": str(engine.model.dtype).removeprefix("torch."),
        "weights": str(engine.model.weights),
        "policy": player.policy,
        "memory": asdict(engine.config),
        "sampling": asdict(player.sampling),
        "created": _now(),
    }


def chunk(event: ChunkEncoded) -> Record:
    """A chunk that has become part of the memory."""
    record = asdict(event)
    return {"type": "chunk", "start": record.pop("start_s"), "end": record.pop("end_s"), **record}


def answer(player: Player, asking: Asking, text: str, answered: Answer | None, waiting: int) -> Record:
    """A question and its answer; without the `answered` event it was cancelled there.

    `evidence` is that of the text that came. `kv.tokens` are those of whole chunks; the `waiting` frames of the next chunk
    were seen too.
    """
    return {
        "type": "answer",
        "source": player.film.source.info.name,
        **_model(player),
        "at": asking.at_s,
        "at_text": format_time(asking.at_s),
        "frame_pts": asking.frame_s,
        "question": asking.question,
        "answer": text,
        "finish_reason": answered.finish_reason if answered else "cancelled",
        "evidence": _evidence(answered.evidence if answered else player.engine.evidence),
        "input_tokens": answered.question_tokens if answered else None,
        "output_tokens": answered.answer_tokens if answered else None,
        "kv": {
            "tokens": max(asking.visual_tokens),
            "waiting_frames": waiting,
            "budget": player.engine.config.budget if player.engine.policy.bounded else None,
            "layers": len(asking.visual_tokens),
            "positions": [0, asking.top_position],
        },
        "timing_ms": {
            "ttft": answered.ttft_ms if answered else None,
            "per_token": answered.tpot_ms if answered else None,
        },
        "created": _now(),
    }


def logged_answer(asking: Asking, answered: Answer, remembered: bool = True) -> Record:
    """An answer in a session's log. Question and answer stand there as the memory takes them in.

    Args:
        remembered: whether the memory that it was asked is the one that goes on.
    """
    return {
        "type": "answer",
        "at": asking.at_s,
        "at_text": format_time(asking.at_s),
        "frame_pts": asking.frame_s,
        "frames": asking.frames,
        "question": answered.question,
        "answer": answered.text,
        "finish_reason": answered.finish_reason,
        "evidence": _evidence(answered.evidence),
        "remembered": remembered and asking.remember,
        "created": _now(),
    }


def forgotten(event: Forgotten) -> Record:
    """In a session's log: from there on no earlier question has coloured the memory."""
    return {"type": "clear", "frames": event.frames, "created": _now()}


def stopped(player: Player) -> Record:
    """The end of a run in a session's log: how far it came."""
    return {"type": "stop", "at": player.engine.now_s, "frames": player.engine.frames_seen, "created": _now()}


def warning(message: str) -> Record:
    """Something the user should know."""
    return {"type": "warning", "message": message}


def end(tally: Tally) -> Record:
    """What was done in all; the last event of a run that did not fail."""
    return {"type": "end", **asdict(tally), "created": _now()}


def _model(player: Player) -> Record:
    return {"model": player.engine.model.name, "revision": player.engine.model.revision}


def _evidence(moments: Sequence[Moment]) -> list[Record]:
    return [{"start": moment.start_s, "end": moment.end_s, "share": moment.share} for moment in moments]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
