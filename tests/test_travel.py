"""Going back to a moment: the memory and the answer are those it had then, bit for bit."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes.config import MemoryConfig, Sampling
from hermes.engine import StreamEngine
from hermes.events import Answer
from hermes.frames import Frame
from hermes.guidance import Exchange
from hermes.models import VideoModel
from hermes.policies import make_policy
from hermes.sessions import Remembered, Session, SessionStore, SourceIdentity, rewind
from hermes.sources import FrameList
from hermes_cli.choosing import Choice
from hermes_cli.film import Film
from hermes_cli.player import Player
from hermes_cli.questions import TimedQuestion
from tests.conftest import noise_frames
from tests.test_engine import assert_same_memory, memory_of

FILM = noise_frames(40)
QUESTIONS = {5: "What is this?", 17: "How many are there?", 29: "What was there before?"}  # by frames seen


def new_engine(model: VideoModel, reindex: str) -> StreamEngine:
    config = MemoryConfig.preset("paper", budget=36, chunk_frames=4, position_room=128, history_tokens=16, reindex=reindex)
    return StreamEngine(model, config, make_policy("hermes", config))


def ask_and_log(engine: StreamEngine, question: str, log: list[dict[str, Any]]) -> None:
    *_, told = engine.ask(question, remember=True)
    assert isinstance(told, Answer)
    record = {"type": "answer", "at": engine.now_s, "frames": engine.frames_seen, "remembered": True}
    log.append({**record, "question": told.question, "answer": told.text})


def said(engine: StreamEngine) -> str:
    *_, told = engine.ask("What is on screen now?", Sampling(max_new_tokens=8), remember=False)
    assert isinstance(told, Answer)
    return told.text


def watched(engine: StreamEngine, folder: Path, questions: dict[int, str], save_every: int) -> Session:
    """A session that was watched to its end."""
    with SessionStore(folder).create(SourceIdentity.of("film"), engine.model.name, None, {}) as writer:
        for frame in FILM:
            chunk = engine.push(frame)
            if chunk and chunk.first_frame // 4 % save_every == 0:
                writer.save(replace(engine.snapshot(), pending=()))
            if text := questions.get(engine.frames_seen):
                log: list[dict[str, Any]] = []
                ask_and_log(engine, text, log)
                writer.append(log[0])
        return Session(writer.folder)


def travelled(engine: StreamEngine, session: Session, film: Sequence[Frame], at_s: float) -> StreamEngine:
    """An empty engine taken to a moment of a session."""
    past = rewind(engine, session, at_s)
    newest = -1.0 if engine.now_s is None else engine.now_s
    for frame in film:
        if newest < frame.time_s <= at_s:
            while past and past[0].frames <= engine.frames_seen:
                engine.last_exchange = past.popleft().exchange
            engine.push(frame)
    return engine


@pytest.mark.parametrize("reindex", ["lazy", "eager"])
@pytest.mark.parametrize("questions", [{}, QUESTIONS], ids=["quiet", "asked before"])
def test_at_ten_moments_the_memory_and_the_answer_are_those_of_then(
    model: VideoModel, tmp_path: Path, questions: dict[int, str], reindex: str
) -> None:
    session = watched(new_engine(model, reindex), tmp_path, questions, save_every=3)
    live = new_engine(model, reindex)
    moments = [0.0, 2.0, 3.0, 7.0, 12.0, 18.5, 23.0, 30.0, 35.9, 39.0]
    for frame, following in zip(FILM, [*FILM[1:], Frame(99.0, FILM[0].rgb)], strict=True):
        live.push(frame)
        for at_s in (moment for moment in moments if frame.time_s <= moment < following.time_s):
            changed = [frame if frame.time_s <= at_s else Frame(frame.time_s, 255 - frame.rgb) for frame in FILM]
            back = travelled(new_engine(model, reindex), session, changed, at_s)  # nothing later can be seen
            assert_same_memory(memory_of(live), memory_of(back))
            assert said(live) == said(back)
        if text := questions.get(live.frames_seen):
            list(live.ask(text))


def test_questions_are_repeated_in_the_order_of_their_frames(model: VideoModel, tmp_path: Path) -> None:
    """A run that went on from an earlier memory logs its questions behind those that it repeats."""
    with SessionStore(tmp_path).create(SourceIdentity.of("film"), model.name, None, {}) as writer:
        for frames, question in ((17, "second"), (29, "third"), (5, "first"), (17, "second too")):
            record = {"type": "answer", "at": frames - 1.0, "frames": frames, "question": question, "answer": "!"}
            writer.append(record | {"remembered": True})
        writer.append({"type": "clear", "frames": 17})
        past = rewind(new_engine(model, "lazy"), writer, 0.0)
    asked = [item.exchange and item.exchange.question for item in past]
    assert asked == ["first", "second", "second too", None, "third"]


def test_a_new_question_comes_behind_those_that_were_asked_at_its_frame(model: VideoModel) -> None:
    engine = new_engine(model, "lazy")
    past = deque([Remembered(5, Exchange("earlier", "!"))])
    film = Film(FrameList(FILM[:8]), 1.0, 0.0, math.inf)
    player = Player(film, engine, Sampling(max_new_tokens=2), "hermes", Choice("tiny", None, "a test"), past)
    list(player.play([TimedQuestion(4.0, "later")]))
    assert engine.last_exchange is not None
    assert engine.last_exchange.question == "later"


def test_without_a_saved_memory_everything_is_read_again(model: VideoModel, tmp_path: Path) -> None:
    with SessionStore(tmp_path).create(SourceIdentity.of("film"), model.name, None, {}) as writer:
        session = Session(writer.folder)
    back, live = travelled(new_engine(model, "lazy"), session, FILM, 9.0), new_engine(model, "lazy")
    for frame in FILM[:10]:
        live.push(frame)
    assert_same_memory(memory_of(live), memory_of(back))
