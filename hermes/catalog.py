"""The models that are known by a short name: where they are, how large they are, and what memory they need.

Numbers are those of the published checkpoints' config.json files; a test builds every architecture from its configuration
and compares. Nothing here loads torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from hermes.config import MemoryConfig

Precision = Literal["fp32", "bf16", "8bit", "4bit"]
"""fp32 is how a CPU runs a model, bf16 how a GPU does; the other two are the weights of `--quant`."""

PRECISIONS: tuple[Precision, ...] = get_args(Precision)

TEXT_TOKENS = 1536
"""Slots of the cache for text, at the most: the system prefix, and the guidance prompts or a question with its answer."""

WORKING_BYTES = 2 * 2**30
"""Allowance on every device, at the most, for a chunk on its way through a layer. In the 72B model the MLP's three tensors
of (3136 tokens, 29568) take 0.53 GiB, queries, keys and hidden states less than 0.2 GiB; the vision tower works before that,
in less; the rest is for kernels and for what the allocator rounds up. A smaller model needs no more than a quarter of its
weights."""


@dataclass(frozen=True)
class KnownModel:
    """A model with a short name.

    Attributes:
        alias: its short name.
        hub_id: its Hugging Face id; None for the one inside this package.
        parameters: of the whole model, shared ones counted once.
        quantisable: of them, the weights of the language layers' linear modules, which are those that `--quant` quantises.
        layers: decoder layers.
        kv_heads: key and value heads of a layer.
        head_dim: channels of a head.
        hidden_size: of the decoder.
        vocabulary: rows of its embedding.
        frame_tokens: visual tokens of a frame, the most where they vary.
        frame_tokens_vary: whether they depend on the picture's shape.
    """

    alias: str
    hub_id: str | None
    parameters: int
    quantisable: int
    layers: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    vocabulary: int
    frame_tokens: int = 196
    frame_tokens_vary: bool = False

    @property
    def name(self) -> str:
        """Its Hugging Face id, or the alias of the embedded model."""
        return self.hub_id or self.alias

    @property
    def disk_bytes(self) -> int:
        """Size of its weight files; all are published in 16 bits."""
        return 2 * self.parameters

    def weight_bytes(self, precision: Precision) -> int:
        """Size of the weights in memory. Quantised, what is not `quantisable` stays in 16 bits; nf4 with double
        quantisation adds to each block of 64 weights an 8-bit scale, and to 256 such scales one of 32 bits."""
        rest = 2 * (self.parameters - self.quantisable)
        match precision:
            case "fp32":
                return 4 * self.parameters
            case "bf16":
                return 2 * self.parameters
            case "8bit":
                return rest + self.quantisable
            case "4bit":
                return rest + self.quantisable // 2 + self.quantisable // 64 + self.quantisable // (64 * 256) * 4

    def cache_bytes(self, width: int = 2) -> int:
        """Size of the KV cache at the default budget, in numbers of `width` bytes: rotated keys, unrotated keys and values
        of every layer, for the budget, one chunk on top of it and the text."""
        memory = MemoryConfig()
        slots = memory.budget + memory.chunk_frames * self.frame_tokens + TEXT_TOKENS
        return 3 * self.layers * self.kv_heads * self.head_dim * slots * width

    def memory_bytes(self, precision: Precision, devices: int = 1) -> int:
        """Memory to play a video with, at the default budget: weights, KV cache, and on each of so many devices the
        allowance of `WORKING_BYTES`. What CUDA itself takes of a GPU, some hundred MB, is not counted."""
        weights = self.weight_bytes(precision)
        cache = self.cache_bytes(4 if precision == "fp32" else 2)
        return weights + cache + devices * min(WORKING_BYTES, weights // 4)


TINY = KnownModel("tiny", None, 2089632, 1474560, 10, 2, 32, 128, 704, frame_tokens=4)
"""The embedded model; its folder is `hermes.tiny.checkpoint_folder()`."""

CATALOG = (
    KnownModel(
        "qwen2.5vl-32b", "Qwen/Qwen2.5-VL-32B-Instruct",
        33452718336, 31205621760, 64, 8, 128, 5120, 152064, frame_tokens_vary=True,
    ),
    KnownModel(
        "ov-72b", "llava-hf/llava-onevision-qwen2-72b-ov-hf", 73181570592, 70212648960, 80, 8, 128, 8192, 152128
    ),
    KnownModel(
        "qwen3vl-8b", "Qwen/Qwen3-VL-8B-Instruct",
        8767123696, 6945767424, 36, 8, 128, 4096, 151936, frame_tokens_vary=True,
    ),
    KnownModel(
        "qwen2.5vl-7b", "Qwen/Qwen2.5-VL-7B-Instruct",
        8292166656, 6525288448, 28, 4, 128, 3584, 152064, frame_tokens_vary=True,
    ),
    KnownModel("ov-7b", "llava-hf/llava-onevision-qwen2-7b-ov-hf", 8030807584, 6525288448, 28, 4, 128, 3584, 152128),
    KnownModel(
        "qwen3vl-4b", "Qwen/Qwen3-VL-4B-Instruct",
        4437815808, 3633315840, 36, 8, 128, 2560, 151936, frame_tokens_vary=True,
    ),
    KnownModel(
        "qwen2.5vl-3b", "Qwen/Qwen2.5-VL-3B-Instruct",
        3754622976, 2774532096, 36, 2, 128, 2048, 151936, frame_tokens_vary=True,
    ),
    KnownModel("ov-0.5b", "llava-hf/llava-onevision-qwen2-0.5b-ov-hf", 893675552, 357826560, 24, 2, 64, 896, 152000),
    TINY,
)  # fmt: skip
"""Best first, by what their authors publish of accuracy on videos."""

SMALLEST = CATALOG[-2]
"""The smallest that knows real videos, and the one that a CPU can run."""


def find(alias: str) -> KnownModel | None:
    """The model with that short name."""
    return next((model for model in CATALOG if model.alias == alias), None)
