"""The vision stage: tower and projector learn that every visual token describes its whole frame."""

from __future__ import annotations

import torch
from torch import Tensor

from hermes.tiny.training.curriculum import vision_rate
from hermes.tiny.training.lean_vision import encode_frames
from hermes.tiny.training.learner import Clock, Learner
from hermes.tiny.training.optimizer import LayerOptimizer
from hermes.tiny.training.random_frames import random_frames

FEATURE_SCALE = 0.5  # root mean square of the features after the stage


def train_vision(learner: Learner) -> None:
    """Train the vision tower and the projector for `recipe.vision_minutes`."""
    recipe, processes = learner.recipe, learner.processes
    optimizer = _optimizer(learner)
    torch.manual_seed(recipe.seed * 1000 + processes.rank + 1)
    clock, step = Clock(recipe.vision_minutes), 0
    while (progress := processes.agreed(clock.progress)) < 1:
        pixels, labels = random_frames(recipe.vision_batch // processes.count, learner.device)
        tokens, patches = encode_frames(learner.model, pixels)
        loss = learner.readouts.frame.loss(tokens, labels) + learner.readouts.patch.loss(patches, labels)
        torch.autograd.backward(loss)
        processes.average_gradients(optimizer.parameters)
        optimizer.step(vision_rate(step, progress, recipe))
        step += 1
        if step % recipe.log_every == 0:
            scores = learner.readouts.frame.scores(tokens.detach(), labels)
            learner.report(vision_step=step, s=round(clock.elapsed_s, 1), loss=round(loss.item(), 4), **scores)
    if step:
        _settle_scale(learner, pixels)
    processes.from_first([parameter.data for parameter in optimizer.parameters])


def _optimizer(learner: Learner) -> LayerOptimizer:
    tower, projector = learner.model.model.vision_tower, learner.model.model.multi_modal_projector
    # The features are taken before the tower's last norm, which therefore never learns.
    for name, parameter in tower.named_parameters():
        parameter.requires_grad_("post_layernorm" not in name)
    readouts = (*learner.readouts.frame.parameters(), *learner.readouts.patch.parameters())
    return LayerOptimizer([tower], (*projector.parameters(), *readouts), learner.recipe)


@torch.no_grad()
def _settle_scale(learner: Learner, pixels: Tensor) -> None:
    """Scale the projector's output, so that the text stage starts from features of a known size."""
    tokens, _ = encode_frames(learner.model, pixels)
    last = learner.model.model.multi_modal_projector.linear_2
    scale = FEATURE_SCALE / tokens.pow(2).mean().sqrt()
    last.weight.mul_(scale)
    last.bias.mul_(scale)
