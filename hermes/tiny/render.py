"""Pictures of the world, drawn in batches from signed distances.

Every shape is stored once as a small image of its signed distance; a sprite is drawn by looking its pixels up there,
which costs the same for every shape, works at any resolution and gives edges one pixel soft.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from hermes.tiny.world import SHAPES, Scene, Video

ATLAS_SIZE = 96  # pixels per side of one shape's distance image
VISIBLE, SHAPE, RGB, X, Y, RADIUS, ROTATION = 0, 1, slice(2, 5), 5, 6, 7, 8  # columns of Drawing.sprites
SPRITE_COLUMNS = 9
RENDER_BATCH = 64  # frames drawn at once


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """What the renderer needs to know of N frames.

    Attributes:
        sprites: (N, 2, SPRITE_COLUMNS), float32; all zero where there is no second sprite.
        background: (N, 3), float32, in [0, 1].
    """

    sprites: Tensor
    background: Tensor

    def to(self, device: torch.device) -> Drawing:
        """The same drawing on another device."""
        return Drawing(self.sprites.to(device), self.background.to(device))


@dataclass(frozen=True, slots=True, eq=False)
class Grain:
    """Camera faults, one number per frame (N,): gain of the light, share of blur, standard deviation of the noise."""

    gain: Tensor
    blur: Tensor
    noise: Tensor

    @classmethod
    def random(cls, count: int, device: torch.device) -> Grain:
        """Draw from torch's generator of the device."""
        gain, blur, noise = (torch.rand(count, device=device) for _ in range(3))
        return cls(0.9 + 0.2 * gain, 0.8 * blur, 0.03 * noise)

    def repeat(self, times: int) -> Grain:
        """Every frame's grain `times` times in a row."""
        return Grain(*(part.repeat_interleave(times) for part in (self.gain, self.blur, self.noise)))


def draw_scenes(scenes: tuple[Scene, ...]) -> Drawing:
    """The frames of the scenes one after the other."""
    sprites = np.zeros((sum(scene.length for scene in scenes), 2, SPRITE_COLUMNS), np.float32)
    start = 0
    for scene in scenes:
        rows = sprites[start : start + scene.length]
        for slot, sprite in enumerate(scene.sprites):
            path = sprite.path
            rows[:, slot, VISIBLE], rows[:, slot, SHAPE], rows[:, slot, RGB] = 1, sprite.shape, sprite.rgb
            rows[:, slot, X], rows[:, slot, Y] = path.x[: scene.length], path.y[: scene.length]
            rows[:, slot, RADIUS], rows[:, slot, ROTATION] = path.radius, path.rotation
        start += scene.length
    background = np.repeat(
        np.stack([scene.background_rgb for scene in scenes]).astype(np.float32),
        [scene.length for scene in scenes],
        axis=0,
    )
    return Drawing(torch.from_numpy(sprites), torch.from_numpy(background))


def render(drawing: Drawing, size: int, grain: Grain | None = None) -> Tensor:
    """Draw N frames: (N, 3, size, size), float32 in [0, 1], on the drawing's device."""
    image = drawing.background[:, :, None, None].expand(-1, 3, size, size)
    for slot in range(drawing.sprites.shape[1]):
        sprite = drawing.sprites[:, slot]  # (N, SPRITE_COLUMNS)
        cover = _coverage(sprite, size)[:, None]  # (N, 1, size, size)
        image = torch.lerp(image, sprite[:, RGB, None, None].expand_as(image), cover)
    return image if grain is None else _add_grain(image, grain)


def video_frames(video: Video, size: int) -> NDArray[np.uint8]:
    """The video as pictures without grain, (frames, size, size, 3), one a second."""
    drawing = draw_scenes(video.scenes)
    batches = (torch.split(part, RENDER_BATCH) for part in (drawing.sprites, drawing.background))
    images = torch.cat([render(Drawing(*batch), size) for batch in zip(*batches, strict=True)])
    frames: NDArray[np.uint8] = (images * 255 + 0.5).clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    return frames


