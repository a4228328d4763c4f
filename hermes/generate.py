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
from hermes.cache import SlabCache
from hermes.config import Sampling
from hermes.errors import ModelError
from hermes.models.base import VideoModel


@dataclass(frozen=True)
class Step:
    """One decoded token: its id, and the logits (vocabulary,) it was chosen from, before any penalty."""

    token: int
    logits: Tensor


def decode(
    model: VideoModel,
    cache: SlabCache,
    hidden: Tensor,
    sampling: Sampling,
    shared_rotation: bool = False,
    probe: AnswerProbe | None = None,
) -> Iterator[Step]:
    """Decode until an end-of-answer token (not yielded) or the length limit; the caller holds the cache's scratch.

    Args:
        hidden: (hidden,), the decoder's output for the last prompt token.
        probe: watches every token that is read.

    Raises:
        ModelError: the model produced NaN or infinite logits.
    """
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
            hidden = model.forward(model.text([token]), cache, shared_rotation, probe)


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
    history = torch.tensor([generated], dtype=torch.long, device=logits.device)
    scores = processors(history, logits[None])[0]
    if sampling.temperature == 0:
        return int(scores.argmax())
    return int(torch.multinomial(scores.softmax(dim=-1), 1, generator=generator))
