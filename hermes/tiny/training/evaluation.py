"""A quick check of a trained model: exact answers on held-out videos, with nothing evicted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import LlavaOnevisionForConditionalGeneration

from hermes.tiny.architecture import FRAME_SIZE
from hermes.tiny.questions import QUESTION_TYPES
from hermes.tiny.render import draw_scenes, render
from hermes.tiny.training.batches import QuestionBatch, make_batch
from hermes.tiny.training.blocks import BlockEncoder
from hermes.tiny.training.curriculum import BatchShape
from hermes.tiny.training.disturbance import UNDISTURBED
from hermes.tiny.training.forward import prepare, run_layers, vocabulary_logits
from hermes.tiny.training.lean_vision import encode_frames, to_pixels
from hermes.tiny.training.recipe import Recipe
from hermes.tiny.training.text_stage import answered_right
from hermes.tiny.world import RandomSource

ROWS = 5  # of question blocks per video
VIDEOS_AT_ONCE = 8


@torch.no_grad()
def evaluate(
    model: LlavaOnevisionForConditionalGeneration, encoder: BlockEncoder, recipe: Recipe, device: torch.device
) -> dict[str, dict[str, dict[str, float]]]:
    """Share of exactly right answers: length of the video in frames -> type -> {"right": share, "count": questions}.

    The videos come from seeds the training never uses, their pictures have no grain.
    """
    table: dict[str, dict[str, dict[str, float]]] = {}
    for frames in recipe.evaluation_frames:
        right: dict[str, list[bool]] = defaultdict(list)
        for batch in _held_out(frames, encoder, recipe):
            moved = batch.to(device)
            prepared = prepare(model, moved, clean_features(model, moved, device), UNDISTURBED)
            hidden, _ = run_layers(model, prepared)
            logits = vocabulary_logits(model, hidden[moved.targets.at])
            for question, is_right in zip(moved.questions, answered_right(moved, logits), strict=True):
                right[question.type].append(is_right)
        table[str(frames)] = {
            name: {"right": round(sum(right[name]) / len(right[name]), 4), "count": len(right[name])}
            for name in QUESTION_TYPES
            if right[name]
        }
    return table


def clean_features(model: LlavaOnevisionForConditionalGeneration, batch: QuestionBatch, device: torch.device) -> Tensor:
    """Visual tokens of a batch's videos without grain, (videos, frames, TOKENS_PER_FRAME, hidden)."""
    images = (render(draw_scenes(video.scenes).to(device), FRAME_SIZE) for video in batch.videos)
    return torch.stack([encode_frames(model, to_pixels(image))[0] for image in images])


def _held_out(frames: int, encoder: BlockEncoder, recipe: Recipe) -> Iterator[QuestionBatch]:
    rng = RandomSource(f"eval/{frames}")
    for start in range(0, recipe.evaluation_videos, VIDEOS_AT_ONCE):
        shape = BatchShape(frames, min(VIDEOS_AT_ONCE, recipe.evaluation_videos - start), ROWS)
        yield make_batch(rng, shape, encoder, training=False, questions_per_video=recipe.evaluation_questions)
