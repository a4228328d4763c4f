"""How the training changes as it goes on: length of the videos, learning rate, weight of the read-outs."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hermes.tiny.architecture import TOKENS_PER_FRAME
from hermes.tiny.training.blocks import PREFIX_TOKENS, ROW_TOKENS
from hermes.tiny.training.recipe import Recipe


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Frames of every video, videos, and rows of question blocks per video."""

    frames: int
    videos: int
    rows: int


def batch_shape(progress: float, recipe: Recipe, rng: random.Random) -> BatchShape:
    """Draw the shape of the next batch: longer videos as the stages pass, as many as the token budget holds."""
    stages = zip(recipe.stage_ends, recipe.stage_frames, strict=True)
    longest = next((frames for end, frames in stages if progress < end), recipe.stage_frames[-1])
    lengths = [frames for frames in recipe.video_frames if frames <= longest]
    frames = rng.choices(lengths, weights=[2 if length >= 16 else 1 for length in lengths])[0]
    if progress > recipe.long_from and rng.random() < recipe.long_share:
        frames = recipe.long_frames
    rows = 3 if frames <= 12 else 4 if frames <= 32 else 5 if frames <= 64 else 6
    tokens_per_video = PREFIX_TOKENS + frames * TOKENS_PER_FRAME + rows * ROW_TOKENS
    return BatchShape(frames, max(1, round(recipe.tokens_per_step / tokens_per_video)), rows)


def text_rate(step: int, progress: float, recipe: Recipe) -> float:
    """Learning rate of a step of the text stage, counted from 0."""
    fall = (1 - progress) / (1 - recipe.hold) * (1 - recipe.final) + recipe.final
    return recipe.rate * min(1, (step + 1) / recipe.warmup) * min(1.0, fall)


def vision_rate(step: int, progress: float, recipe: Recipe) -> float:
    """Learning rate of a step of the vision stage, counted from 0; `progress` is that of the vision stage."""
    fall = 1 - (1 - recipe.vision_final) * progress
    return recipe.vision_rate * min(1, (step + 1) / recipe.vision_warmup) * fall


def readout_weight(progress: float, recipe: Recipe) -> float:
    """Weight of the text read-outs' loss."""
    return recipe.readout_weight * max(recipe.readout_floor, 1 - progress / recipe.readout_until)
