"""LLaVA-OneVision: SigLIP frames pooled 2 x 2, a Qwen2 decoder with plain rotary embedding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hermes.cache import Origin
from hermes.frames import Frame
from hermes.models.base import ChunkSize, Tokens, VideoModel
from hermes.models.prompts import RELEASED_LLAVA, Prompt, from_template, released
from hermes.upload import upload

_PIXELS_TOGETHER = 2**25  # of frames that are resized at once, as many as 16 frames of 1080p: 400 MB in float32


class LlavaOnevision(VideoModel):
    """Any checkpoint of the LLaVA-OneVision family.

    Frames are resized to the tower's square as the checkpoint's own processor does, whatever their shape; every frame is
    the same number of tokens. The `image_newline` embedding that ends a video is fed with a question, not with a chunk.
    """

    def __init__(self, model: Any, processor: Any, name: str, revision: str | None = None) -> None:
        super().__init__(model, processor, name, revision)
        vision = model.config.vision_config
        self.grid: int = math.ceil(vision.image_size // vision.patch_size / 2)  # side after pooling

    def chunk_size(self, frames: int, width: int, height: int) -> ChunkSize:
        return ChunkSize(frames * self.grid**2, frames * self.grid**2)

    def pixels(self, frames: Sequence[Frame]) -> Tensor:
        """What the checkpoint's own processor makes of the frames: (frames, 3, side, side), as the tower takes them.

        It works where the tower is.
        """
        tower, prepared = self.model.model.vision_tower, []
        for clip in _clips(frames):
            batch = self.processor.video_processor(
                upload(clip, tower.device), return_tensors="pt", input_data_format="channels_first"
            )
            prepared.append(batch["pixel_values_videos"][0])
        return torch.cat(prepared).to(tower.device, tower.dtype)

    def embed_pixels(self, pixels: Tensor, first_frame: int) -> Tokens:
        """Tower, projector and pooling over prepared pixels (frames, 3, side, side)."""
        frames = pixels.shape[0]
        features = self.model.get_video_features(pixels[None])
        features = getattr(features, "pooler_output", features)  # a plain tensor in some versions
        tokens = frames * self.grid**2
        embeds = features.reshape(-1, features.shape[-1])[:tokens].to(self.device)  # some versions append image_newline
        numbers = range(first_frame, first_frame + frames)
        return replace(self.plain(embeds), origin=Origin.grid(numbers, self.grid, self.grid))

    def embed_frames(self, frames: Sequence[Frame], first_frame: int, elapsed_s: Sequence[float]) -> Tokens:
        return self.embed_pixels(self.pixels(frames), first_frame)

    def end_of_video(self) -> Tensor:
        newline: Tensor = self.model.model.image_newline
        return newline[None].to(self.device, self.dtype)

    def prompt(self, style: str) -> Prompt:
        if style == "released":
            return released(self.tokenizer, RELEASED_LLAVA)
        return from_template(self.processor, self._video_token())

    def _video_token(self) -> str:
        token: str = self.tokenizer.convert_ids_to_tokens(self.model.config.video_token_id)
        return token


def _clips(frames: Sequence[Frame]) -> Iterator[Tensor]:
    """The pictures, those of one size together as far as `_PIXELS_TOGETHER` goes: (frames, 3, height, width), uint8."""
    for (height, width, _), group in groupby((frame.rgb for frame in frames), key=lambda rgb: rgb.shape):
        pictures = list(group)  # a stream may change its size
        together = max(1, _PIXELS_TOGETHER // (height * width))
        for start in range(0, len(pictures), together):
            yield torch.from_numpy(np.stack(pictures[start : start + together])).permute(0, 3, 1, 2)
