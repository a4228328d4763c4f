"""Decoding an answer token by token behind a cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from hermes.attention import AnswerProbe
from hermes.config import Sampling
from hermes.errors import ModelError
from hermes.graphs import StepRunner
from hermes.models.base import VideoModel
from hermes.upload import upload


@dataclass(frozen=True)
class Step:
    """One decoded token: its id, and the logits (vocabulary,) it was chosen from, before any penalty."""

    token: int
    logits: Tensor


def decode(
    runner: StepRunner,
    hidden: Tensor,
    sampling: Sampling,
    probe: AnswerProbe | None = None,
) -> Iterator[Step]:
    """Decode until an end-of-answer token (not yielded) or the length limit; the caller holds the cache's scratch.

    Args:
        runner: reads each token into the cache.
        hidden: (hidden,), the decoder's output for the last prompt token.
        probe: watches every token that is read.

    Raises:
        ModelError: the model produced NaN or infinite logits.
    """
    model = runner.model
    processors = _processors(sampling)
    generator = torch.Generator(device=hidden.device).manual_seed(sampling.seed)
    generated: list[int] = []
    for remaining in range(sampling.max_new_tokens - 1, -1, -1):
        logits = model.logits(hidden)
        _check_finite(logits, model.dtype)
        token = _choose(logits, generated, processors, sampling, generator)
        if token in model.stop_ids:
            return
        generated.append(token)
        yield Step(token, logits)
        if remaining:
            hidden = runner.read(model.embed_text([token]), probe)


def _check_finite(logits: Tensor, dtype: torch.dtype) -> None:
    if not torch.isfinite(logits).all():
        kind = str(dtype).removeprefix("torch.")
        hint = "try --dtype bf16 or --dtype fp32" if dtype == torch.float16 else "its weights may be damaged: fetch it again"
        raise ModelError(f"the model produced NaN or infinite logits ({kind})", hint)


def _processors(sampling: Sampling) -> Any:
    processors = LogitsProcessorList()
    if sampling.repetition_penalty != 1:
        processors.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.temperature > 0:
        processors.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_p < 1:
            processors.append(TopPLogitsWarper(sampling.top_p))
    return processors


def _choose(logits: Tensor, generated: list[int], processors: Any, sampling: Sampling, generator: torch.Generator) -> int:
    history = upload(torch.tensor([generated], dtype=torch.long), logits.device)
    scores = processors(history, logits[None])[0]
    if sampling.temperature == 0:
        return int(scores.argmax())
    return int(torch.multinomial(scores.softmax(dim=-1), 1, generator=generator))


class IncrementalText:
    """Token ids to text as they come, holding back a character whose bytes are not complete yet."""

    def __init__(self, model: VideoModel) -> None:
        self._tokenizer = model.tokenizer
        self._ids: list[int] = []
        self._emitted = 0  # characters

    @property
    def whole(self) -> str:
        """The text of all tokens so far."""
        text: str = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        return text

    def add(self, token: int) -> str:
        """The text that `token` completes."""
        self._ids.append(token)
        whole = self.whole
        return "" if whole.endswith("\N{REPLACEMENT CHARACTER}") else self._beyond(whole)

    def rest(self) -> str:
        """What has not been emitted yet."""
        return self._beyond(self.whole)

    def _beyond(self, whole: str) -> str:
        piece = whole[self._emitted :]
        self._emitted = len(whole)
        return piece
