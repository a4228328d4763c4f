"""transformers' own decoder and cache over the weights of a loaded model: what everything else is measured against."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from hermes.errors import UsageError
from hermes.models.base import Tokens, VideoModel


class StockDecoder:
    """The decoder as transformers runs it: scaled dot product attention, one position after another, a cache that grows.

    It shares its weights with the model, and nothing else.

    Raises:
        UsageError: the weights are quantised, or lie on several devices.
    """

    def __init__(self, model: VideoModel) -> None:
        if len(set(model.layer_devices)) > 1 or any(not weight.is_floating_point() for weight in model.decoder.parameters()):
            raise UsageError("the reference needs whole weights on one device", "leave out --reference, or --quant")
        with torch.device("meta"):
            self.decoder = type(model.decoder)(copy.deepcopy(model.text_config))
        self.decoder.set_attn_implementation("sdpa")
        self.decoder.load_state_dict(model.decoder.state_dict(), assign=True)
        for name, buffer in model.decoder.named_buffers():  # those that are in no checkpoint
            owner, _, own_name = name.rpartition(".")
            setattr(self.decoder.get_submodule(owner), own_name, buffer)
        self.decoder.eval().requires_grad_(False)
        parameters = inspect.signature(type(self.decoder).forward).parameters  # of which transformers renamed one
        self._cache_keyword = "cache" if "cache" in parameters else "past_key_values"
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._cache: Any = DynamicCache()

    @property
    def length(self) -> int:
        """Tokens held, in every layer."""
        return int(self._cache.get_seq_length())

    @torch.inference_mode()
    def append(self, tokens: Tokens) -> Tensor:
        """Read tokens behind what is held; returns the last one's hidden state after the final norm, (hidden,)."""
        keywords: dict[str, Any] = {self._cache_keyword: self._cache}
        if tokens.deepstack is not None:
            keywords["visual_pos_masks"] = torch.ones(1, len(tokens), dtype=torch.bool, device=tokens.embeds.device)
            keywords["deepstack_visual_embeds"] = list(tokens.deepstack)
        output = self.decoder(inputs_embeds=tokens.embeds[None], use_cache=True, **keywords)
        hidden: Tensor = output.last_hidden_state[0, -1]
        return hidden

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens. `DynamicCache.crop` counts differently in the versions supported here."""
        for layer in self._cache.layers:
            if layer.keys is not None:
                layer.keys, layer.values = layer.keys[..., :length, :].clone(), layer.values[..., :length, :].clone()
