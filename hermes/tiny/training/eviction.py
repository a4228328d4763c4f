"""Eviction by a streaming memory, simulated inside one forward pass.

Every visual token of every layer gets a life, counted in tokens written after it. At the end of each chunk the tokens
whose life is over are gone for everything that comes later. Short lives and long ones are shared out so that about a
given number of tokens is alive: shallow layers are a sliding window (all lives equal), deep layers keep a random few
for very long, the layers between go from one to the other. Deep layers prefer the last token of every frame.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hermes.tiny.architecture import TOKENS_PER_FRAME
from hermes.tiny.training.disturbance import Disturbance, VisualTokens

SHALLOW, DEEP = 0.1, 0.7  # shares of the layers where the window ends and where recency no longer counts
RECENCY = (0.75, 0.15)  # of the layers between, from the first to the last
ANCHOR_DRAWS = 0.12  # deep layers: anchors draw their lives from this best share of all draws, the others from the rest
LEAST_BUDGET = 16.0  # tokens
SHORTEST_DRAW = 1e-4


def recency_of(layer: int, layers: int) -> float:
    """How much a layer is a sliding window: 1 in shallow layers, 0 in deep ones."""
    shallow, deep = max(1, int(SHALLOW * layers)), int(DEEP * layers)
    if layer < shallow:
        return 1.0
    if layer >= deep:
        return 0.0
    high, low = RECENCY
    return high - (high - low) * (layer - shallow) / max(1, deep - shallow)


def draw_lives(tokens: VisualTokens, layers: int, disturbance: Disturbance) -> list[Tensor]:
    """The life of every visual token in every layer, in tokens; a list of (videos, N) from torch's generator."""
    videos, count = tokens.frame.shape
    device = tokens.frame.device
    budget = max(LEAST_BUDGET, disturbance.evict_to * count)
    shared = torch.rand(videos, count, device=device)
    lives = []
    for layer in range(layers):
        recency = 1.0 if disturbance.oldest_first else recency_of(layer, layers)
        draw = torch.rand(videos, count, device=device)
        if recency == 0:
            draw = torch.where(tokens.is_anchor, draw * ANCHOR_DRAWS, ANCHOR_DRAWS + (1 - ANCHOR_DRAWS) * draw)
        if disturbance.together:
            draw = torch.where(torch.rand(videos, count, device=device) < 0.5, shared, draw)
        spread = 1 - recency
        lives.append(life_scale(budget, count, spread) / draw.clamp(min=SHORTEST_DRAW) ** spread)
    return lives


def life_scale(budget: float, count: int, spread: float) -> float:
    """The shortest life n such that `budget` of `count` tokens are alive in the mean.

    A life is n / u**spread with u uniform in [0, 1], so a token of age x > n is alive with probability
    (n / x)**(1 / spread), and the mean number alive is n + the integral of that from n to `count`.
    """
    low, high = 1e-3, float(max(budget, count))
    if _mean_alive(high, count, spread) <= budget:
        return budget
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _mean_alive(middle, count, spread) < budget else (low, middle)
    return high


def _mean_alive(scale: float, count: int, spread: float) -> float:
    if spread < 1e-6 or scale >= count:
        return min(scale, count)
    power: float = 1 / spread - 1
    if abs(power) < 1e-6:
        return scale + scale * math.log(count / scale)
    further: float = (1 - (scale / count) ** power) / power
    return scale + scale * further


def alive_for_tokens(life: Tensor, chunk_frames: int) -> Tensor:
    """Which visual tokens (last axis) each visual token still finds: (videos, N, N), bool.

    A token finds its own chunk whole, up to itself, and of earlier chunks what the evictions before its chunk left.
    Example, chunks of 4 tokens: token 9 finds token 2 if life[2] > 8 - 2.
    """
    token = torch.arange(life.shape[1], device=life.device)
    chunk = chunk_frames * TOKENS_PER_FRAME
    written_after = (token // chunk * chunk)[:, None] - token[None, :]  # at the last eviction; < 1 in the own chunk
    causal = token[:, None] >= token[None, :]
    return causal & ((written_after < 1) | (written_after < life[:, None]))


def alive_for_questions(life: Tensor, seen: Tensor, chunk_frames: int) -> Tensor:
    """Which visual tokens a question finds, eviction having followed its last chunk: (videos, questions, N), bool.

    Args:
        life: (videos, N).
        seen: visual tokens before each question, (videos, questions), int64.
        chunk_frames: frames between two evictions.
    """
    count = life.shape[1]
    token = torch.arange(count, device=life.device)
    chunk = chunk_frames * TOKENS_PER_FRAME
    written = (((seen - 1) // chunk + 1) * chunk).clamp(max=count)  # when the last chunk was full, or the video over
    written_after = written[..., None] - token
    return (token < seen[..., None]) & (written_after < life[:, None])
