"""The procedural world: videos of coloured shapes, each named exactly by the seed it was drawn from.

A video is a row of scenes. A scene has a background and one or two large sprites, each a colour, a shape and a motion.
One frame is one second. Every draw comes from Python's Mersenne Twister in a fixed order, so a seed gives the same
video on every platform; changing the order of draws changes every video, the held-out ones included.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

COLORS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "cyan")
SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
BACKGROUNDS = ("black", "white", "gray", "brown", "navy", "beige")
MOTIONS = ("still", "left", "right", "up", "down")

COLOR_RGB: NDArray[np.float32] = np.array(
    [
        (222, 30, 34),
        (245, 138, 18),
        (248, 228, 40),
        (38, 168, 60),
        (40, 84, 232),
        (142, 48, 182),
        (250, 130, 192),
        (40, 212, 232),
    ],
    np.float32,
) / np.float32(255)  # (colors, 3), in [0, 1]
BACKGROUND_RGB: NDArray[np.float32] = np.array(
    [(14, 14, 14), (242, 242, 242), (128, 128, 128), (112, 70, 34), (16, 22, 84), (226, 206, 166)], np.float32
) / np.float32(255)  # (backgrounds, 3), in [0, 1]

MIN_SCENE_FRAMES, MAX_SCENE_FRAMES = 3, 8
COLOR_TINT, BACKGROUND_TINT = 0.05, 0.03  # how far a painted colour may be from its nominal one, per channel
TWO_SPRITES = 0.3  # share of scenes that want a second sprite
MARGIN = 0.19  # of the side: a sprite's centre stays within [MARGIN, 1 - MARGIN]
RADIUS = (0.17, 0.23)  # of the side
ROTATION = 0.16  # radians to either side
MIN_SPEED = 0.056  # of the side per frame
OVERLAP = 0.9  # centres of two sprites are never closer than this share of their radii's sum

T = TypeVar("T")


class RandomSource(random.Random):
    """Python's generator with the two draws this world needs on top of `random`, `uniform`, `choices` and `sample`."""

    def below(self, stop: int) -> int:
        """A whole number from 0 to `stop` - 1, from one call of `random`."""
        return int(self.random() * stop)

    def pick(self, items: Sequence[T]) -> T:
        """One of `items`, each as likely."""
        return items[self.below(len(items))]


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """Where a sprite is in every frame a scene can have, and how large and turned it is (units: the picture's side).

    Attributes:
        x: centre from the left, (MAX_SCENE_FRAMES,).
        y: centre from the top, (MAX_SCENE_FRAMES,).
        radius: half the side of the sprite's box.
        rotation: radians.
    """

    x: NDArray[np.float32]
    y: NDArray[np.float32]
    radius: float
    rotation: float

    def clashes(self, other: Path) -> bool:
        """Whether the two ever come too close to be told apart."""
        squared = (self.x - other.x) ** 2 + (self.y - other.y) ** 2
        closest = OVERLAP * (self.radius + other.radius)
        return bool((squared < closest * closest).any())


@dataclass(frozen=True, slots=True, eq=False)
class Sprite:
    """One moving object. `color`, `shape` and `motion` index COLORS, SHAPES and MOTIONS; `rgb` is (3,), in [0, 1]."""

    color: int
    shape: int
    motion: int
    path: Path
    rgb: NDArray[np.float64]

    @property
    def key(self) -> tuple[int, int]:
        """What a question can name: (color, shape)."""
        return self.color, self.shape


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """Something to look at for a few frames.

    Attributes:
        background: index into BACKGROUNDS.
        background_rgb: (3,), in [0, 1].
        sprites: one or two, in the order every answer names them; different in colour and in shape.
        start: first frame in the video.
        length: frames; a scene outside a video has MAX_SCENE_FRAMES, one in a video may be cut short.
        pool_index: place in a pool of scenes, when it was taken from one.
    """

    background: int
    background_rgb: NDArray[np.float64]
    sprites: tuple[Sprite, ...]
    start: int = 0
    length: int = MAX_SCENE_FRAMES
    pool_index: int = -1

    @property
    def end(self) -> int:
        """One past the last frame."""
        return self.start + self.length


