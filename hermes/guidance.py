"""Guidance prompts: what stands in for the question that a user has not asked yet (paper appendix B)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hermes.attention import PromptProbe
from hermes.cache import SlabCache
from hermes.config import GLOBAL_PROMPT, LOCAL_PROMPT, MemoryConfig
from hermes.models.base import VideoModel
from hermes.policies import Guidance


@dataclass(frozen=True)
class Exchange:
    """A question and its answer; the last one colours the guidance prompts."""

    question: str
    answer: str

    def __str__(self) -> str:
        return f"Question: {self.question} Answer: {self.answer}"


def prompt_ids(model: VideoModel, guidance: Guidance, history: str) -> list[int]:
    """Token ids of a guidance prompt; `CHAT` is an empty question in the checkpoint's own chat template.

    Raises:
        ModelError: the checkpoint has no chat template that could be split, and the prompt is made of one.
    """
    text = prompt_text(guidance, history)
    return model.prompt("template").question_ids(text) if guidance is Guidance.CHAT else model.tokenize(text)


def prompt_text(guidance: Guidance, history: str) -> str:
    """The text of a guidance prompt, with the last exchange woven in if there is one; `CHAT` has no words of its own."""
    local = f"Find recent details related to: {history}. {LOCAL_PROMPT}" if history else LOCAL_PROMPT
    whole = f"Context summary: {history}. {GLOBAL_PROMPT}" if history else GLOBAL_PROMPT
    texts = {Guidance.LOCAL: local, Guidance.GLOBAL: whole, Guidance.MIXED: f"{local}; {whole}", Guidance.CHAT: ""}
    return texts[guidance]


def guidance_room(model: VideoModel, wanted: Sequence[Guidance | None], config: MemoryConfig) -> int:
    """Tokens that the wanted prompts take at most, all together."""
    prompts = [prompt_ids(model, guidance, history=str(Exchange("", ""))) for guidance in _distinct(wanted)]
    return sum(len(ids) + 2 * config.history_tokens for ids in prompts)  # the mixed prompt holds it twice


def guidance_attention(
    model: VideoModel,
    cache: SlabCache,
    prefix: int,
    wanted: Sequence[Guidance | None],
    last: Exchange | None,
    config: MemoryConfig,
) -> list[Tensor | None]:
    """Pooled attention of the wanted guidance prompts to the visual tokens; the cache is left as it was.

    All prompts that some layer wants are read side by side in one forward.

    Args:
        prefix: system tokens at the start of the cache.
        wanted: per layer, the prompt whose attention is needed there, or None.
        last: the last question and answer.

    Returns: per layer (visual tokens,) float32, or None where nothing was wanted.
    """
    prompts = _distinct(wanted)
    if not prompts:
        return [None] * len(wanted)
    history = _cut(model, str(last), config.history_tokens) if last else ""
    ids = [prompt_ids(model, guidance, history) for guidance in prompts]
    causal = config.guidance == "forward"
    indices = [None if guidance is None else prompts.index(guidance) for guidance in wanted]
    probe = PromptProbe([len(prompt) for prompt in ids], indices, prefix, causal)
    texts = [model.text(prompt) for prompt in ids]
    positions = torch.cat([text.positions for text in texts], dim=1)  # each prompt starts anew
    tokens = replace(model.plain(torch.cat([text.embeds for text in texts])), positions=positions)
    cache.reserve(len(tokens))
    with cache.scratch():
        if causal:
            model.forward(tokens, cache, config.shared_rotation, probe)
        else:
            model.probe_embeddings(tokens, cache, probe)
    return probe.attention


def _distinct(wanted: Sequence[Guidance | None]) -> list[Guidance]:
    return sorted({guidance for guidance in wanted if guidance is not None}, key=lambda guidance: guidance.value)


def _cut(model: VideoModel, text: str, limit: int) -> str:
    """The start of a text, at most `limit` tokens."""
    ids = model.tokenize(text)
    if len(ids) <= limit:
        return text
    starts: Iterator[str] = (model.tokenizer.decode(ids[:end]) for end in range(limit, -1, -1))
    return next(start for start in starts if len(model.tokenize(start)) <= limit)  # cut text may split into more tokens
