"""Rotary position embedding applied to keys at rest: turning them to a position and back (paper appendix E)."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn vectors to the positions that `cos, sin` stand for, channel j paired with j + head_dim / 2.

    Args:
        vectors: (..., tokens, head_dim).
        cos, sin: (tokens, head_dim), as a transformers rotary embedding returns them.

    Returns:
        float32, same shape as `vectors`. Angles and rotation stay in float32 whatever the cache's dtype.
    """
    vectors = vectors.float()
    first, second = vectors.chunk(2, dim=-1)
    return vectors * cos.float() + torch.cat((-second, first), dim=-1) * sin.float()


def unrotate(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Undo `rotate`: the exact inverse, also where the embedding scales its cos and sin (YaRN's attention scaling).

    Args and returns as `rotate`.
    """
    scale = cos.float().square() + sin.float().square()  # (tokens, head_dim), 1 without attention scaling
    return rotate(vectors, cos, -sin) / scale
