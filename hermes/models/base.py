"""What the engine needs of a vision-language model. A model family is one subclass and one line in the registry.

The decoder's layers are transformers' own, called one after another: `SlabCache` is their cache, `hermes.attention` their
attention function, and each is given the rotary angles of its own positions.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, repeat
from typing import Any

import torch
from torch import Tensor, nn

from hermes.attention import ATTENTION_NAME, AnswerProbe, Attending, PromptProbe, register
from hermes.cache import Origin, SlabCache, SlotShape
from hermes.errors import ModelError, UsageError
from hermes.frames import Frame
from hermes.models.prompts import Prompt
from hermes.models.quantisation import LinearLayers, linear_layers
from hermes.upload import upload


@dataclass(frozen=True)
class Tokens:
    """Text or a chunk of video as the decoder reads it.

    Attributes:
        embeds: (tokens, hidden), the model's dtype.
        positions: (axes, tokens), float32, counted from the first token.
        origin: which frame, row and column each token shows.
        in_video: `positions` are counted from the start of the video instead, in families whose rows and columns start there
            in every chunk. Time may have fractions.
        deepstack: (levels, tokens, hidden), what is added to the hidden states behind the first layers (DeepStack,
            arXiv 2406.04334); zero for text.
    """

    embeds: Tensor
    positions: Tensor
    origin: Origin
    in_video: bool = False
    deepstack: Tensor | None = None

    def __len__(self) -> int:
        return len(self.embeds)


@dataclass(frozen=True)
class ChunkSize:
    """How much room a chunk takes: visual tokens in the cache, and positions at least."""

    tokens: int
    positions: int


class VideoModel(ABC):
    """A vision-language model behind the one interface that the engine uses.

    Args:
        model: the transformers model, in eval mode.
        processor: its processor.
        name: what to call it in records and messages.
        revision: commit of the checkpoint on the hub, or None.

    Attributes:
        cuda_graphs: read questions and answers through CUDA graphs where that works (`hermes.graphs`).
    """

    axes = 1  # position axes: 1 for plain rotary embedding, 3 for M-RoPE
    positions_per_second = 0.0  # of the stream, in families whose positions tell the time
    frames_per_patch = 1  # frames that the vision tower joins into one; a chunk holds a multiple of them

    def __init__(self, model: Any, processor: Any, name: str, revision: str | None = None) -> None:
        register()
        self.model, self.processor, self.name, self.revision = model, processor, name, revision
        self.decoder = model.get_decoder()
        self.decoder.set_attn_implementation(ATTENTION_NAME)
        self.text_config = model.config.get_text_config()
        self.layers: int = self.text_config.num_hidden_layers
        self.max_positions: int = self.text_config.max_position_embeddings
        self.stop_ids = _stop_ids(model)
        self._cache_keyword = _cache_keyword(self.decoder.layers[0])
        self.cuda_graphs = True

    @property
    def device(self) -> torch.device:
        """Where embeddings enter the decoder."""
        return self.layer_devices[0]

    @cached_property
    def layer_devices(self) -> tuple[torch.device, ...]:
        """Where each layer of the decoder computes; a model is not moved once it is here."""
        return tuple(next(layer.parameters()).device for layer in self.decoder.layers)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the decoder's activations and of its KV cache; that of quantised weights is another."""
        dtype: torch.dtype = self.model.get_input_embeddings().weight.dtype
        return dtype

    @property
    def weights(self) -> LinearLayers:
        """How the linear layers are held."""
        return linear_layers(self.model)

    @property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer."""
        return self.processor.tokenizer

    @abstractmethod
    def embed_frames(self, frames: Sequence[Frame], first_frame: int, elapsed_s: Sequence[float]) -> Tokens:
        """Run the vision tower over a chunk.

        Args:
            first_frame: number of the chunk's first frame among the sampled frames of the stream.
            elapsed_s: of each frame, seconds since the first frame of the stream, long gaps cut short.
        """

    @abstractmethod
    def prompt(self, style: str) -> Prompt:
        """How a system prefix, the video and a question are put together (`hermes.models.prompts.STYLES`)."""

    @abstractmethod
    def chunk_size(self, frames: int, width: int, height: int) -> ChunkSize:
        """What a chunk of frames of this size becomes."""

    def limit_pixels(self, max_pixels: int) -> None:
        """Scale frames down to this many pixels; raises `UsageError` where a family's frames have a fixed size, or for fewer
        pixels than the checkpoint takes."""
        raise UsageError(f"frames have one fixed size for {self.name}", "leave --max-pixels out")

    def end_of_video(self) -> Tensor:
        """Embeddings that close a video when a question follows, (tokens, hidden); none in most families."""
        return self.embed_text([])

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        """Token ids to embeddings, (tokens, hidden)."""
        table = self.model.get_input_embeddings()
        embeds: Tensor = table(upload(torch.tensor(list(ids), dtype=torch.long), table.weight.device))
        return embeds.to(self.device)

    def tokenize(self, text: str) -> list[int]:
        """Plain text to token ids; control tokens spelled out in it stay text."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return ids

    def text(self, ids: Sequence[int]) -> Tokens:
        """Token ids as the decoder reads them."""
        return self.plain(self.embed_text(ids))

    def plain(self, embeds: Tensor) -> Tokens:
        """Embeddings (tokens, hidden) that are read one after another like text."""
        return Tokens(embeds, _counted(self.axes, len(embeds)), Origin.text(len(embeds)))

    def cos_sin(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The rotary embedding at (batch, axes, tokens) positions: cos and sin, (batch, tokens, head_dim), float32."""
        probe = torch.empty(0, device=positions.device)  # tells the module a dtype and a device
        cos, sin = self.decoder.rotary_emb(probe, positions[:, 0] if self.axes == 1 else positions.transpose(0, 1))
        return cos.to(positions.device), sin.to(positions.device)  # a split model may keep the module elsewhere

    def new_cache(self, capacity: int) -> SlabCache:
        """An empty cache with `capacity` slots a layer, each slab on its layer's device."""
        config = self.text_config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = SlotShape(config.num_key_value_heads, head_dim, self.axes, self.dtype)
        return SlabCache(shape, capacity, self.layer_devices)

    def forward(
        self,
        tokens: Tokens,
        cache: SlabCache,
        shared_rotation: bool = False,
        probe: PromptProbe | AnswerProbe | None = None,
    ) -> Tensor:
        """Append tokens to the cache through the whole decoder.

        Args:
            shared_rotation: rotate every layer at layer 0's positions (`MemoryConfig.shared_rotation`).

        Returns: the last token's hidden state after the final norm, (hidden,).
        """
        staged = self._stage(cache, tokens, shared_rotation)
        hidden = self.through_layers(tokens.embeds[None], staged, cache, probe, tokens.deepstack)
        last: Tensor = self.decoder.norm(hidden[:, -1])[0]
        return last

    def through_layers(
        self,
        hidden: Tensor,
        angles: Iterable[tuple[Tensor, Tensor]],
        cache: Any,
        probe: Attending | None,
        deepstack: Tensor | None = None,
    ) -> Tensor:
        """Hidden states (1, tokens, hidden) through all layers of the decoder, before the final norm.

        Args:
            angles: per layer, cos and sin of the tokens' positions, (1, tokens, head_dim) each.
            cache: each layer calls its `update`, as that of a transformers cache.
            probe: computes the attention instead of the usual function.
            deepstack: see `Tokens`.
        """
        levels = chain(() if deepstack is None else deepstack, repeat(None))
        keywords: dict[str, Any] = {self._cache_keyword: cache, "attention_mask": None, "use_cache": True, "probe": probe}
        for layer, cos_sin, level in zip(self.decoder.layers, angles, levels, strict=False):
            hidden = layer(hidden, position_embeddings=cos_sin, **keywords)
            if level is not None:
                hidden = hidden + level.to(hidden.device)
        return hidden

    def probe_embeddings(self, tokens: Tokens, cache: SlabCache, probe: PromptProbe) -> None:
        """Each layer's attention to a prompt whose hidden states are its embeddings, never advanced through the layers
        (the released code under sdpa). It reads at each layer's own positions even where all keys are rotated at layer 0's.
        Arguments as `forward`; results are in the probe."""
        keywords: dict[str, Any] = {self._cache_keyword: cache, "attention_mask": None, "probe": probe}
        for layer, angles in zip(self.decoder.layers, self._stage(cache, tokens, shared_rotation=False), strict=True):
            layer.self_attn(hidden_states=layer.input_layernorm(tokens.embeds[None]), position_embeddings=angles, **keywords)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits of a hidden state (hidden,): (vocabulary,), float32, on its device."""
        head = self.model.get_output_embeddings()
        logits: Tensor = head(hidden.to(head.weight.device))
        return logits.to(hidden.device).float()

    def _stage(self, cache: SlabCache, tokens: Tokens, shared_rotation: bool) -> list[tuple[Tensor, Tensor]]:
        """Announce tokens to the cache; per layer cos and sin of their positions there, (1, tokens, head_dim) each."""
        located = cache.stage(tokens.positions, tokens.origin, tokens.in_video)  # (layers, axes, tokens)
        if shared_rotation:
            located = located[:1].expand_as(located)
        cos, sin = self.cos_sin(upload(located, self.device))
        angles = zip(torch.split(cos, 1), torch.split(sin, 1), self.layer_devices, strict=True)
        return [(cos.to(device), sin.to(device)) for cos, sin, device in angles]


def _cache_keyword(layer: nn.Module) -> str:
    """transformers renamed the cache argument of its layers within the range of versions supported here."""
    return "cache" if "cache" in inspect.signature(type(layer).forward).parameters else "past_key_values"


@lru_cache(maxsize=8)
def _counted(axes: int, tokens: int) -> Tensor:
    """Positions 0, 1, 2, ... on every axis, (axes, tokens), float32; never written to."""
    return torch.arange(tokens, dtype=torch.float32).expand(axes, tokens)


def _stop_ids(model: Any) -> frozenset[int]:
    for config in (model.generation_config, model.config.get_text_config()):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    raise ModelError("the checkpoint names no end-of-answer token", "its generation_config.json needs eos_token_id")
