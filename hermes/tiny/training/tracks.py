"""What is true of every frame of a batch of videos; the read-outs learn it and the attention supervision uses it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hermes.tiny.training.transfer import OnDevice
from hermes.tiny.world import COLORS, MAX_SCENE_FRAMES, Video

UNKNOWN = -100  # cross entropy leaves these places out
SCENE_NUMBERS = 32  # later scenes all count as the last of these


@dataclass(frozen=True, slots=True)
class FrameTracks(OnDevice):
    """All int64.

    Attributes:
        current: per colour 0 where it is absent, else 1 + its shape, (videos, frames, colors).
        previous: the same of the scene before, all 0 in the first scene.
        motion: per colour its motion, UNKNOWN where it is absent or in the first frame of a scene.
        background: (videos, frames), as the next three.
        scene_number: in the video, capped.
        age: frames since the scene began.
        pool_frame: where the frame's features are among those of the pool.
    """

    current: Tensor
    previous: Tensor
    motion: Tensor
    background: Tensor
    scene_number: Tensor
    age: Tensor
    pool_frame: Tensor


def frame_tracks(videos: tuple[Video, ...]) -> FrameTracks:
    """The tracks of videos of one length."""
    per_video = zip(*(_tracks_of(video) for video in videos), strict=True)
    return FrameTracks(*(torch.from_numpy(np.stack(arrays)) for arrays in per_video))


def _tracks_of(video: Video) -> tuple[NDArray[np.int64], ...]:
    """The fields of FrameTracks for one video."""
    current = np.zeros((video.frames, len(COLORS)), np.int64)
    previous = np.zeros_like(current)
    motion = np.full_like(current, UNKNOWN)
    background, number, age, pool_frame = (np.zeros(video.frames, np.int64) for _ in range(4))
    before = np.zeros(len(COLORS), np.int64)
    for index, scene in enumerate(video.scenes):
        now = np.zeros(len(COLORS), np.int64)
        for sprite in scene.sprites:
            now[sprite.color] = 1 + sprite.shape
            motion[scene.start + 1 : scene.end, sprite.color] = sprite.motion
        shown = slice(scene.start, scene.end)
        current[shown], previous[shown], background[shown] = now, before, scene.background
        number[shown] = min(index, SCENE_NUMBERS - 1)
        age[shown] = np.arange(scene.length)
        pool_frame[shown] = scene.pool_index * MAX_SCENE_FRAMES + age[shown]
        before = now
    return current, previous, motion, background, number, age, pool_frame
