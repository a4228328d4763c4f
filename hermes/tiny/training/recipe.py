"""Every number of the training, in one place; each is also a flag of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")


def _knob(default: T, meaning: str) -> T:
    knob: T = field(default=default, metadata={"meaning": meaning})
    return knob


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings of the shipped weights. Shares and progress are in [0, 1]; progress is that of the text stage."""

    seed: int = _knob(0, "names the scenes, the videos and the questions")
    pool_scenes: int = _knob(10_000, "scenes whose visual features are computed once")

    vision_minutes: float = _knob(11.0, "length of the vision stage")
    vision_batch: int = _knob(128, "frames per step, over all processes")
    vision_rate: float = _knob(2e-3, "learning rate of the vision stage")
    vision_warmup: int = _knob(100, "steps until the full rate")
    vision_final: float = _knob(0.03, "the rate falls linearly to this share")

    minutes: float = _knob(88.0, "length of the text stage")
    max_steps: int = _knob(10**9, "end the text stage after so many steps, if time has not ended it before")
    tokens_per_step: int = _knob(1200, "tokens per step and process, about")
    rate: float = _knob(2e-3, "learning rate of the text stage")
    warmup: int = _knob(100, "steps until the full rate")
    hold: float = _knob(0.5, "progress up to which the full rate is held")
    final: float = _knob(0.02, "from there it falls linearly to this share")

    matrix_gain: float = _knob(3.0, "step of a layer's matrix over the step of anything else")
    momentum: float = _knob(0.95, "momentum of the matrices")
    betas: tuple[float, float] = _knob((0.9, 0.97), "AdamW's averages, for everything else")
    weight_decay: float = _knob(0.05, "decoupled weight decay")
    clip: float = _knob(1.0, "largest norm of a step's gradient")

    stage_ends: tuple[float, ...] = _knob((0.06, 0.25, 0.5, 1.0), "progress at which each stage of the curriculum ends")
    stage_frames: tuple[int, ...] = _knob((8, 16, 32, 64), "longest video of each stage, in frames")
    video_frames: tuple[int, ...] = _knob((8, 12, 16, 24, 32, 48, 64), "lengths drawn from; from 16 on twice as often")
    long_frames: int = _knob(128, "length of the rare long videos")
    long_share: float = _knob(0.08, "share of them")
    long_from: float = _knob(0.65, "progress from which they are drawn")

    readout_weight: float = _knob(0.5, "weight of the read-outs at the start, falling linearly")
    readout_until: float = _knob(0.8, "progress at which that line reaches zero")
    readout_floor: float = _knob(0.1, "share of the weight that always stays")
    look_weight: float = _knob(0.2, "weight of the supervision of where to look for an answer")
    guidance_weight: float = _knob(0.1, "weight of the supervision of the global guidance prompt")

    disturb_from: float = _knob(0.4, "progress from which the tokens of a video are disturbed")
    drop_share: float = _knob(0.25, "share of the batches with dropped visual tokens")
    drop_range: tuple[float, float] = _knob((0.05, 0.7), "share of the tokens dropped")
    drop_frames: float = _knob(0.35, "share of those in which the tokens of a frame tend to fall together")
    drop_compact: float = _knob(0.5, "share of those whose positions are closed up")
    evict_share: float = _knob(0.25, "share of the batches with simulated eviction")
    evict_range: tuple[float, float] = _knob((0.15, 0.7), "share of the tokens that stay")
    evict_chunks: tuple[int, ...] = _knob((4, 8, 16), "frames between two evictions")
    evict_together: float = _knob(0.3, "share of those in which the layers tend to evict the same tokens")
    evict_fifo: float = _knob(0.15, "share of those that evict the oldest tokens in every layer")
    offset_share: float = _knob(0.35, "share of the batches whose positions start further on")
    offset_limit: int = _knob(6000, "largest such shift, in positions")

    evaluation_frames: tuple[int, ...] = _knob((16, 32, 64, 128), "lengths of the held-out videos")
    evaluation_videos: int = _knob(30, "held-out videos of each length")
    evaluation_questions: int = _knob(20, "questions about each")
    log_every: int = _knob(50, "steps between two lines of the log")
    save_every_s: float = _knob(300.0, "seconds between two savings of the training state")


def add_recipe_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for every field of `Recipe`."""
    for knob in fields(Recipe):
        default = knob.default
        several = isinstance(default, tuple)
        kind = type(default[0]) if isinstance(default, tuple) else type(default)
        parser.add_argument(
            "--" + knob.name.replace("_", "-"),
            type=kind,
            nargs="+" if several else None,
            default=default,
            help=f"{knob.metadata['meaning']} (%(default)s)",
        )


def recipe_from_flags(values: Mapping[str, Any]) -> Recipe:
    """The recipe from parsed flags; flags that are not a recipe's are ignored."""
    chosen: dict[str, Any] = {}
    for knob in fields(Recipe):
        value = values[knob.name]
        chosen[knob.name] = tuple(value) if isinstance(value, list) else value
    return Recipe(**chosen)
