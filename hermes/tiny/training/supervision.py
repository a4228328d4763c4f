"""Losses on the inside of the text model: what it knows of every frame, and where some of its heads look.

The attention losses imitate what is reported of large models: that deep layers gather a frame in one of its tokens, an
anchor. They make the small model learn to find a moment again at all, and they are also what makes anchors worth
keeping in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hermes.tiny.architecture import TOKENS_PER_FRAME
from hermes.tiny.training.batches import QuestionBatch
from hermes.tiny.training.forward import Prepared
from hermes.tiny.training.lean_decoder import LeanDecoder
from hermes.tiny.training.readouts import TextReadouts

FIRST_DEEP_LAYER = 7  # of ten; the first where recency no longer counts
LOOK_HEADS = 2
MENTION_WEIGHT = 2.0  # of a question's token that has just named an object, against at most 1 of an answer's token
READ_AGE = 2  # frames into a scene when its anchor says all, motion included
OTHER_ANCHORS = 0.08  # weight of the scene's other anchors under the guidance prompt
UNSEEN = -1e4  # a log share below this means that no right key was visible


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the three losses; 0 leaves one out."""

    readouts: float
    look: float
    guidance: float


class InnerSupervision:
    """All losses of one batch, handed to `forward.run_layers`."""

    def __init__(self, decoder: LeanDecoder, readouts: TextReadouts, batch: QuestionBatch, weights: Weights) -> None:
        self.decoder = decoder
        self.readouts = readouts
        self.batch = batch
        self.weights = weights

    def loss(self, layer: int, before: Tensor, after: Tensor, prepared: Prepared) -> Tensor | None:
        """See `forward.Supervision`."""
        losses = []
        if layer == self.decoder.layers // 2 and self.weights.readouts and self._undropped(prepared):
            losses.append(self.weights.readouts * self._read(after, prepared))
        if layer == FIRST_DEEP_LAYER and self.weights.look:
            losses.append(self.weights.look * self._look(layer, before, prepared))
        if layer >= FIRST_DEEP_LAYER and self.weights.guidance and len(self.batch.guidance.at):
            deep_layers = self.decoder.layers - FIRST_DEEP_LAYER
            losses.append(self.weights.guidance / deep_layers * self._guide(layer, before, prepared))
        return torch.stack(losses).sum() if losses else None

    def _undropped(self, prepared: Prepared) -> bool:
        return prepared.visual.count == self.batch.tracks.age.shape[1] * TOKENS_PER_FRAME

    def _read(self, after: Tensor, prepared: Prepared) -> Tensor:
        """What the last token of every frame knows in the middle of the model."""
        layout = prepared.layout
        context = after[: layout.context_tokens].view(layout.videos, layout.context, -1)
        last_of_frame = context[:, len(self.batch.prefix) + TOKENS_PER_FRAME - 1 :: TOKENS_PER_FRAME]
        return self.readouts.loss(last_of_frame, self.batch.tracks)

    def _look(self, layer: int, before: Tensor, prepared: Prepared) -> Tensor:
        """Two heads look at the anchors of the scene that holds the answer: from the place where the question has
        named its object, and from every token of the answer."""
        targets, mentions = self.batch.targets, self.batch.mentions
        at = torch.cat((mentions.at, targets.at))
        evidence = torch.cat((mentions.evidence, targets.evidence))
        weight = torch.cat((torch.full_like(mentions.at, MENTION_WEIGHT, dtype=torch.float32), targets.weight))
        known = evidence[:, 1] > 0
        at, evidence, weight = at[known], evidence[known], weight[known]
        if not len(at):
            return before.new_zeros(())
        log_share = self._visual(layer, before, prepared, at, LOOK_HEADS).log_softmax(-1)
        log_share = log_share[..., self._visual_columns(prepared)]  # (n, heads, N)
        video = self._video_of(at, prepared)
        frame = prepared.visual.frame[video]  # (n, N)
        right = (frame >= evidence[:, :1]) & (frame < evidence[:, 1:]) & prepared.visual.is_anchor[video]
        log_right = log_share.masked_fill(~right[:, None], -1e30).logsumexp(-1)  # (n, heads)
        visible = log_right > UNSEEN
        weights = visible * weight[:, None]
        return -(torch.where(visible, log_right, 0.0) * weights).sum() / weights.sum().clamp(min=1)

    def _guide(self, layer: int, before: Tensor, prepared: Prepared) -> Tensor:
        """Under the global guidance prompt the heads together look at every scene seen, at one anchor of each."""
        guidance, visual, columns = self.batch.guidance, prepared.visual, self._visual_columns(prepared)
        logits = self._visual(layer, before, prepared, guidance.at, self.decoder.heads)
        share = logits.softmax(-1)[..., columns].mean(1)  # (n, N)
        video = self._video_of(guidance.at, prepared)
        age = self.batch.tracks.age.gather(1, visual.frame)  # (videos, N)
        wanted = torch.where(age == READ_AGE, 1.0, OTHER_ANCHORS) * visual.is_anchor
        visible = prepared.masks.question[layer].flatten(0, 2)[guidance.at][:, columns]
        wanted = wanted[video] * (visual.frame[video] < guidance.frames_seen[:, None]) * visible
        wanted = wanted / wanted.sum(1, keepdim=True).clamp(min=1e-6)
        return -(wanted * (share + 1e-6).log()).sum(1).mean()

    def _visual(self, layer: int, before: Tensor, prepared: Prepared, at: Tensor, heads: int) -> Tensor:
        mask = prepared.masks.question[layer]
        return self.decoder.attention_logits(layer, before, prepared.rotation, prepared.layout, mask, at, heads)

    def _visual_columns(self, prepared: Prepared) -> slice:
        return slice(len(self.batch.prefix), prepared.layout.context)

    def _video_of(self, at: Tensor, prepared: Prepared) -> Tensor:
        """The video each question token asks about."""
        return at // (prepared.layout.rows * prepared.layout.row_tokens)
