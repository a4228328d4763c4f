"""The text model's layers through its own parameters, for videos that many independent questions share.

The hidden states of a batch are one flat list of tokens: first the context of every video (prefix and visual tokens),
then its rows of question blocks. A context token sees its video's context; a question token sees its video's context
and its own row. So a video is computed once, however many questions are asked about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Layout:
    """How the flat list of T tokens is made up: `videos` x `context` tokens, then `videos` x `rows` x `row_tokens`."""

    videos: int
    context: int
    rows: int
    row_tokens: int

    @property
    def context_tokens(self) -> int:
        """How many come first."""
        return self.videos * self.context


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """Rotary angles of the T tokens: cosine and sine, (T, 1, head_dim / 2)."""

    cos: Tensor
    sin: Tensor

    def __call__(self, heads: Tensor) -> Tensor:
        """Rotate (T, heads, head_dim)."""
        first, second = heads.chunk(2, -1)
        return torch.cat((first * self.cos - second * self.sin, second * self.cos + first * self.sin), -1)

    def at(self, tokens: Tensor) -> Rotation:
        """The angles of some of the tokens."""
        return Rotation(self.cos[tokens], self.sin[tokens])


class LeanDecoder:
    """Runs the layers of a Qwen2 text model of transformers."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.layers: int = len(model.layers)
        self.heads: int = model.config.num_attention_heads
        self.key_value_heads: int = model.config.num_key_value_heads
        self.head_dim: int = model.layers[0].self_attn.head_dim
        self.shared = self.heads // self.key_value_heads  # query heads per key head

    def rotation(self, positions: Tensor) -> Rotation:
        """Angles of the positions (T,)."""
        reference = self.model.embed_tokens.weight  # only its dtype and device matter
        cos, sin = self.model.rotary_emb(reference, positions[None])  # (1, T, head_dim), both halves the same
        half = self.head_dim // 2
        return Rotation(cos[0, :, None, :half], sin[0, :, None, :half])

    def layer(
        self,
        index: int,
        hidden: Tensor,
        rotation: Rotation,
        layout: Layout,
        context_mask: Tensor | None,
        question_mask: Tensor,
    ) -> Tensor:
        """One layer.

        Args:
            index: of the layer.
            hidden: (T, hidden).
            rotation: of the T tokens.
            layout: of the T tokens.
            context_mask: (videos, 1, context, context), bool; None is causal.
            question_mask: (videos * rows, 1, row_tokens, context + row_tokens), bool.
        """
        layer = self.model.layers[index]
        query, key, value = self._project(layer, hidden, rotation)
        mixed = self._attend(query, key, value, layout, context_mask, question_mask)
        hidden = hidden + layer.self_attn.o_proj(mixed)
        mlp, normed = layer.mlp, _rms_norm(layer.post_attention_layernorm, hidden)
        gate, up = functional.linear(normed, torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight))).chunk(2, -1)
        changed: Tensor = hidden + mlp.down_proj(functional.silu(gate) * up)
        return changed

    def attention_logits(
        self,
        index: int,
        hidden: Tensor,
        rotation: Rotation,
        layout: Layout,
        question_mask: Tensor,
        at: Tensor,
        heads: int,
    ) -> Tensor:
        """Attention logits of the layer's first heads from some question tokens, hidden keys at the lowest float.

        Args:
            index, hidden, rotation, layout, question_mask: as for `layer`.
            at: flat places of the n question tokens among all question tokens, (n,).
            heads: how many heads.

        Returns:
            (n, heads, context + row_tokens).
        """
        layer, first = self.model.layers[index], layout.context_tokens
        attention, head_dim = layer.self_attn, self.head_dim
        key_heads = math.ceil(heads / self.shared)
        normed = _rms_norm(layer.input_layernorm, hidden)
        asking = first + at
        query = _linear_part(attention.q_proj, normed[asking], heads * head_dim).view(-1, heads, head_dim)
        key = _linear_part(attention.k_proj, normed, key_heads * head_dim).view(-1, key_heads, head_dim)
        query, key = rotation.at(asking)(query), rotation(key)
        row = at // layout.row_tokens  # among videos * rows
        of_context = key[:first].view(layout.videos, layout.context, key_heads, head_dim)[row // layout.rows]
        of_row = key[first:].view(-1, layout.row_tokens, key_heads, head_dim)[row]
        keys = torch.cat((of_context, of_row), 1)  # (n, context + row_tokens, key_heads, head_dim)
        query = query.view(-1, key_heads, heads // key_heads, head_dim)
        logits = torch.einsum("nghd,ncgd->nghc", query, keys).flatten(1, 2) / math.sqrt(head_dim)
        visible = question_mask.flatten(0, 2)[at]  # (n, context + row_tokens)
        return logits.masked_fill(~visible[:, None], torch.finfo(logits.dtype).min)

    def _project(self, layer: Any, hidden: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries, rotated keys and values, all (T, heads, head_dim): key heads repeated for their queries."""
        attention = layer.self_attn
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        fused = functional.linear(
            _rms_norm(layer.input_layernorm, hidden),
            torch.cat([projection.weight for projection in projections]),
            torch.cat([projection.bias for projection in projections]),
        ).view(len(hidden), -1, self.head_dim)  # (T, heads + 2 * key_value_heads, head_dim)
        rotated = rotation(fused[:, : self.heads + self.key_value_heads])
        value = fused[:, self.heads + self.key_value_heads :]
        return rotated[:, : self.heads], self._repeated(rotated[:, self.heads :]), self._repeated(value)

    def _repeated(self, heads: Tensor) -> Tensor:
        return heads.repeat_interleave(self.shared, 1)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        layout: Layout,
        context_mask: Tensor | None,
        question_mask: Tensor,
    ) -> Tensor:
        """Attention of the context tokens, then of the question tokens: (T, heads * head_dim)."""
        first = layout.context_tokens
        parts = (query, key, value)
        context = [torch.unflatten(part[:first], 0, (layout.videos, -1)).transpose(1, 2) for part in parts]
        rows = [torch.unflatten(part[first:], 0, (-1, layout.row_tokens)).transpose(1, 2) for part in parts]
        of_context = functional.scaled_dot_product_attention(
            context[0], context[1], context[2], attn_mask=context_mask, is_causal=context_mask is None
        )
        seen = [
            torch.cat((shared.repeat_interleave(layout.rows, 0), own), 2)
            for shared, own in zip(context[1:], rows[1:], strict=True)
        ]  # keys and values, (videos * rows, heads, context + row_tokens, head_dim)
        of_rows = functional.scaled_dot_product_attention(rows[0], seen[0], seen[1], attn_mask=question_mask)
        return torch.cat([part.transpose(1, 2).flatten(0, 1).flatten(1) for part in (of_context, of_rows)])


def _rms_norm(norm: Any, hidden: Tensor) -> Tensor:
    """The model's own norm in one kernel."""
    return functional.rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _linear_part(linear: nn.Linear, inputs: Tensor, outputs: int) -> Tensor:
    """The first `outputs` outputs of a linear module."""
    return functional.linear(inputs, linear.weight[:outputs], linear.bias[:outputs])
