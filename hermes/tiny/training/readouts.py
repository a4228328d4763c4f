"""Read-outs: linear maps that say what a hidden state knows. They exist in training only and are not exported."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from hermes.tiny.architecture import PATCHES_PER_SIDE, Architecture
from hermes.tiny.training.tracks import SCENE_NUMBERS, UNKNOWN, FrameTracks
from hermes.tiny.training.transfer import OnDevice
from hermes.tiny.world import BACKGROUNDS, COLORS, MOTIONS, SHAPES

PRESENCE = len(SHAPES) + 1  # of a colour: absent, or one of the shapes
PLACE_BINS = 8
FIRST_BIN, BIN_WIDTH = 0.19, (1 - 2 * 0.19) / (PLACE_BINS - 1)  # of the side
PATCH_REACH = 0.24  # of the side: a patch further than this from every sprite's centre shows background


@dataclass(frozen=True, slots=True)
class FrameLabels(OnDevice):
    """What N single frames show: `current` (N, colors), 0 or 1 + shape; `xy` (N, colors, 2), centres, 0 where absent;
    `background` (N,)."""

    current: Tensor
    xy: Tensor
    background: Tensor

    @property
    def present(self) -> Tensor:
        """Which colours are there, (N, colors), bool."""
        return self.current > 0


class PatchReadout(nn.Module):
    """What a patch of the vision tower shows: the object covering it, its shape, and how far off its centre lies."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, len(COLORS) + 1 + len(SHAPES) + 2)

    def loss(self, patches: Tensor, labels: FrameLabels) -> Tensor:
        """Loss of patches (N, P, width)."""
        read = self.linear(_normed(patches))
        covering, shape, offset = torch.split(read, [len(COLORS) + 1, len(SHAPES), 2], -1)
        vector = labels.xy[:, None] - _patch_centers(patches.device)[:, None]  # (N, P, colors, 2)
        distance = vector.norm(dim=-1).masked_fill(~labels.present[:, None], 9.0)
        nearest_distance, nearest = distance.min(-1)  # (N, P)
        covered = nearest_distance < PATCH_REACH
        true_shape = labels.current.gather(1, nearest) - 1
        true_offset = vector.gather(2, nearest[..., None, None].expand(-1, -1, 1, 2))[:, :, 0]
        off_by = functional.smooth_l1_loss(offset * 0.25, true_offset, reduction="none", beta=0.02).sum(-1)
        covering_loss = _cross_entropy(covering, torch.where(covered, nearest + 1, 0))
        shape_loss = _cross_entropy(shape, torch.where(covered, true_shape, UNKNOWN))
        offset_loss: Tensor = (off_by * covered).sum() / covered.sum()
        return covering_loss + 1.5 * shape_loss + 2.0 * offset_loss


