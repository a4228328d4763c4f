"""Makers of questions about what was on screen before; the registry in `questions` says how often each is asked."""

from __future__ import annotations

from typing import Literal

from hermes.config import GLOBAL_PROMPT
from hermes.tiny.drafts import Draft, View
from hermes.tiny.language import Key, a, listing, sentence, the
from hermes.tiny.world import BACKGROUNDS, COLORS, SHAPES, Scene, Sprite

PREFER_PAST = 0.85  # share of "was there" questions about an earlier scene than the current one, where there is one
NARRATIVE_SCENES = 4


def first(view: View) -> Draft:
    """What the first scene showed."""
    return Draft(
        [
            "What did you see first?",
            "What came first?",
            "What was the first object?",
            "What was on screen first?",
            "What appeared first?",
        ],
        sentence(listing(view.seen[0])),
        [view.seen[0]],
    )


def previous(view: View) -> Draft | None:
    """What the scene before the current one showed."""
    if not view.past:
        return None
    return Draft(
        [
            "What was on screen before?",
            "What came before this?",
            "What did you see before the current scene?",
            "What was there before this scene?",
        ],
        sentence(listing(view.past[-1])),
        [view.current],
    )


def before(view: View) -> Draft | None:
    """What the scene before the one with X showed."""
    return _neighbour(view, "before")


def after(view: View) -> Draft | None:
    """What the scene after the one with X showed."""
    return _neighbour(view, "after")


def _neighbour(view: View, side: Literal["before", "after"]) -> Draft | None:
    """What was on screen in the scene next to the one that shows X."""
    if not view.past:
        return None
    earlier = view.rng.below(len(view.seen) - 1)
    named, answer = (earlier + 1, earlier) if side == "before" else (earlier, earlier + 1)
    sprite = view.pick_named(view.seen[named])
    if sprite is None:
        return None
    return Draft(
        [
            f"What came {side} {the(sprite.key)}?",
            f"What was on screen {side} {the(sprite.key)}?",
            f"What did you see {side} {the(sprite.key)}?",
        ],
        sentence(listing(view.seen[answer])),
        [view.seen[earlier + 1]],  # the later of the two knows the other one
    )


def _only_one(view: View, attribute: Literal["color", "shape"]) -> tuple[Sprite, Scene] | None:
    """A sprite whose colour (or shape) came once so far, mostly one of an earlier scene."""
    by_value: dict[int, list[tuple[Sprite, Scene]]] = {}
    for sprite, scene in view.appearances():
        by_value.setdefault(getattr(sprite, attribute), []).append((sprite, scene))
    single = [group[0] for group in by_value.values() if len(group) == 1]
    past = [(sprite, scene) for sprite, scene in single if scene is not view.current]
    if past and view.rng.random() < PREFER_PAST:
        single = past
    return view.rng.pick(single) if single else None


def color_past(view: View) -> Draft | None:
    """Colour of the only object so far with some shape."""
    found = _only_one(view, "shape")
    if found is None:
        return None
    sprite, scene = found
    shape = SHAPES[sprite.shape]
    return Draft(
        [f"What color was the {shape}?", f"What colour was the {shape}?", f"Which color did the {shape} have?"],
        f"It was {COLORS[sprite.color]}.",
        [scene],
    )


def shape_past(view: View) -> Draft | None:
    """Shape of the only object so far with some colour."""
    found = _only_one(view, "color")
    if found is None:
        return None
    sprite, scene = found
    color = COLORS[sprite.color]
    return Draft(
        [f"What shape was the {color} object?", f"What was the {color} object?", f"Which shape was {color}?"],
        f"It was a {SHAPES[sprite.shape]}.",
        [scene],
    )


def background_past(view: View) -> Draft | None:
    """Background behind X in an earlier scene."""
    if not view.past:
        return None
    scene = view.rng.pick(view.past)
    sprite = view.pick_named(scene)
    if sprite is None:
        return None
    return Draft(
        [
            f"What color was the background behind {the(sprite.key)}?",
            f"What was the background color behind {the(sprite.key)}?",
            f"On which background was {the(sprite.key)}?",
        ],
        f"It was {BACKGROUNDS[scene.background]}.",
        [scene],
    )


def appear(view: View) -> Draft | None:
    """Whether X was there: half of the time yes."""
    appeared = view.rng.random() < 0.5
    key = _seen_key(view) if appeared else _unseen_key(view)
    if key is None:
        return None
    shown = [scene for sprite, scene in view.appearances() if sprite.key == key]
    return Draft(
        [f"Did {a(key)} appear?", f"Did you see {a(key)}?", f"Was there {a(key)}?", f"Have you seen {a(key)}?"],
        "Yes." if appeared else "No.",
        shown[-1:],
    )


def _seen_key(view: View) -> Key:
    if view.past and view.rng.random() < PREFER_PAST:
        return view.rng.pick(view.rng.pick(view.past).sprites).key
    return view.rng.pick(view.appearances())[0].key


def _unseen_key(view: View) -> Key | None:
    """Mostly a colour and a shape that did appear, but not together."""
    sprites = [sprite for sprite, _ in view.appearances()]
    seen = {sprite.key for sprite in sprites}
    for _ in range(30):
        key = view.rng.below(len(COLORS)), view.rng.below(len(SHAPES))
        if view.rng.random() < 0.7:
            key = view.rng.pick(sprites).color, view.rng.pick(sprites).shape
        if key not in seen:
            return key
    return None


def order(view: View) -> Draft | None:
    """Which of two objects of different scenes came first."""
    if not view.past:
        return None
    earlier, later = (view.seen[i] for i in sorted(view.rng.sample(range(len(view.seen)), 2)))
    first, second = view.pick_named(earlier), view.pick_named(later)
    if first is None or second is None:
        return None
    mentioned, scenes = (first, second), (earlier, later)
    if view.rng.random() >= 0.5:
        mentioned, scenes = (second, first), (later, earlier)
    pair = f"{the(mentioned[0].key)} or {the(mentioned[1].key)}"
    return Draft(
        [f"Which came first, {pair}?", f"Which appeared first, {pair}?"],
        sentence(the(first.key)),
        [earlier],
        scenes,
    )


def narrative(view: View) -> Draft:
    """What the last scenes showed, in order."""
    last = view.seen[-NARRATIVE_SCENES:]
    return Draft(
        [
            GLOBAL_PROMPT,
            GLOBAL_PROMPT,
            "What happened?",
            "What happened so far?",
            "Summarize the video.",
            "What has happened in the video?",
        ],
        sentence(", then ".join(listing(scene) for scene in last)),
        last,
    )
