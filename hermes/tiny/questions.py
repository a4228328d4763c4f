"""Eighteen types of question about a video so far, each with its one right answer and the scenes that hold it.

`QUESTION_TYPES` is the registry. "realtime" types ask about what is on screen now, "backward" types about what was
there before. The order of random draws is part of the world: it decides which questions a seed gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from hermes.config import GLOBAL_PROMPT, LOCAL_PROMPT
from hermes.tiny import backward_questions as backward
from hermes.tiny import realtime_questions as realtime
from hermes.tiny.drafts import Draft, View
from hermes.tiny.world import RandomSource, Video

Group = Literal["realtime", "backward"]
Span = tuple[int, int]  # frames [start, end)

AT_END = 0.4  # share of questions asked when the video has been seen to its end
TRIES = 400  # types drawn for one call of `sample_questions`; a type that has nothing to ask costs one


@dataclass(frozen=True, slots=True)
class Question:
    """A question asked after `frames_seen` frames.

    Attributes:
        type: a key of QUESTION_TYPES.
        group: "realtime" or "backward".
        text: as typed, possibly without capitals or its last punctuation mark.
        answer: the exact answer.
        frames_seen: frames of the video shown before the question.
        evidence: for backward types the frames of the scenes the answer is read from, in order of the answer. A model
            that has seen a frame can know the scene before it as well, so for "prev" and "before" this is the scene
            after the one asked for. A scene that is still on screen counts to its end. Empty for realtime types and for
            the answer "No.".
        mentions: for "order" the frames of the two objects in order of the text, else empty.
    """

    type: str
    group: Group
    text: str
    answer: str
    frames_seen: int
    evidence: tuple[Span, ...] = ()
    mentions: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class QuestionType:
    """One row of the registry: `make` returns None when there is nothing to ask, `weight` is its share of the draws."""

    make: Callable[[View], Draft | None]
    group: Group
    weight: float


QUESTION_TYPES: dict[str, QuestionType] = {
    "now": QuestionType(realtime.now, "realtime", 1.1),
    "describe": QuestionType(realtime.describe, "realtime", 1.1),
    "color_now": QuestionType(realtime.color_now, "realtime", 0.5),
    "shape_now": QuestionType(realtime.shape_now, "realtime", 0.5),
    "where_now": QuestionType(realtime.where_now, "realtime", 1.0),
    "motion_now": QuestionType(realtime.motion_now, "realtime", 0.8),
    "bg_now": QuestionType(realtime.background_now, "realtime", 0.25),
    "count_now": QuestionType(realtime.count_now, "realtime", 0.25),
    "first": QuestionType(backward.first, "backward", 0.8),
    "prev": QuestionType(backward.previous, "backward", 1.2),
    "before": QuestionType(backward.before, "backward", 1.8),
    "after": QuestionType(backward.after, "backward", 1.8),
    "color_past": QuestionType(backward.color_past, "backward", 1.4),
    "shape_past": QuestionType(backward.shape_past, "backward", 0.9),
    "bg_past": QuestionType(backward.background_past, "backward", 1.2),
    "appear": QuestionType(backward.appear, "backward", 1.5),
    "order": QuestionType(backward.order, "backward", 1.2),
    "narrative": QuestionType(backward.narrative, "backward", 1.0),
}


def sample_questions(
    video: Video,
    rng: RandomSource,
    count: int,
    types: Sequence[str] | None = None,
    at_end: float = AT_END,
    vary: bool = True,
) -> list[Question]:
    """Draw up to `count` questions about the video, each at its own moment.

    Args:
        video: the video asked about.
        rng: where every draw comes from.
        count: how many; fewer come back when the video gives too little to ask.
        types: types to draw from, by their weights; all of them when None.
        at_end: share of the questions asked at the end of the video, the rest at a random frame from the second on.
        vary: whether some questions are typed carelessly.
    """
    names = list(types or QUESTION_TYPES)
    weights = [QUESTION_TYPES[type_name].weight for type_name in names]
    questions: list[Question] = []
    for type_name in rng.choices(names, weights=weights, k=TRIES):
        if len(questions) == count:
            break
        at_the_end = rng.random() < at_end
        frames_seen = video.frames if at_the_end else 2 + rng.below(video.frames - 1)
        question = ask(type_name, video, frames_seen, rng, vary)
        if question is not None:
            questions.append(question)
    return questions


def ask(type_name: str, video: Video, frames_seen: int, rng: RandomSource, vary: bool = False) -> Question | None:
    """Draw a question of one type after `frames_seen` frames; None when there is nothing of that kind to ask."""
    kind = QUESTION_TYPES[type_name]
    draft = kind.make(View(video, frames_seen, rng))
    if draft is None:
        return None
    text = rng.pick(draft.phrasings)
    return Question(
        type_name,
        kind.group,
        _carelessly_typed(text, rng) if vary else text,
        draft.answer,
        frames_seen,
        tuple((scene.start, scene.end) for scene in draft.evidence),
        tuple((scene.start, scene.end) for scene in draft.mentions),
    )


def _carelessly_typed(text: str, rng: RandomSource) -> str:
    """Some of the time without capitals, the last punctuation mark, or both; guidance prompts stay as they are."""
    if text in (LOCAL_PROMPT, GLOBAL_PROMPT):
        return text
    draw = rng.random()
    if draw < 0.15:
        return text.lower()
    if draw < 0.30:
        return text.lower().rstrip("?.")
    return text.rstrip("?.") if draw < 0.36 else text