@dataclass(frozen=True, eq=False)
class Video:
    """Scenes one after the other: neighbours differ in background, and no (color, shape) comes twice while others
    are left."""

    scenes: tuple[Scene, ...]

    @property
    def frames(self) -> int:
        """Length in frames, which is also its length in seconds."""
        return self.scenes[-1].end

    @cached_property
    def scene_at(self) -> NDArray[np.int16]:
        """The number of the scene shown in every frame, (frames,)."""
        lengths = [scene.length for scene in self.scenes]
        return np.repeat(np.arange(len(self.scenes), dtype=np.int16), lengths)


def make_scene(rng: RandomSource) -> Scene:
    """Draw one scene of MAX_SCENE_FRAMES frames."""
    background = rng.below(len(BACKGROUNDS))
    background_rgb = _tinted(BACKGROUND_RGB[background], BACKGROUND_TINT, rng)
    wanted = 2 if rng.random() < TWO_SPRITES else 1
    sprites: list[Sprite] = []
    for _ in range(60):
        if len(sprites) == wanted:
            break
        sprite = _try_sprite(rng, sprites)
        if sprite is not None:
            sprites.append(sprite)
    return Scene(background, background_rgb, tuple(sorted(sprites, key=lambda sprite: sprite.key)))


def make_video(frames: int, rng: RandomSource, pool: Sequence[Scene] | None = None) -> Video:
    """Draw a video of `frames` frames, from new scenes or from those of `pool`.

    `make_video(frames, RandomSource(seed))` names a video: the same two arguments give the same video anywhere.
    """
    scenes: list[Scene] = []
    used: set[tuple[int, int]] = set()
    start, background = 0, -1
    while start < frames:
        length = _scene_length(frames - start, rng)
        for _ in range(200):
            scene = rng.pick(pool) if pool else make_scene(rng)
            if scene.background != background and not any(sprite.key in used for sprite in scene.sprites):
                break
        scenes.append(replace(scene, start=start, length=length))
        background = scene.background
        used.update(sprite.key for sprite in scene.sprites)
        if len(used) > len(COLORS) * len(SHAPES) * 3 // 4:
            used = {sprite.key for sprite in scene.sprites}
        start += length
    return Video(tuple(scenes))


def _scene_length(left: int, rng: RandomSource) -> int:
    """Frames of the next scene when `left` are still to fill; never leaves less than a whole scene over."""
    length = MIN_SCENE_FRAMES + rng.below(MAX_SCENE_FRAMES + 1 - MIN_SCENE_FRAMES)
    if left - length >= MIN_SCENE_FRAMES:
        return length
    return left if left <= MAX_SCENE_FRAMES else left - MIN_SCENE_FRAMES


def _try_sprite(rng: RandomSource, others: Sequence[Sprite]) -> Sprite | None:
    """Draw a sprite; None when it shares a colour or shape with one of `others` or would overlap it."""
    color, shape, motion = rng.below(len(COLORS)), rng.below(len(SHAPES)), rng.below(len(MOTIONS))
    if any(color == other.color or shape == other.shape for other in others):
        return None
    path = _draw_path(MOTIONS[motion], rng)
    if any(path.clashes(other.path) for other in others):
        return None
    return Sprite(color, shape, motion, path, _tinted(COLOR_RGB[color], COLOR_TINT, rng))


def _draw_path(motion: str, rng: RandomSource) -> Path:
    low, high, steps = MARGIN, 1 - MARGIN, MAX_SCENE_FRAMES - 1
    radius, rotation = rng.uniform(*RADIUS), rng.uniform(-ROTATION, ROTATION)
    x = np.full(MAX_SCENE_FRAMES, rng.uniform(low, high), np.float32)
    y = np.full(MAX_SCENE_FRAMES, rng.uniform(low, high), np.float32)
    if motion != "still":
        speed = rng.uniform(MIN_SPEED, (high - low) / steps)
        start = rng.uniform(low, high - speed * steps)
        moving = (start + speed * np.arange(MAX_SCENE_FRAMES, dtype=np.float32)).astype(np.float32)
        if motion in ("left", "up"):
            moving = 1 - moving
        x, y = (moving, y) if motion in ("left", "right") else (x, moving)
    return Path(x, y, radius, rotation)


def _tinted(rgb: NDArray[np.float32], amount: float, rng: RandomSource) -> NDArray[np.float64]:
    tint = np.array([rng.uniform(-amount, amount) for _ in range(3)])
    tinted: NDArray[np.float64] = np.clip(rgb + tint, 0, 1)
    return tinted
