"""The attention function of the language model, registered with transformers under the name `hermes`.

It takes over causality (transformers hands it no mask), so layers may hold different numbers of tokens; and while a
guidance prompt is read or an answer is decoded it records how much attention each cached token receives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface

from hermes.scoring import pool_attention

ATTENTION_NAME = "hermes"


class PromptProbe:
    """Reads several prompts side by side behind one cache and pools the attention each pays to the visual tokens.

    The prompts are appended one after another; each sees the cache and itself only.

    Args:
        prompt_lengths: tokens of each prompt.
        wanted: per layer, the index of the prompt whose attention is recorded there, or None.
        prefix: system tokens at the start of every layer, which do not count as visual.
        causal: whether a prompt's tokens mask each other causally.

    Attributes:
        attention: per layer, what `hermes.scoring.pool_attention` gives for the wanted prompt, once that layer has run.
    """

    def __init__(self, prompt_lengths: Sequence[int], wanted: Sequence[int | None], prefix: int, causal: bool) -> None:
        self.prompt_lengths = tuple(prompt_lengths)
        self.wanted = tuple(wanted)
        self.prefix = prefix
        self.attention: list[Tensor | None] = [None] * len(wanted)
        self._own = _block_mask(self.prompt_lengths, causal)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Attention output (1, heads, tokens, head_dim) of the prompts, recording on the way."""
        heads, tokens, head_dim = query.shape[1:]
        kv_heads, cached = key.shape[1], key.shape[2] - tokens
        grouped = query.reshape(kv_heads, -1, head_dim).float()  # (kv_heads, heads / kv_heads * tokens, head_dim)
        scores = (grouped @ key[0].float().transpose(1, 2) * scaling).view(heads, tokens, -1)
        scores[:, :, cached:].masked_fill_(~self._own.to(scores.device), float("-inf"))
        weights = scores.softmax(dim=-1)  # (heads, tokens, cached + tokens)
        self._record(layer, weights, cached)
        output = weights.view(kv_heads, -1, cached + tokens) @ value[0].float()
        return output.view(1, heads, tokens, head_dim).to(query.dtype)

    def _record(self, layer: int, weights: Tensor, cached: int) -> None:
        prompt = self.wanted[layer]
        if prompt is not None:
            start = sum(self.prompt_lengths[:prompt])
            rows = weights[:, start : start + self.prompt_lengths[prompt]]
            self.attention[layer] = pool_attention(rows, self.prefix, cached - self.prefix)


class AnswerProbe:
    """Adds up the attention that the choice of each answer token pays to what was remembered before the question.

    Every token is chosen at the token in front of it: the first at the last one of the question. The attention output is
    that of an unwatched layer, to the bit; the weights are computed beside it.

    Args:
        slots: the layers that are watched, and how many slots at the start of each count.
        devices: of all layers.

    Attributes:
        attention: per watched layer (slots,) float32 on its device, mean over heads, summed over the choices so far; its sum
            stays below their number by what the question and the answer itself receive.
    """

    def __init__(self, slots: Mapping[int, int], devices: Sequence[torch.device]) -> None:
        self.attention = {layer: torch.zeros(count, device=devices[layer]) for layer, count in slots.items()}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Attention output (1, heads, tokens, head_dim), recording that of the last token on the way."""
        attention = self.attention.get(layer)
        if attention is not None:
            last = query[0, :, -1].float().view(key.shape[1], -1, key.shape[3])  # (kv_heads, heads / kv_heads, head_dim)
            scores = torch.bmm(last * scaling, key[0].float().mT)
            weights = scores.view(query.shape[1], -1).softmax(dim=-1)  # (heads, cached + tokens)
            attention += weights.mean(dim=0)[: len(attention)]
        return _causal(query, key, value, scaling)


def _block_mask(lengths: Sequence[int], causal: bool) -> Tensor:
    """(tokens, tokens) bool, true where a prompt token may look at another prompt token."""
    block = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))  # (tokens,), which prompt it is of
    mask = block[:, None] == block
    return mask.tril() if causal else mask


def hermes_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    probe: PromptProbe | AnswerProbe | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Causal attention of new tokens over a cache that ends with them (lower-right aligned), grouped heads.

    Args:
        query: (1, heads, tokens, head_dim). key, value: (1, kv_heads, cached + tokens, head_dim).
        probe: set while guidance prompts are read or an answer is watched.

    Returns: (1, tokens, heads, head_dim) and None, as transformers expects.
    """
    query = query.to(key.dtype)  # rotation is done in float32
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if probe is not None:
        output = probe.attend(int(module.layer_idx), query, key, value, scaling)  # type: ignore[arg-type]
    else:
        output = _causal(query, key, value, scaling)
    return output.transpose(1, 2), None


def _causal(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    heads, tokens = query.shape[1], query.shape[2]
    if tokens == 1:  # the heads of a group become the queries of one head, so keys are read once and never repeated
        grouped = query.view(1, key.shape[1], heads // key.shape[1], -1)
        return F.scaled_dot_product_attention(grouped, key, value, scale=scaling).view(query.shape)
    mask = causal_lower_right(tokens, key.shape[2])
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=True)


def register() -> None:
    """Make `hermes_attention` known to transformers; registering twice changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, hermes_attention)
