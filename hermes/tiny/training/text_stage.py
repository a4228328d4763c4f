"""The text stage: with the vision part frozen, the text model learns to answer many questions about each video."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hermes.tiny.questions import QUESTION_TYPES
from hermes.tiny.training.batches import QuestionBatch, make_batch
from hermes.tiny.training.blocks import BlockEncoder
from hermes.tiny.training.curriculum import batch_shape, readout_weight, text_rate
from hermes.tiny.training.disturbance import draw_disturbance
from hermes.tiny.training.forward import prepare, run_layers, vocabulary_logits
from hermes.tiny.training.lean_decoder import LeanDecoder
from hermes.tiny.training.learner import Clock, Learner
from hermes.tiny.training.optimizer import LayerOptimizer
from hermes.tiny.training.scene_pool import make_pool, pool_features
from hermes.tiny.training.supervision import InnerSupervision, Weights
from hermes.tiny.world import RandomSource


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Of one batch: of the answers' tokens and of everything inside the model, scalars; the logits of the answers'
    tokens, (targets, vocabulary)."""

    answers: Tensor
    inner: Tensor
    logits: Tensor


class TextStage:
    """One run of the stage.

    Args:
        learner: the model and its surroundings.
        encoder: makes question blocks.
        start: progress to begin with.
        state: of an earlier run to go on from, as `Learner.restore` returns it.
    """

    def __init__(
        self, learner: Learner, encoder: BlockEncoder, start: float = 0.0, state: dict[str, Any] | None = None
    ) -> None:
        state = state or {}
        self.learner, self.encoder = learner, encoder
        inner = learner.model.model
        for part in (inner.vision_tower, inner.multi_modal_projector):
            part.requires_grad_(False)
        around = (inner.image_newline, *learner.readouts.text.parameters())
        self.optimizer = LayerOptimizer([inner.language_model], around, learner.recipe)
        if "optimizer" in state:
            self.optimizer.load_state_dict(state["optimizer"])
        self.step: int = state.get("step", 0)
        self.pool = make_pool(learner.recipe.pool_scenes, learner.recipe.seed)
        self.features = pool_features(learner.model, self.pool, learner.device, learner.processes)
        self.scores = _Scores()
        self.clock = Clock(learner.recipe.minutes, start, state.get("elapsed_s", 0.0))

    def run(self) -> None:
        """Train until the time is over, saving now and then and at the end."""
        recipe, processes = self.learner.recipe, self.learner.processes
        rng = random.Random(f"{recipe.seed}/{self.step}")  # the same in every process: shapes and disturbances agree
        torch.manual_seed(recipe.seed * 1000 + processes.rank + 10 + self.step)
        saved_s = self.clock.elapsed_s
        while self.step < recipe.max_steps and (progress := processes.agreed(self.clock.progress)) < 1:
            self._train_step(progress, rng)
            if self.step % recipe.log_every == 0:
                self._report(progress)
            if self.clock.elapsed_s - saved_s > recipe.save_every_s:
                saved_s = self.clock.elapsed_s
                self._save()
        self._save()

    def _train_step(self, progress: float, rng: random.Random) -> None:
        recipe, processes = self.learner.recipe, self.learner.processes
        shape = batch_shape(progress, recipe, rng)
        source = RandomSource(f"train/{recipe.seed}/{processes.rank}/{self.step}")
        batch = make_batch(source, shape, self.encoder, self.pool).to(self.learner.device)
        losses = self.losses(batch, progress, rng)
        torch.autograd.backward(losses.answers + losses.inner)
        processes.average_gradients(self.optimizer.parameters)
        self.optimizer.step(text_rate(self.step, progress, recipe))
        self.step += 1
        self.scores.add(batch, losses)

    def losses(self, batch: QuestionBatch, progress: float, rng: random.Random) -> Losses:
        """One forward pass over a batch, disturbed as `rng` and torch's generator draw it."""
        recipe, model = self.learner.recipe, self.learner.model
        weights = Weights(readout_weight(progress, recipe), recipe.look_weight, recipe.guidance_weight)
        decoder = LeanDecoder(model.model.language_model)
        supervision = InnerSupervision(decoder, self.learner.readouts.text, batch, weights)
        disturbance = draw_disturbance(rng, progress, recipe)
        prepared = prepare(model, batch, self.features[batch.tracks.pool_frame], disturbance)
        hidden, inner = run_layers(model, prepared, supervision)
        logits = vocabulary_logits(model, hidden[batch.targets.at])
        entropy = functional.cross_entropy(logits, batch.targets.token, reduction="none")
        weight = batch.targets.weight
        return Losses((entropy * weight).sum() / weight.sum(), inner, logits)

    def _report(self, progress: float) -> None:
        means = self.scores.means()
        rate = text_rate(self.step - 1, progress, self.learner.recipe)
        self.learner.report(
            step=self.step, s=round(self.clock.elapsed_s, 1), progress=round(progress, 4), rate=round(rate, 6), **means
        )
        self.scores = _Scores()

    def _save(self) -> None:
        optimizer = self.optimizer.state_dict()
        self.learner.save(optimizer=optimizer, step=self.step, elapsed_s=self.clock.elapsed_s)


class _Scores:
    """Loss, and share of answers right per type of question, over some steps; every step has new videos."""

    def __init__(self) -> None:
        self.losses: list[tuple[float, float]] = []
        self.right: dict[str, list[bool]] = defaultdict(list)

    def add(self, batch: QuestionBatch, losses: Losses) -> None:
        self.losses.append((losses.answers.item(), losses.inner.item()))
        for question, is_right in zip(batch.questions, answered_right(batch, losses.logits), strict=True):
            self.right[question.type].append(is_right)

    def means(self) -> dict[str, Any]:
        right = {
            name: round(sum(self.right[name]) / len(self.right[name]), 3) for name in QUESTION_TYPES if self.right[name]
        }
        answers, inner = (round(sum(values) / len(values), 4) for values in zip(*self.losses, strict=True))
        return {"loss": answers, "inner_loss": inner, "right": right}


def answered_right(batch: QuestionBatch, logits: Tensor) -> list[bool]:
    """For every question, whether each token of its answer is the likeliest after the true tokens before it, which is
    when greedy decoding gives the whole answer; `logits` is (targets, vocabulary)."""
    wrong = (logits.argmax(-1) != batch.targets.token).long()
    per_question = torch.zeros(len(batch.questions), dtype=torch.int64, device=wrong.device)
    return (per_question.index_add_(0, batch.targets.question, wrong) == 0).tolist()
