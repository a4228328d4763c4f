"""A forward of text through the decoder as a function of fixed shapes, so that a CUDA graph can hold it.

Where tokens go is told by numbers on the device instead of by shapes: they are written into numbered slots, and attention
masks by slot. Nothing here waits for the device or asks it anything.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import varlen

from hermes.cache import TEXT_ORIGIN, SlabCache
from hermes.models.base import VideoModel
from hermes.upload import upload

_MOST_BLOCKS = 32  # of slots, that one query reads side by side


class StaticStep:
    """Reads a fixed number of text tokens into a cache whose layers share one slab.

    Fewer tokens are filled up with any others, which stand behind them in slots that are still free, so nobody sees them.

    Args:
        tokens: how many it takes.
        extent: slots at the start of each layer that it looks at; for one token all of them.
        seen: (watched layers, capacity) float32, where the attention of the last token is added up (`AnswerProbe`).
        watched: layer to row of `seen`.
        fused: use the library's kernel, where there is one (`fused_attention_runs`).

    Attributes:
        output: (hidden,), the last token's hidden state after the final norm, once it has run.
    """

    def __init__(
        self,
        model: VideoModel,
        cache: SlabCache,
        tokens: int,
        extent: int,
        seen: Tensor,
        watched: Mapping[int, int],
        fused: bool = False,
    ) -> None:
        (self._slab,) = cache.slabs
        self._model, self._layers, self._extent = model, cache.layers, extent
        self._seen, self._watched = seen, watched
        device, hidden = self._slab.device, model.text_config.hidden_size
        self.embeds = torch.zeros(1, tokens, hidden, dtype=model.dtype, device=device)
        self.marks = torch.zeros(2 * len(cache.layers) + 1, device=device)  # lengths, next positions, last token
        self.output = torch.zeros(hidden, dtype=model.dtype, device=device)
        ends = [torch.tensor([0, end], dtype=torch.int32) for end in (tokens, extent)]
        self._fused = (upload(ends[0], device), upload(ends[1], device)) if fused else None

    def load(self, embeds: Tensor) -> None:
        """Take the tokens (at most `tokens`, hidden) that the next run reads behind what the layers hold now."""
        count = len(embeds)
        self.embeds[0, :count].copy_(embeds)  # behind them stays what an earlier text has left there
        lengths = [float(layer.length) for layer in self._layers]
        positions = [layer.next_position for layer in self._layers]
        marks = torch.tensor([*lengths, *positions, float(count - 1)])
        self.marks.copy_(upload(marks, self.marks.device), non_blocking=True)

    def run(self) -> None:
        """Read the loaded tokens; lengths and next positions of the layers are the caller's to move on."""
        layers, tokens = len(self._layers), self.embeds.shape[1]
        lengths, starts, last = torch.split(self.marks, [layers, layers, 1])
        steps = torch.arange(tokens, device=self.marks.device)
        slots = lengths.long()[:, None] + steps  # (layers, tokens)
        axes = self._slab.positions.shape[1]
        positions = (starts[:, None, None] + steps).expand(-1, axes, -1)  # (layers, axes, tokens)
        self._note(slots, positions)
        writer = _SlotWriter(self._slab.keys, self._slab.values, slots, self._extent)
        attention = _SlotAttention(slots, last.long(), self._extent, self._seen, self._watched, self._fused)
        angles = zip(*(torch.split(part, 1) for part in self._model.cos_sin(positions)), strict=True)
        hidden = self._model.through_layers(self.embeds, angles, writer, attention)
        self.output.copy_(self._model.decoder.norm(hidden.index_select(1, last.long()))[0, 0])

    def _note(self, slots: Tensor, positions: Tensor) -> None:
        """What `SlabCache.stage` notes of text tokens."""
        slab = self._slab
        slab.positions.scatter_(2, slots[:, None].expand_as(positions), positions)
        slab.place.scatter_(2, slots[:, None].expand(-1, slab.place.shape[1], -1), TEXT_ORIGIN)
        slab.count.scatter_(1, slots, 0)