def _coverage(sprite: Tensor, size: int) -> Tensor:
    """How much of every pixel the sprites (N, SPRITE_COLUMNS) cover: (N, size, size), in [0, 1]."""
    visible, shape, x, y, radius, rotation = (sprite[:, i, None, None] for i in (VISIBLE, SHAPE, X, Y, RADIUS, ROTATION))
    radius = radius.clamp(min=1e-3)  # an empty slot has none
    centers = (torch.arange(size, device=sprite.device, dtype=torch.float32) + 0.5) / size
    right, down = (centers[None, None, :] - x) / radius, (centers[None, :, None] - y) / radius
    cos, sin = rotation.cos(), rotation.sin()
    inside = 1 - 1.0 / ATLAS_SIZE  # centre of the outermost pixel: beyond it the neighbouring shape begins
    u = (right * cos + down * sin).clamp(-inside, inside)
    v = (down * cos - right * sin).clamp(-inside, inside)
    v = (shape * 2 + v + 1) / len(SHAPES) - 1  # the shape's own tile
    grid = torch.stack((u, v), -1).view(1, -1, size, 2)
    distance = functional.grid_sample(_atlas(str(sprite.device)), grid, mode="bilinear", align_corners=False)
    return (0.5 - distance.view(-1, size, size) * radius * size).clamp(0, 1) * visible


def _add_grain(image: Tensor, grain: Grain) -> Tensor:
    gain, blur, noise = (part[:, None, None, None] for part in (grain.gain, grain.blur, grain.noise))
    padded = functional.pad(image, (1, 1, 1, 1), mode="replicate")
    image = torch.lerp(image, functional.avg_pool2d(padded, 3, 1), blur)
    return (image * gain + noise * torch.randn_like(image)).clamp(0, 1)


@cache
def _atlas(device: str) -> Tensor:
    """Signed distances of all shapes on [-1, 1]^2, one below the other: (1, 1, shapes * ATLAS_SIZE, ATLAS_SIZE)."""
    centers = (torch.arange(ATLAS_SIZE, dtype=torch.float32) + 0.5) / ATLAS_SIZE * 2 - 1
    y, x = torch.meshgrid(centers, centers, indexing="ij")
    return torch.cat([_signed_distance(shape, x, y) for shape in SHAPES])[None, None].to(device)


def _signed_distance(shape: str, x: Tensor, y: Tensor) -> Tensor:
    """Distance of every point to the shape's outline, negative inside; (height, width)."""
    if shape == "circle":
        return _length(x, y) - 0.75
    if shape == "ring":
        return (_length(x, y) - 0.58).abs() - 0.18
    if shape == "square":
        return _box_distance(x, y, 0.64, 0.64)
    if shape == "cross":
        return torch.minimum(_box_distance(x, y, 0.78, 0.25), _box_distance(x, y, 0.25, 0.78))
    if shape == "triangle":
        thirds = [2 * math.pi * corner / 3 for corner in range(3)]
        return _polygon_distance(x, y, [(math.sin(t) * 0.86, -math.cos(t) * 0.86 + 0.12) for t in thirds])
    assert shape == "star", shape
    tips = [(math.pi * corner / 5, 0.88 if corner % 2 == 0 else 0.36) for corner in range(10)]
    return _polygon_distance(x, y, [(math.sin(t) * reach, -math.cos(t) * reach) for t, reach in tips])


def _length(x: Tensor, y: Tensor) -> Tensor:
    return torch.sqrt(x * x + y * y + 1e-12)


def _box_distance(x: Tensor, y: Tensor, half_width: float, half_height: float) -> Tensor:
    beyond_x, beyond_y = x.abs() - half_width, y.abs() - half_height
    outside = _length(beyond_x.clamp(min=0), beyond_y.clamp(min=0))
    return outside + torch.maximum(beyond_x, beyond_y).clamp(max=0)


def _polygon_distance(x: Tensor, y: Tensor, corners: list[tuple[float, float]]) -> Tensor:
    distance = torch.full_like(x, 1e9)
    inside = torch.zeros_like(x, dtype=torch.bool)
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        edge_x, edge_y = bx - ax, by - ay
        along = ((x - ax) * edge_x + (y - ay) * edge_y) / (edge_x * edge_x + edge_y * edge_y)
        along = along.clamp(0, 1)
        distance = torch.minimum(distance, _length(x - ax - edge_x * along, y - ay - edge_y * along))
        if ay != by:  # a ray to the left crosses this edge: once more in or out
            crosses = ((y < ay) != (y < by)) & (x < edge_x * (y - ay) / edge_y + ax)
            inside = inside ^ crosses
    return torch.where(inside, -distance, distance)
