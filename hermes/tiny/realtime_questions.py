"""Makers of questions about what is on screen now; the registry in `questions` says how often each is asked."""

from __future__ import annotations

from hermes.config import LOCAL_PROMPT
from hermes.tiny.drafts import Draft, View
from hermes.tiny.language import DOING, a, listing, region, sentence, the
from hermes.tiny.world import BACKGROUNDS, COLORS, SHAPES, Scene

MOTION_FRAMES = 3  # frames of a scene to be seen before its motion is asked for


def now(view: View) -> Draft:
    """What is on screen."""
    return Draft(
        [
            "What is on screen now?",
            "What is on screen?",
            "What do you see?",
            "What is on the screen?",
            "What do you see now?",
            "What is there now?",
        ],
        sentence(listing(view.current)),
    )


def describe(view: View) -> Draft | None:
    """Objects, motions and background of the current scene."""
    if view.frames_into_scene < MOTION_FRAMES:
        return None
    scene = view.current
    happening = " and ".join(f"{a(sprite.key)} is {DOING[sprite.motion]}" for sprite in scene.sprites)
    return Draft(
        [
            LOCAL_PROMPT,  # a guidance prompt that the model can answer draws attention that means something
            LOCAL_PROMPT,
            "Describe the scene.",
            "What is happening now?",
            "Describe what is happening.",
            "Describe the current scene.",
        ],
        sentence(f"{happening} on a {BACKGROUNDS[scene.background]} background"),
    )


def color_now(view: View) -> Draft:
    """Colour of an object on screen."""
    sprite = view.rng.pick(view.current.sprites)
    shape = SHAPES[sprite.shape]
    return Draft(
        [
            f"What color is the {shape}?",
            f"What colour is the {shape}?",
            f"Which color is the {shape} now?",
            *_if_alone(view.current, "What color is it?"),
        ],
        f"It is {COLORS[sprite.color]}.",
    )


def shape_now(view: View) -> Draft:
    """Shape of an object on screen."""
    sprite = view.rng.pick(view.current.sprites)
    color = COLORS[sprite.color]
    return Draft(
        [
            f"What shape is the {color} object?",
            f"What is the {color} object?",
            f"Which shape is {color} now?",
            *_if_alone(view.current, "What shape is it?"),
        ],
        f"It is a {SHAPES[sprite.shape]}.",
    )


def where_now(view: View) -> Draft | None:
    """Place of an object in the last frame."""
    sprite = view.rng.pick(view.current.sprites)
    frame = view.frames_into_scene - 1
    place = region(float(sprite.path.x[frame]), float(sprite.path.y[frame]))
    if place is None:
        return None
    return Draft(
        [
            f"Where is {the(sprite.key)}?",
            f"Where is {the(sprite.key)} now?",
            f"Where is the {SHAPES[sprite.shape]}?",
            *_if_alone(view.current, "Where is it?"),
        ],
        f"It is at the {place}.",
    )


def motion_now(view: View) -> Draft | None:
    """Motion of an object on screen."""
    if view.frames_into_scene < MOTION_FRAMES:
        return None
    sprite = view.rng.pick(view.current.sprites)
    return Draft(
        [
            f"How is {the(sprite.key)} moving?",
            f"What is {the(sprite.key)} doing?",
            f"How is the {SHAPES[sprite.shape]} moving?",
            f"What is {the(sprite.key)} doing now?",
            *_if_alone(view.current, "How is it moving?"),
        ],
        f"It is {DOING[sprite.motion]}.",
    )


def background_now(view: View) -> Draft:
    """Colour of the background."""
    return Draft(
        ["What is the background color?", "What color is the background?", "What color is the background now?"],
        f"It is {BACKGROUNDS[view.current.background]}.",
    )


def count_now(view: View) -> Draft:
    """How many objects are on screen."""
    return Draft(
        [
            "How many objects are on screen?",
            "How many objects do you see now?",
            "How many objects are there?",
            "How many objects are there now?",
        ],
        "One object." if len(view.current.sprites) == 1 else "Two objects.",
    )


def _if_alone(scene: Scene, text: str) -> list[str]:
    """A phrasing that says "it" needs a scene with a single sprite."""
    return [text] if len(scene.sprites) == 1 else []