class _SlotWriter:
    """A transformers cache, as far as its layers use one, that writes into numbered slots."""

    def __init__(self, keys: Tensor, values: Tensor, slots: Tensor, extent: int) -> None:
        self._keys, self._values, self._slots, self._extent = keys, values, slots, extent

    def update(
        self, key_states: Tensor, value_states: Tensor, layer: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write (1, kv_heads, tokens, head_dim) and return views of the first `extent` slots."""
        held = []
        for slab, states in ((self._keys, key_states), (self._values, value_states)):
            row = slab[layer : layer + 1]
            row.index_copy_(2, self._slots[layer], states.to(row.dtype))
            held.append(row.narrow(2, 0, self._extent))
        return held[0], held[1]


class _SlotAttention:
    """Attention in which a token sees the slots up to its own, of whatever age their contents are.

    Args:
        slots: (layers, tokens) int64, where each layer holds the tokens; one behind the other.
        last: (1,) int64, which of them is the last that counts.
        extent, seen, watched: as in `StaticStep`.
        fused: for the library's kernel, where tokens and slots begin and end, (2,) int32 each.
    """

    def __init__(
        self,
        slots: Tensor,
        last: Tensor,
        extent: int,
        seen: Tensor,
        watched: Mapping[int, int],
        fused: tuple[Tensor, Tensor] | None,
    ) -> None:
        self._slots, self._last, self._seen, self._watched, self._fused = slots, last, seen, watched, fused
        self._numbers = torch.arange(extent, device=slots.device)
        self._used = (slots[:, -1:] + 1).int()  # (layers, 1)
        if self._watched or (self._fused is None and slots.shape[1] == 1):
            unseen = self._numbers > slots.index_select(1, last)  # (layers, extent), by the last token
            self._bias = torch.zeros(unseen.shape, device=slots.device).masked_fill_(unseen, float("-inf"))

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Attention output (1, heads, tokens, head_dim); the last token's weights are added up on the way."""
        alone = query.shape[2] == 1 and self._fused is None
        if alone or layer in self._watched:
            weights = self._weights(layer, query, key, scaling)
            if layer in self._watched:
                self._seen[self._watched[layer], : weights.shape[2]].add_(weights.mean(dim=(0, 1)))
            if alone:
                return _weighted(weights, value).view(query.shape).to(query.dtype)
        if self._fused is None:
            return self._masked(layer, query, key, value, scaling)
        return self._by_kernel(layer, query, key, value, *self._fused, scaling)

    def _weights(self, layer: int, query: Tensor, key: Tensor, scaling: float) -> Tensor:
        """The last token's attention to each slot, (kv_heads, heads / kv_heads, extent) float32."""
        kv_heads, head_dim = key.shape[1], key.shape[3]
        last = query[0].index_select(1, self._last).reshape(kv_heads, -1, head_dim)
        scores = _product(last, key[0].mT)
        return torch.add(self._bias[layer], scores, alpha=scaling).softmax(dim=-1)

    def _masked(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Several tokens. The heads of a group share their keys as a batch of one, without a copy."""
        grouped = query.reshape(key.shape[1], -1, *query.shape[2:])  # (kv_heads, heads / kv_heads, tokens, head_dim)
        keys, values = (shared[0][:, None].expand(-1, grouped.shape[1], -1, -1) for shared in (key, value))
        mask = self._numbers <= self._slots[layer][:, None]  # (tokens, extent)
        output = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=scaling)
        return output.reshape(query.shape)

    def _by_kernel(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, tokens: Tensor, extent: Tensor, scaling: float
    ) -> Tensor:
        """Causal and aligned to the last slot in use, whose number the kernel reads on the device."""
        queries, keys, values = (part[0].transpose(0, 1) for part in (query, key, value))  # (tokens, heads, head_dim)
        output: Tensor = _VARLEN(
            queries, keys, values, tokens, extent, len(queries), len(keys),
            scale=scaling, window_size=(-1, 0), enable_gqa=True, seqused_k=self._used[layer],
        )  # fmt: skip
        return output.transpose(0, 1)[None]


_VARLEN: Callable[..., Any] = varlen.varlen_attn
KERNEL_KNOWN = {"scale", "window_size", "enable_gqa", "seqused_k"} <= inspect.signature(varlen.varlen_attn).parameters.keys()


def fused_attention_runs(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch brings a kernel that reads a part of a cache whose length stands on the device."""
    sixteen = dtype in (torch.float16, torch.bfloat16)
    return KERNEL_KNOWN and sixteen and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def _weighted(weights: Tensor, value: Tensor) -> Tensor:
    """The sum of values (1, kv_heads, slots, head_dim) by weights (kv_heads, group, slots): (kv_heads, group, head_dim)
    float32.

    In blocks of slots, because a matrix product over all slots at once would keep only as many processors busy as there are
    heads. A block of a whole layer is a view, so values are read once.
    """
    kv_heads, group, slots = weights.shape
    blocks = math.gcd(slots, 8 * _MOST_BLOCKS) // 8 or 1  # of multiples of 8 slots, as matrix units want them
    if not value[0].is_contiguous():
        blocks = 1
    split = weights.to(value.dtype).view(kv_heads, group, blocks, -1).transpose(1, 2).reshape(kv_heads * blocks, group, -1)
    parts = _product(split, value[0].reshape(kv_heads * blocks, slots // blocks, -1))
    return parts.view(kv_heads, blocks, group, -1).sum(dim=1)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Products of matrices (batch, a, b) and (batch, b, c), summed in float32 and not rounded to 16 bits after that."""
    if left.device.type == "cuda" and left.dtype != torch.float32:
        return torch.bmm(left, right, out_dtype=torch.float32)
    return torch.bmm(left.float(), right.float())
