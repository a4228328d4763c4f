"""Guidance prompts: generic questions that stand in for the one a user has not asked yet (paper appendix B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hermes.attention import PromptProbe
from hermes.cache import Origin, SlabCache
from hermes.config import MemoryConfig
from hermes.models.base import VideoModel
from hermes.policies import Guidance

LOCAL_PROMPT = "Describe the current scene in detail, focusing on specific objects, fine-grained actions, and spatial relationships."
GLOBAL_PROMPT = (
    "Summarize the video narrative, identifying main characters, key events, timeline changes, and the overall theme."
)


@dataclass(frozen=True)
class Exchange:
    """A question and its answer; the last one colours the guidance prompts."""

    question: str
    answer: str

    def __str__(self) -> str:
        return f"Question: {self.question} Answer: {self.answer}"


def prompt_text(guidance: Guidance, last: Exchange | None) -> str:
    """The text of a guidance prompt, with the last exchange woven in if there is one."""
    local = f"Find recent details related to: {last}. {LOCAL_PROMPT}" if last else LOCAL_PROMPT
    whole = f"Context summary: {last}. {GLOBAL_PROMPT}" if last else GLOBAL_PROMPT
    texts = {Guidance.LOCAL: local, Guidance.GLOBAL: whole, Guidance.MIXED: f"{local}; {whole}"}
    return texts[guidance]


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
    prompts = sorted({guidance for guidance in wanted if guidance is not None}, key=lambda guidance: guidance.value)
    if not prompts:
        return [None] * len(wanted)
    ids = [model.tokenize(prompt_text(guidance, last)) for guidance in prompts]
    return attention_of(model, cache, prefix, ids, [None if g is None else prompts.index(g) for g in wanted], config)


def attention_of(
    model: VideoModel,
    cache: SlabCache,
    prefix: int,
    prompts: Sequence[Sequence[int]],
    wanted: Sequence[int | None],
    config: MemoryConfig,
) -> list[Tensor | None]:
    """As `guidance_attention`, for prompts given as token ids; `wanted` is an index into them per layer."""
    causal = config.guidance == "forward"
    probe = PromptProbe([len(ids) for ids in prompts], wanted, prefix, causal)
    embeds = torch.cat([model.embed_text(ids) for ids in prompts])
    positions = torch.cat([model.text_positions(len(ids)) for ids in prompts], dim=1)  # each prompt starts anew
    cache.reserve(len(embeds))
    with cache.scratch():
        if causal:
            origin = Origin.text(len(embeds))
            model.forward(embeds, cache, positions, origin, config.shared_rotation, probe)
        else:
            model.probe_embeddings(embeds, cache, positions, probe, config.shared_rotation)
    return probe.attention
