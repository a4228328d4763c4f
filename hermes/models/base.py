"""What the engine needs of a vision-language model. A model family is one subclass and one line in the registry.

The decoder runs through transformers' own modules: `SlabCache` is its cache, `hermes.attention` its attention function,
and a pre-hook on every self-attention replaces the rotary angles by those of that layer's own positions.
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hermes.attention import ATTENTION_NAME, PromptProbe, register
from hermes.cache import Origin, SlabCache, SlabLayer
from hermes.errors import ModelError
from hermes.frames import Frame
from hermes.models.prompts import Prompt


@dataclass(frozen=True)
class VisualTokens:
    """A chunk as the language model reads it.

    Attributes:
        embeds: (tokens, hidden), the model's dtype.
        positions: (axes, tokens), float32, counted from the first token of the chunk.
        origin: which frame, row and column each token shows.
    """

    embeds: Tensor
    positions: Tensor
    origin: Origin


class VideoModel(ABC):
    """A vision-language model behind the one interface that the engine uses.

    Args:
        model: the transformers model, in eval mode.
        processor: its processor.
        name: what to call it in records and messages.
        revision: commit of the checkpoint on the hub, or None.
    """

    axes = 1  # position axes: 1 for plain rotary embedding, 3 for M-RoPE

    def __init__(self, model: Any, processor: Any, name: str, revision: str | None = None) -> None:
        register()
        self.model, self.processor, self.name, self.revision = model, processor, name, revision
        self.decoder = model.get_decoder()
        self.decoder.set_attn_implementation(ATTENTION_NAME)
        self.text_config = model.config.get_text_config()
        self.layers: int = self.text_config.num_hidden_layers
        self.max_positions: int = self.text_config.max_position_embeddings
        self.stop_ids = _stop_ids(model)
        self._angles: list[tuple[Tensor, Tensor]] = []
        self._lock = threading.Lock()  # the angles of one forward at a time
        self._cache_keyword = _cache_keyword(self.decoder)
        for index, layer in enumerate(self.decoder.layers):
            layer.self_attn.register_forward_pre_hook(self._own_angles(index), with_kwargs=True)

    @property
    def device(self) -> torch.device:
        """Where embeddings enter the decoder."""
        device: torch.device = next(self.decoder.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the decoder's activations and of its KV cache."""
        dtype: torch.dtype = next(self.decoder.parameters()).dtype
        return dtype

    @property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer."""
        return self.processor.tokenizer

    @abstractmethod
    def embed_frames(self, frames: Sequence[Frame], first_frame: int) -> VisualTokens:
        """Run the vision tower over a chunk whose first frame is sampled frame number `first_frame` of the stream."""

    @abstractmethod
    def prompt(self, style: str) -> Prompt:
        """How a system prefix, the video and a question are put together (`hermes.models.prompts.STYLES`)."""

    @abstractmethod
    def tokens_per_frame(self, width: int, height: int) -> int:
        """Visual tokens that one frame of this size becomes."""

    def end_of_video(self) -> Tensor:
        """Embeddings that close a video when a question follows, (tokens, hidden); none in most families."""
        return self.embed_text([])

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        """Token ids to embeddings, (tokens, hidden)."""
        tokens = torch.tensor(list(ids), dtype=torch.long, device=self.device)
        embeds: Tensor = self.model.get_input_embeddings()(tokens)
        return embeds

    def tokenize(self, text: str) -> list[int]:
        """Plain text to token ids; control tokens spelled out in it stay text."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return ids

    def text_positions(self, tokens: int) -> Tensor:
        """Positions of text, (axes, tokens), float32, counted from its first token."""
        return torch.arange(tokens, dtype=torch.float32).expand(self.axes, tokens)

    def cos_sin(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The rotary embedding at (batch, axes, tokens) positions: cos and sin, (batch, tokens, head_dim), float32."""
        probe = torch.empty(0, device=positions.device)  # tells the module a dtype and a device
        cos, sin = self.decoder.rotary_emb(probe, positions[:, 0] if self.axes == 1 else positions.transpose(0, 1))
        return cos, sin

    def new_cache(self, capacity: int) -> SlabCache:
        """An empty cache with `capacity` slots a layer, each slab on its layer's device."""
        config = self.text_config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        devices = (next(layer.parameters()).device for layer in self.decoder.layers)
        return SlabCache(
            [SlabLayer(capacity, config.num_key_value_heads, head_dim, self.axes, self.dtype, device) for device in devices]
        )

    def forward(
        self,
        embeds: Tensor,
        cache: SlabCache,
        positions: Tensor,
        origin: Origin,
        shared_rotation: bool = False,
        probe: PromptProbe | None = None,
    ) -> Tensor:
        """Append tokens to the cache through the whole decoder.

        Args:
            embeds: (tokens, hidden).
            positions: (axes, tokens), relative to each layer's next position.
            shared_rotation: rotate every layer at layer 0's positions (`MemoryConfig.shared_rotation`).

        Returns: the last token's hidden state after the final norm, (hidden,).
        """
        keywords: dict[str, Any] = {self._cache_keyword: cache, "use_cache": True}
        if probe is not None:
            keywords["probe"] = probe
        placeholder = torch.zeros(1, embeds.shape[0], dtype=torch.long, device=self.device)  # the hooks know better
        with self._lock:
            self._stage(cache, positions, origin, shared_rotation)
            output = self.decoder(inputs_embeds=embeds[None], position_ids=placeholder, **keywords)
        hidden: Tensor = output.last_hidden_state[0, -1]
        return hidden

    def probe_embeddings(
        self, embeds: Tensor, cache: SlabCache, positions: Tensor, probe: PromptProbe, shared_rotation: bool = False
    ) -> None:
        """Each layer's attention to a prompt whose hidden states are its embeddings, never advanced through the layers
        (the released code under sdpa). Arguments as `forward`; results are in the probe."""
        keywords: dict[str, Any] = {self._cache_keyword: cache, "attention_mask": None, "probe": probe}
        with self._lock:
            self._stage(cache, positions, Origin.text(embeds.shape[0]), shared_rotation)
            for layer in self.decoder.layers:
                hidden = layer.input_layernorm(embeds[None])
                layer.self_attn(hidden_states=hidden, position_embeddings=None, **keywords)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits of a hidden state (hidden,): (vocabulary,), float32."""
        logits: Tensor = self.model.get_output_embeddings()(hidden)
        return logits.float()

    def _stage(self, cache: SlabCache, positions: Tensor, origin: Origin, shared_rotation: bool) -> None:
        absolute = cache.stage(positions, origin)  # (layers, axes, tokens)
        if shared_rotation:
            absolute = absolute[:1].expand_as(absolute)
        cos, sin = self.cos_sin(absolute.to(self.device))
        self._angles = list(zip(torch.split(cos, 1), torch.split(sin, 1), strict=True))

    def _own_angles(self, index: int) -> Any:
        def replace_angles(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
            device = kwargs["hidden_states"].device
            cos, sin = self._angles[index]
            return args, {**kwargs, "position_embeddings": (cos.to(device), sin.to(device))}

        return replace_angles


def _cache_keyword(decoder: nn.Module) -> str:
    """transformers renamed the decoder's cache argument within the range of versions supported here."""
    return "cache" if "cache" in inspect.signature(type(decoder).forward).parameters else "past_key_values"


def _stop_ids(model: Any) -> frozenset[int]:
    for config in (model.generation_config, model.config.get_text_config()):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    raise ModelError("the checkpoint names no end-of-answer token", "its generation_config.json needs eos_token_id")
