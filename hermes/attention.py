"""The attention function of the language model, registered with transformers under the name `hermes`.

It takes over causality (transformers hands it no mask), so layers may hold different numbers of tokens; and while a
guidance prompt is read or an answer is decoded it records how much attention each cached token receives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface

from hermes.scoring import pool_attention
from hermes.upload import upload

ATTENTION_NAME = "hermes"

_WEIGHTS_BYTES = 64 * 2**20  # of attention weights that guidance holds at once, at least those of one group of heads


class Attending(Protocol):
    """What computes the attention of every layer in a forward, in place of the usual function."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Attention output (1, heads, tokens, head_dim); arguments as those of `hermes_attention`."""


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
        """Attention output (1, heads, tokens, head_dim) of the prompts, recording on the way.

        The weights of as many heads are held at a time as `_WEIGHTS_BYTES` takes.
        """
        heads, tokens, head_dim = query.shape[1:]
        kv_heads, length = key.shape[1], key.shape[2]
        grouped = query.reshape(kv_heads, -1, head_dim)  # (kv_heads, heads / kv_heads * tokens, head_dim)
        together = max(1, _WEIGHTS_BYTES // (grouped.shape[1] * length * 4))
        outputs, pooled = [], []
        for block in range(0, kv_heads, together):
            some = slice(block, block + together)
            weights = self._weights(grouped[some], key[0, some], tokens, scaling)
            outputs.append(weights @ value[0, some].float())
            pooled.append(self._pooled(layer, weights.view(-1, tokens, length)))
        if self.wanted[layer] is not None:
            self.attention[layer] = torch.stack(pooled).sum(dim=0) / heads
        return torch.cat(outputs).view(1, heads, tokens, head_dim).to(query.dtype)

    def _weights(self, query: Tensor, key: Tensor, tokens: int, scaling: float) -> Tensor:
        """(some kv_heads, heads / kv_heads * tokens, cached + tokens), float32, rows summing to 1."""
        scores = query.float() @ key.float().mT * scaling
        own = scores.view(-1, tokens, scores.shape[-1])[:, :, -tokens:]
        if self._own.device != own.device:
            self._own = upload(self._own, own.device)
        own.masked_fill_(~self._own, float("-inf"))
        return scores.softmax(dim=-1)

    def _pooled(self, layer: int, weights: Tensor) -> Tensor:
        """What the wanted prompt pays to each visual token in some heads (heads, tokens, cached + tokens), their sum."""
        prompt = self.wanted[layer]
        if prompt is None:
            return weights.new_zeros(())
        start = sum(self.prompt_lengths[:prompt])
        rows = weights[:, start : start + self.prompt_lengths[prompt]]
        cached = weights.shape[2] - weights.shape[1]
        return len(rows) * pool_attention(rows, self.prefix, cached - self.prefix)


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

    def move(self, storage: Mapping[int, Tensor]) -> None:
        """Go on adding up elsewhere: per watched layer at the start of a (slots or more,) float32 tensor."""
        for layer, attention in self.attention.items():
            self.attention[layer] = storage[layer][: len(attention)].copy_(attention)

    def settle(self) -> None:
        """Take the sums out of any storage they were moved to, which others will use."""
        self.attention = {layer: attention.clone() for layer, attention in self.attention.items()}


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
    probe: Attending | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Causal attention of new tokens over a cache that ends with them (lower-right aligned), grouped heads.

    Args:
        query: (1, heads, tokens, head_dim). key, value: (1, kv_heads, cached + tokens, head_dim).
        probe: set while guidance prompts are read or an answer is watched, and in steps of fixed shapes.

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
