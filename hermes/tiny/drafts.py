"""What a question is made from: the video up to some frame, and the draft a maker returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hermes.tiny.world import RandomSource, Scene, Sprite, Video


@dataclass(frozen=True, slots=True)
class Draft:
    """What a maker returns: ways to put the question, the answer, and the scenes behind it (see `Question`)."""

    phrasings: Sequence[str]
    answer: str
    evidence: Sequence[Scene] = ()
    mentions: Sequence[Scene] = ()


class View:
    """The video up to `frames_seen`: everything a question asked there may use."""

    def __init__(self, video: Video, frames_seen: int, rng: RandomSource) -> None:
        self.rng = rng
        self.seen = video.scenes[: int(video.scene_at[frames_seen - 1]) + 1]
        self.current = self.seen[-1]
        self.past = self.seen[:-1]
        self.frames_into_scene = frames_seen - self.current.start

    def appearances(self) -> list[tuple[Sprite, Scene]]:
        """Every sprite seen, with its scene, in order."""
        return [(sprite, scene) for scene in self.seen for sprite in scene.sprites]

    def pick_named(self, scene: Scene) -> Sprite | None:
        """A sprite of the scene, if its colour and shape name it uniquely in the video so far."""
        sprite = self.rng.pick(scene.sprites)
        unique = sum(other.key == sprite.key for other, _ in self.appearances()) == 1
        return sprite if unique else None
