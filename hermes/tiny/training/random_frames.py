"""Endless unrelated single frames for the vision stage, drawn on the training device."""

from __future__ import annotations

import torch
from torch import Tensor

from hermes.tiny.architecture import FRAME_SIZE
from hermes.tiny.render import RADIUS, RGB, ROTATION, SHAPE, SPRITE_COLUMNS, VISIBLE, Drawing, Grain, X, Y, render
from hermes.tiny.training.lean_vision import to_pixels
from hermes.tiny.training.readouts import FrameLabels
from hermes.tiny.world import (
    BACKGROUND_RGB,
    BACKGROUND_TINT,
    BACKGROUNDS,
    COLOR_RGB,
    COLOR_TINT,
    COLORS,
    OVERLAP,
    SHAPES,
)

# A little more than the world has, so that its edges are inside what was learned.
MARGIN, SMALLEST, LARGEST, LARGEST_ROTATION = 0.18, 0.165, 0.235, 0.17
TWO_SPRITES = 0.6  # share of frames with room for a second sprite that get one


@torch.no_grad()
def random_frames(count: int, device: torch.device) -> tuple[Tensor, FrameLabels]:
    """Pixels (count, 3, FRAME_SIZE, FRAME_SIZE) in [-1, 1] and what they show, from torch's generator of the device."""
    color = torch.rand(count, len(COLORS), device=device).topk(2, 1).indices  # two different ones, as shapes
    shape = torch.rand(count, len(SHAPES), device=device).topk(2, 1).indices
    background = torch.randint(len(BACKGROUNDS), (count,), device=device)
    sprites = _random_sprites(color, shape)
    background_rgb = torch.from_numpy(BACKGROUND_RGB).to(device)[background]
    drawing = Drawing(sprites, (background_rgb + _around(BACKGROUND_TINT, count, 3, device=device)).clamp(0, 1))
    images = render(drawing, FRAME_SIZE, Grain.random(count, device))
    return to_pixels(images), _labels(sprites, color, shape, background)


def _random_sprites(color: Tensor, shape: Tensor) -> Tensor:
    """As Drawing.sprites, for colours and shapes (N, 2)."""
    count, device = len(color), color.device
    sprites = torch.zeros(count, 2, SPRITE_COLUMNS, device=device)
    rgb = torch.from_numpy(COLOR_RGB).to(device)[color]
    sprites[..., SHAPE] = shape.float()
    sprites[..., RGB] = (rgb + _around(COLOR_TINT, count, 2, 3, device=device)).clamp(0, 1)
    sprites[..., [X, Y]] = MARGIN + (1 - 2 * MARGIN) * torch.rand(count, 2, 2, device=device)
    sprites[..., RADIUS] = SMALLEST + (LARGEST - SMALLEST) * torch.rand(count, 2, device=device)
    sprites[..., ROTATION] = _around(LARGEST_ROTATION, count, 2, device=device)
    apart = (sprites[:, 0, [X, Y]] - sprites[:, 1, [X, Y]]).norm(dim=1)
    room = apart > OVERLAP * sprites[..., RADIUS].sum(1)
    sprites[:, 0, VISIBLE] = 1
    sprites[:, 1, VISIBLE] = (room & (torch.rand(count, device=device) < TWO_SPRITES)).float()
    return sprites


def _labels(sprites: Tensor, color: Tensor, shape: Tensor, background: Tensor) -> FrameLabels:
    current = torch.zeros(len(color), len(COLORS), dtype=torch.int64, device=color.device)
    xy = torch.zeros(len(color), len(COLORS), 2, device=color.device)
    frame, slot = (sprites[..., VISIBLE] > 0).nonzero().unbind(1)
    shown = color[frame, slot]
    current[frame, shown] = 1 + shape[frame, slot]
    xy[frame, shown] = sprites[frame, slot][:, [X, Y]]
    return FrameLabels(current, xy, background)


def _around(most: float, *shape: int, device: torch.device) -> Tensor:
    """Uniform in [-most, most]."""
    return (torch.rand(*shape, device=device) * 2 - 1) * most
