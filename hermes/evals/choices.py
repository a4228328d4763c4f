"""The questions of the embedded world as multiple choice: wrong answers that could have been right.

The embedded model has never met options with letters, so none are shown to it: the one whose text it finds the most likely
answer is the one it chooses (`StreamEngine.log_likelihood`), the usual way to ask a model that was not taught to choose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import permutations

from hermes.tiny.language import DOING, REGIONS, a, listing, sentence
from hermes.tiny.questions import Question
from hermes.tiny.world import BACKGROUNDS, COLORS, SHAPES, RandomSource, Scene, Video

OPTIONS = 4  # at most; some questions have only two answers

_PLACES = tuple(place for row in REGIONS for place in row)
_TERMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "describe": (DOING, BACKGROUNDS, SHAPES),
    "color_now": (COLORS,),
    "shape_now": (SHAPES,),
    "where_now": (_PLACES,),
    "motion_now": (DOING,),
    "bg_now": (BACKGROUNDS,),
    "color_past": (COLORS,),
    "shape_past": (SHAPES,),
    "bg_past": (BACKGROUNDS,),
}
"""For types whose wrong answers are the right one with a term exchanged: the lists it may come from."""


def options(question: Question, video: Video, rng: RandomSource) -> tuple[str, ...]:
    """The right answer among wrong ones of its kind, OPTIONS in all at most, in random order.

    Wrong answers to "what did you see" are other scenes of the same video where it has enough, so that having been seen is
    not enough to be right; those to "what happened" are the right scenes in another order.
    """
    wrong: list[str] = []
    for text in _wrong(question, video, rng):
        if text != question.answer and text not in wrong:
            wrong.append(text)
        if len(wrong) == OPTIONS - 1:
            break
    return tuple(_shuffled([question.answer, *wrong], rng))


def _wrong(question: Question, video: Video, rng: RandomSource) -> Iterator[str]:
    """Candidates, the best first; some may be the right answer."""
    if question.type == "appear":
        yield from ("Yes.", "No.")
    elif question.type == "count_now":
        yield from ("One object.", "Two objects.")
    elif question.type == "order":
        named = re.search(r"(the \w+ \w+) or (the \w+ \w+)", question.text.lower())
        assert named is not None, f"two objects are named in {question.text!r}"
        yield from map(sentence, named.groups())
    elif question.type in _TERMS:
        yield from _shuffled([text for terms in _TERMS[question.type] for text in _exchanged(question.answer, terms)], rng)
    else:
        if question.type == "narrative":
            parts = question.answer.rstrip(".").split(", then ")
            lowered = [parts[0][0].lower() + parts[0][1:], *parts[1:]]
            yield from _shuffled([sentence(", then ".join(order)) for order in permutations(lowered)], rng)
        yield from _shuffled([sentence(listing(scene)) for scene in _seen(question, video)], rng)
        while True:
            yield sentence(a((rng.below(len(COLORS)), rng.below(len(SHAPES)))))


def _seen(question: Question, video: Video) -> Sequence[Scene]:
    return video.scenes[: int(video.scene_at[question.frames_seen - 1]) + 1]


def _exchanged(text: str, terms: Sequence[str]) -> list[str]:
    """The text with the term that it holds, the longest where one contains another, replaced by each of the others."""
    present = max((term for term in terms if re.search(rf"\b{term}\b", text)), key=len)
    return [re.sub(rf"\b{present}\b", other, text, count=1) for other in terms if other != present]


def _shuffled(texts: Sequence[str], rng: RandomSource) -> list[str]:
    return rng.sample(list(texts), len(texts))
