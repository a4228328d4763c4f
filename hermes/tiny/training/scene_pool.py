"""Scenes whose visual features are computed once, and the features."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from transformers import LlavaOnevisionForConditionalGeneration

from hermes.tiny.architecture import FRAME_SIZE
from hermes.tiny.render import Grain, draw_scenes, render
from hermes.tiny.training.lean_vision import encode_frames, to_pixels
from hermes.tiny.training.processes import Processes
from hermes.tiny.world import MAX_SCENE_FRAMES, RandomSource, Scene, make_scene

SCENES_AT_ONCE = 32


def make_pool(scenes: int, seed: int) -> list[Scene]:
    """The pool of a training seed, the same in every process."""
    rng = RandomSource(f"pool/{seed}")
    return [replace(make_scene(rng), pool_index=index) for index in range(scenes)]


def pool_features(
    model: LlavaOnevisionForConditionalGeneration, pool: list[Scene], device: torch.device, processes: Processes
) -> Tensor:
    """Features of all frames of the pool, (scenes * MAX_SCENE_FRAMES, TOKENS_PER_FRAME, hidden); each process computes
    its share."""
    share = -(-len(pool) // processes.count)
    padded = pool + pool[:1] * (share * processes.count - len(pool))  # all shares must be of one length
    own = padded[processes.rank * share : (processes.rank + 1) * share]
    return processes.gathered(_features_of(model, own, device, processes.rank))[: len(pool) * MAX_SCENE_FRAMES]


@torch.no_grad()
def _features_of(
    model: LlavaOnevisionForConditionalGeneration, scenes: list[Scene], device: torch.device, rank: int
) -> Tensor:
    """Every scene rendered once, with its own grain."""
    torch.manual_seed(77 + rank)
    parts = []
    for start in range(0, len(scenes), SCENES_AT_ONCE):
        some = tuple(scenes[start : start + SCENES_AT_ONCE])
        grain = Grain.random(len(some), device).repeat(MAX_SCENE_FRAMES)
        images = render(draw_scenes(some).to(device), FRAME_SIZE, grain)
        parts.append(encode_frames(model, to_pixels(images))[0])
    return torch.cat(parts)