class FrameReadout(nn.Module):
    """What each visual token says about its whole frame: per colour its shape and place, and the background."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.parts = [len(COLORS) * PRESENCE, 2 * len(COLORS) * PLACE_BINS, len(BACKGROUNDS)]
        self.linear = nn.Linear(width, sum(self.parts))

    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of presence (..., colors, PRESENCE), place (..., colors, 2, PLACE_BINS) and background
        (..., backgrounds)."""
        presence, place, background = torch.split(self.linear(_normed(tokens)), self.parts, -1)
        return (
            torch.unflatten(presence, -1, (len(COLORS), PRESENCE)),
            torch.unflatten(place, -1, (len(COLORS), 2, PLACE_BINS)),
            background,
        )

    def loss(self, tokens: Tensor, labels: FrameLabels) -> Tensor:
        """Loss of the visual tokens (N, TOKENS_PER_FRAME, width)."""
        presence, place, background = self.read(tokens)
        each = tokens.shape[:2]
        current = labels.current[:, None].expand(*each, -1)
        present = current > 0
        entropy = functional.cross_entropy(presence.flatten(0, 2), current.flatten(), reduction="none").view_as(current)
        presence_loss = (entropy * torch.where(present, 1.0, 0.25)).sum() / present.sum()
        place_entropy = -(place.log_softmax(-1) * _place_bins(labels.xy)[:, None]).sum(-1).mean(-1)
        place_loss = (place_entropy * present).sum() / present.sum()
        background_loss = _cross_entropy(background, labels.background[:, None].expand(each))
        return presence_loss + 0.7 * place_loss + 0.3 * background_loss

    @torch.no_grad()
    def scores(self, tokens: Tensor, labels: FrameLabels) -> dict[str, float]:
        """Shares read right (shapes of what is there, whole frames, background) and the mean error of a coordinate."""
        presence, place, background = self.read(tokens)
        current = labels.current[:, None]
        present = labels.present[:, None].expand(presence.shape[:-1])
        centers = FIRST_BIN + BIN_WIDTH * torch.arange(PLACE_BINS, device=tokens.device)
        error = (place.softmax(-1) @ centers - labels.xy[:, None]).abs()
        measured = {
            "shape": (presence[..., 1:].argmax(-1) + 1 == current)[present].float(),
            "scene": (presence.argmax(-1) == current).all(-1).float(),
            "background": (background.argmax(-1) == labels.background[:, None]).float(),
            "xy_error": error[present],
        }
        return {what: round(values.mean().item(), 4) for what, values in measured.items()}


class TextReadouts(nn.Module):
    """What the last token of every frame knows in the middle of the text model: scene now, scene before, motions,
    background, number of the scene."""

    def __init__(self, width: int) -> None:
        super().__init__()
        colors = len(COLORS)
        self.parts = [colors * PRESENCE, colors * PRESENCE, colors * len(MOTIONS), len(BACKGROUNDS), SCENE_NUMBERS]
        self.linear = nn.Linear(width, sum(self.parts))

    def loss(self, hidden: Tensor, tracks: FrameTracks) -> Tensor:
        """Loss of hidden states (videos, frames, width)."""
        current, previous, motion, background, number = torch.split(self.linear(_normed(hidden)), self.parts, -1)
        per_color = (len(COLORS), -1)
        return (
            2 * _cross_entropy(torch.unflatten(current, -1, per_color), tracks.current)
            + 3 * _cross_entropy(torch.unflatten(previous, -1, per_color), tracks.previous)
            + _cross_entropy(torch.unflatten(motion, -1, per_color), tracks.motion)
            + 0.2 * _cross_entropy(background, tracks.background)
            + 0.2 * _cross_entropy(number, tracks.scene_number)
        )


class Readouts(nn.Module):
    """All read-outs of a training."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.patch = PatchReadout(architecture.vision_hidden)
        self.frame = FrameReadout(architecture.hidden)
        self.text = TextReadouts(architecture.hidden)


def _normed(hidden: Tensor) -> Tensor:
    return functional.rms_norm(hidden, (hidden.shape[-1],))


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over all places but those labelled UNKNOWN; logits (..., classes), labels (...)."""
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=UNKNOWN)


def _patch_centers(device: torch.device) -> Tensor:
    """(patches, 2), x and y, in [0, 1], row by row."""
    centers = (torch.arange(PATCHES_PER_SIDE, device=device) + 0.5) / PATCHES_PER_SIDE
    return torch.stack(torch.meshgrid(centers, centers, indexing="xy"), -1).view(-1, 2)


def _place_bins(xy: Tensor) -> Tensor:
    """Each coordinate as a mixture of the two bins around it: (..., PLACE_BINS). Example: 3.25 bins in is 0.75 of bin 3
    and 0.25 of bin 4."""
    place = ((xy - FIRST_BIN) / BIN_WIDTH).clamp(0, PLACE_BINS - 1)
    lower = place.floor().long().clamp(max=PLACE_BINS - 2)
    upper_share = (place - lower)[..., None]
    mixture = torch.zeros(*place.shape, PLACE_BINS, device=xy.device)
    mixture.scatter_(-1, lower[..., None], 1 - upper_share)
    return mixture.scatter_(-1, lower[..., None] + 1, upper_share)
