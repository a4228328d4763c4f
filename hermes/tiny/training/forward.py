"""One pass over a batch: what every question block sees, where it stands, and the logits of its answer.

Every video is prefix | visual tokens left, plus rows of question blocks. A block sees the prefix, the visual tokens of
the frames before its question (as far as they are left) and itself, and its positions follow the last of those tokens:
exactly the prompt a user would send at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from transformers import LlavaOnevisionForConditionalGeneration

from hermes.tiny.training.batches import QuestionBatch
from hermes.tiny.training.disturbance import Disturbance, VisualTokens, place_tokens
from hermes.tiny.training.eviction import alive_for_questions, alive_for_tokens, draw_lives
from hermes.tiny.training.lean_decoder import Layout, LeanDecoder, Rotation


@dataclass(frozen=True, slots=True, eq=False)
class Masks:
    """Who sees whom, one entry per layer: `context` (videos, 1, context, context) or None for causal, `question`
    (videos * rows, 1, row_tokens, context + row_tokens); bool."""

    context: list[Tensor | None]
    question: list[Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A batch before the first layer.

    Attributes:
        visual: the visual tokens left of every video.
        layout: of the T tokens.
        embedded: (T, hidden).
        positions: rotary positions of the T tokens, (T,).
        rotation: their angles.
        masks: who sees whom.
    """

    visual: VisualTokens
    layout: Layout
    embedded: Tensor
    positions: Tensor
    rotation: Rotation
    masks: Masks


class Supervision(Protocol):
    """Losses on what happens inside the text model, asked for after every layer."""

    def loss(self, layer: int, before: Tensor, after: Tensor, prepared: Prepared) -> Tensor | None:
        """Loss on a layer's input and output, both (T, hidden); None when this layer has none."""
        ...


def prepare(
    model: LlavaOnevisionForConditionalGeneration, batch: QuestionBatch, features: Tensor, disturbance: Disturbance
) -> Prepared:
    """Lay out a batch.

    Args:
        model: in float32.
        batch: the videos and questions.
        features: visual tokens, (videos, frames, TOKENS_PER_FRAME, hidden).
        disturbance: what to do to the visual tokens; draws come from torch's generator.
    """
    decoder = LeanDecoder(model.model.language_model)
    visual = place_tokens(features, disturbance)
    videos, rows, row_tokens = batch.tokens.shape
    prefix = len(batch.prefix)
    seen = torch.searchsorted(visual.frame.contiguous(), batch.frames_seen.flatten(1))  # visual tokens before each
    context_positions = torch.cat((torch.arange(prefix, device=seen.device).expand(videos, -1), visual.position), 1)
    last = context_positions.gather(1, prefix + seen - 1)
    positions = torch.cat((context_positions.flatten(), (last + 1 + batch.place.flatten(1)).flatten()))
    return Prepared(
        visual,
        Layout(videos, prefix + visual.count, rows, row_tokens),
        _embed(model, batch, visual),
        positions,
        decoder.rotation(positions),
        _masks(batch, visual, seen, decoder.layers, disturbance),
    )


def run_layers(
    model: LlavaOnevisionForConditionalGeneration, prepared: Prepared, supervision: Supervision | None = None
) -> tuple[Tensor, Tensor]:
    """Run the text layers.

    Returns:
        The last hidden states of all question tokens before the final norm, (videos * rows * row_tokens, hidden), and
        the summed loss of `supervision`, a scalar.
    """
    decoder = LeanDecoder(model.model.language_model)
    hidden, masks = prepared.embedded, prepared.masks
    total = hidden.new_zeros(())
    for index in range(decoder.layers):
        before = hidden
        hidden = decoder.layer(
            index, before, prepared.rotation, prepared.layout, masks.context[index], masks.question[index]
        )
        loss = supervision.loss(index, before, hidden, prepared) if supervision else None
        if loss is not None:
            total = total + loss
    return hidden[prepared.layout.context_tokens :], total


def vocabulary_logits(model: LlavaOnevisionForConditionalGeneration, hidden: Tensor) -> Tensor:
    """Logits (n, vocabulary) of hidden states (n, hidden) before the final norm."""
    text = model.model.language_model
    logits: Tensor = text.norm(hidden) @ text.embed_tokens.weight.t()
    return logits


def _embed(model: LlavaOnevisionForConditionalGeneration, batch: QuestionBatch, visual: VisualTokens) -> Tensor:
    """Embeddings of the T tokens, (T, hidden)."""
    table = model.model.language_model.embed_tokens.weight
    prefix = table[batch.prefix].expand(len(batch.tokens), -1, -1)
    is_newline = (batch.tokens == model.config.video_token_id)[..., None]
    asked = torch.where(is_newline, model.model.image_newline, table[batch.tokens])
    return torch.cat((torch.cat((prefix, visual.features), 1).flatten(0, 1), asked.flatten(0, 2)))


def _masks(batch: QuestionBatch, visual: VisualTokens, seen: Tensor, layers: int, disturbance: Disturbance) -> Masks:
    """Masks of every layer; `seen` (videos, rows * row_tokens) counts the visual tokens before each question token."""
    if not disturbance.evict_to:
        everything = torch.arange(visual.count, device=seen.device) < seen[..., None]
        return Masks([None] * layers, [_question_mask(batch, everything)] * layers)
    masks = Masks([], [])
    for life in draw_lives(visual, layers, disturbance):
        masks.context.append(_context_mask(len(batch.prefix), alive_for_tokens(life, disturbance.chunk_frames)))
        found = alive_for_questions(life, seen, disturbance.chunk_frames)
        masks.question.append(_question_mask(batch, found))
    return masks


def _context_mask(prefix: int, alive: Tensor) -> Tensor:
    """(videos, 1, context, context): the prefix is never evicted; `alive` is (videos, N, N)."""
    videos, count = alive.shape[:2]
    context = prefix + count
    mask = torch.ones(context, context, dtype=torch.bool, device=alive.device).tril().repeat(videos, 1, 1, 1)
    mask[:, 0, prefix:, prefix:] = alive
    return mask


def _question_mask(batch: QuestionBatch, found: Tensor) -> Tensor:
    """(videos * rows, 1, row_tokens, context + row_tokens); `found` (videos, rows * row_tokens, N) are the visual
    tokens each question token finds."""
    videos, rows, row_tokens = batch.tokens.shape
    block = batch.block.flatten(0, 1)  # (videos * rows, row_tokens)
    own = (block[:, :, None] == block[:, None, :]).tril()
    prefix = own.new_ones(videos * rows, row_tokens, len(batch.prefix))
    return torch.cat((prefix, found.reshape(videos * rows, row_tokens, -1), own), 2)[:, None]
