"""What the device could do at best: measured copy bandwidth and matrix rate, and what the model's work comes to at them.

The bounds are rooflines (Williams, Waterman, Patterson 2009): bytes that have to be read once at the copy bandwidth, or
multiplications at the matrix rate, whichever takes longer. Nothing can be faster, and kernels are rarely close.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from hermes.bench.arms import kv_token_bytes
from hermes.models.base import VideoModel

_COPY_BYTES = {"gpu": 2**30, "cpu": 2**28}  # far beyond the caches
_MATRIX_SIDE = {"gpu": 8192, "cpu": 2048}
_SECONDS = 0.5  # that each of the two takes


@dataclass(frozen=True)
class Speed:
    """What a device was measured to do.

    Attributes:
        copy_gb_s: bytes read and written by a copy of a large tensor, 10^9 a second.
        matrix_tflop_s: multiplications and additions of a product of large square matrices in the model's dtype, 10^12 a
            second.
    """

    copy_gb_s: float
    matrix_tflop_s: float


@dataclass(frozen=True)
class Work:
    """What a model has to read and multiply.

    Attributes:
        weight_bytes: of all that a decoded token passes: decoder layers and output head.
        weight_count: parameters of the decoder layers, quantised ones as if they were not.
        kv_bytes: keys and values of a token in all layers.
        attention_width: query channels of all layers together.
    """

    weight_bytes: int
    weight_count: int
    kv_bytes: int
    attention_width: int

    @classmethod
    def of(cls, model: VideoModel) -> Work:
        """Of a loaded model."""
        layers = list(model.decoder.layers.parameters())
        head = model.model.get_output_embeddings().weight
        config = model.text_config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            weight_bytes=sum(weight.nbytes for weight in layers) + head.nbytes,
            weight_count=sum(_count(weight) for weight in layers),
            kv_bytes=kv_token_bytes(model),
            attention_width=model.layers * config.num_attention_heads * head_dim,
        )

    def least_tpot_ms(self, speed: Speed, held: float) -> float:
        """A token behind `held` others: every weight and the cache are read once."""
        return (self.weight_bytes + held * self.kv_bytes) / speed.copy_gb_s / 1e6

    def least_ttft_ms(self, speed: Speed, held: float, question: int) -> float:
        """The first token of an answer to so many tokens of a question."""
        return max(self.least_tpot_ms(speed, held), self.least_prefill_ms(speed, held, question))

    def least_prefill_ms(self, speed: Speed, held: float, tokens: int) -> float:
        """So many tokens through the decoder behind `held` others, each attending to those and to half of its own."""
        linear = 2 * self.weight_count * tokens
        attention = 4 * self.attention_width * tokens * (held + tokens / 2)
        return (linear + attention) / speed.matrix_tflop_s / 1e9


def measure(device: torch.device, dtype: torch.dtype) -> Speed:
    """Measure a device, which takes about a second."""
    kind = "cpu" if device.type == "cpu" else "gpu"
    return Speed(_copy_gb_s(_COPY_BYTES[kind], device), _matrix_tflop_s(_MATRIX_SIDE[kind], device, dtype))


def _copy_gb_s(nbytes: int, device: torch.device) -> float:
    source = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * nbytes / _fastest_s(lambda: target.copy_(source), device) / 1e9


def _matrix_tflop_s(side: int, device: torch.device, dtype: torch.dtype) -> float:
    left = torch.randn(side, side, device=device).to(dtype)
    return 2 * side**3 / _fastest_s(lambda: left @ left, device) / 1e12


def _fastest_s(job: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest run, after one that does not count."""
    taken: list[float] = []
    begun = time.perf_counter()
    while len(taken) < 3 or time.perf_counter() - begun < _SECONDS:
        start = time.perf_counter()
        job()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elif device.type == "mps":
            torch.mps.synchronize()
        taken.append(time.perf_counter() - start)
    return min(taken[1:])


def _count(weight: torch.nn.Parameter) -> int:
    """Numbers that a parameter stands for: nf4 packs two into a byte."""
    state = getattr(weight, "quant_state", None)
    return weight.numel() if state is None else int(torch.Size(state.shape).numel())
