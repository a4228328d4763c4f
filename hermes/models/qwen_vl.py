"""Qwen2.5-VL and Qwen3-VL: pairs of frames as one picture, sizes that follow the frame, rotary positions on three axes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hermes.cache import Origin
from hermes.errors import UsageError
from hermes.frames import Frame
from hermes.models.base import ChunkSize, Tokens, VideoModel
from hermes.models.prompts import RELEASED_QWEN, Prompt, from_template, released
from hermes.upload import upload

MAX_PATCHES = 392
"""Largest number of tokens for a pair of frames unless a user wants another: as many as two frames of LLaVA-OneVision have,
so that a chunk is as long as there. The checkpoints' own processors allow thousands, which suits single pictures."""

_LARGEST_RATIO = 200  # of the sides of a picture; the processors refuse more


@dataclass(frozen=True)
class Patch:
    """Frames that the vision tower joins into one picture.

    Attributes:
        frame: number of the first of them among the sampled frames of the stream.
        times_s: time of the first and of the last.
        elapsed_s: of the first, seconds since the first frame of the stream, long gaps cut short.
        rows, columns: of tokens.
    """

    frame: int
    times_s: tuple[float, float]
    elapsed_s: float
    rows: int
    columns: int

    @property
    def tokens(self) -> int:
        """Visual tokens."""
        return self.rows * self.columns


@dataclass(frozen=True)
class _Piece:
    """Text or a picture; a picture's ids are placeholders. Positions (3, tokens) count from its first token."""

    ids: Sequence[int]
    positions: Tensor
    origin: Origin


class QwenVL(VideoModel):
    """What both generations share.

    A frame keeps its shape: the checkpoint's processor scales it to whole tokens between `min_pixels` and `max_pixels`.
    A chunk's frames are joined in pairs; one that is left over is joined with itself.

    Attributes:
        min_pixels, max_pixels: limits of a scaled frame; the smaller one is the checkpoint's own.
    """

    axes = 3

    def __init__(self, model: Any, processor: Any, name: str, revision: str | None = None) -> None:
        super().__init__(model, processor, name, revision)
        vision = model.config.vision_config
        self.frames_per_patch = int(vision.temporal_patch_size)
        self._merge = int(vision.spatial_merge_size)
        processor.video_processor.cap_pixels_per_frame = False  # the limits below do that; left open, it warns
        self.min_pixels = int(processor.video_processor.size["shortest_edge"])
        self.max_pixels = max(self.min_pixels, MAX_PATCHES * (int(vision.patch_size) * self._merge) ** 2)

    def limit_pixels(self, max_pixels: int) -> None:
        if max_pixels < self.min_pixels:
            raise UsageError(
                f"{max_pixels} pixels are too few for {self.name}", f"use --max-pixels {self.min_pixels} or more"
            )
        self.max_pixels = max_pixels

    def chunk_size(self, frames: int, width: int, height: int) -> ChunkSize:
        blank = Frame(0.0, np.zeros((height, width, 3), dtype=np.uint8))
        (patch,) = self._patches([blank] * self.frames_per_patch, 0, [0.0] * self.frames_per_patch)[1]
        patches = math.ceil(frames / self.frames_per_patch)
        return ChunkSize(patches * patch.tokens, self._least_positions(patches, patch))

    def prompt(self, style: str) -> Prompt:
        if style == "released":
            return released(self.tokenizer, RELEASED_QWEN)
        return from_template(self.processor, self.processor.video_token)

    def embed_frames(self, frames: Sequence[Frame], first_frame: int, elapsed_s: Sequence[float]) -> Tokens:
        inputs, patches = self._patches(frames, first_frame, elapsed_s)
        tower = self.model.model.visual
        output = self.model.get_video_features(
            inputs["pixel_values_videos"].to(tower.device, tower.dtype), inputs["video_grid_thw"].to(tower.device)
        )
        features = _joined(output.pooler_output).to(self.device, self.dtype)
        levels = [_joined(level).to(self.device, self.dtype) for level in getattr(output, "deepstack_features", None) or ()]
        return self._arranged(patches, features, torch.stack(levels) if levels else None)

    @abstractmethod
    def _arranged(self, patches: Sequence[Patch], features: Tensor, deepstack: Tensor | None) -> Tokens:
        """Features (visual tokens, hidden) of the patches in the order and with the text in which the decoder reads them."""

    @abstractmethod
    def _least_positions(self, patches: int, patch: Patch) -> int:
        """Positions that a chunk of such patches takes at least."""

    def _patches(
        self, frames: Sequence[Frame], first_frame: int, elapsed_s: Sequence[float]
    ) -> tuple[dict[str, Tensor], list[Patch]]:
        """What the checkpoint's processor makes of the frames, one video for each run of frames of one size."""
        inputs: dict[str, list[Tensor]] = {"pixel_values_videos": [], "video_grid_thw": []}
        patches: list[Patch] = []
        for run in self._runs(frames):
            prepared = self._prepare([frame.rgb for _, frame in run])
            for name, tensors in inputs.items():
                tensors.append(prepared[name])
            _, rows, columns = (prepared["video_grid_thw"][0] // self._merge).tolist()
            for start in range(0, len(run), self.frames_per_patch):
                group = run[start : start + self.frames_per_patch]
                number, first = group[0]
                times_s = (first.time_s, group[-1][1].time_s)
                patches.append(Patch(first_frame + number, times_s, elapsed_s[number], rows, columns))
        return {name: torch.cat(tensors) for name, tensors in inputs.items()}, patches

    def _runs(self, frames: Sequence[Frame]) -> Iterator[list[tuple[int, Frame]]]:
        """Frames with their number in the chunk, cut where a stream changes its size, the last repeated to a whole patch."""
        for _, group in groupby(enumerate(frames), key=lambda numbered: numbered[1].rgb.shape):
            run = list(group)
            yield run + [run[-1]] * (-len(run) % self.frames_per_patch)

    def _prepare(self, pictures: Sequence[NDArray[np.uint8]]) -> Any:
        clip = torch.from_numpy(np.stack([_not_too_long(picture) for picture in pictures])).permute(0, 3, 1, 2)
        limits = (self.min_pixels, self.max_pixels)
        smallest, largest = (limit * self._pixel_frames(len(pictures)) for limit in limits)
        return self.processor.video_processor(
            upload(clip, self.model.model.visual.device),
            return_tensors="pt",
            input_data_format="channels_first",
            do_sample_frames=False,
            size={"shortest_edge": smallest, "longest_edge": largest},
        )

    def _pixel_frames(self, frames: int) -> int:
        """Over how many frames the processor counts the pixels that it compares with its limits."""
        return 1


class Qwen25VL(QwenVL):
    """Qwen2.5-VL. A token's position is (time, row, column); rows and columns count from the start of the video, and time
    passes at `tokens_per_second` of the frames' own timestamps (technical report, arXiv 2502.13923, section 2.1.2).

    Text that follows a video starts behind its largest position on any axis, as in training. transformers from 5.3 on starts
    it behind rows and columns alone, among the positions of the video's later frames, and yet goes on decoding behind the
    largest one.
    """

    def __init__(self, model: Any, processor: Any, name: str, revision: str | None = None) -> None:
        super().__init__(model, processor, name, revision)
        self.positions_per_second = float(model.config.vision_config.tokens_per_second)

    def _arranged(self, patches: Sequence[Patch], features: Tensor, deepstack: Tensor | None) -> Tokens:
        positions = [_grid(self.positions_per_second * patch.elapsed_s, patch) for patch in patches]
        origins = [Origin.grid([patch.frame], patch.rows, patch.columns) for patch in patches]
        return Tokens(features, torch.cat(positions, dim=1), Origin.join(origins), in_video=True)

    def _least_positions(self, patches: int, patch: Patch) -> int:
        return max(patch.rows, patch.columns)


class Qwen3VL(QwenVL):
    """Qwen3-VL. Each pair of frames is a picture of its own with its time written in front as text, and the features of
    deeper tower layers are added behind the first decoder layers (DeepStack).

    The time and the marks around a picture are part of the memory like the picture: they count towards the budget, and
    each layer ranks, drops and folds them as it does visual tokens. Their origin is the frame they belong to, with row and
    column -1.
    """

    def _arranged(self, patches: Sequence[Patch], features: Tensor, deepstack: Tensor | None) -> Tokens:
        pieces = [piece for patch in patches for piece in self._pieces(patch)]
        ids = [token for piece in pieces for token in piece.ids]
        spans = [float(piece.positions.max()) + 1 for piece in pieces]
        positions = [piece.positions + start for piece, start in zip(pieces, accumulate(spans, initial=0.0), strict=False)]
        shown = torch.tensor(ids, device=features.device) == self._video_id  # (tokens,), where a picture is and not text
        embeds = self.embed_text(ids)
        embeds[shown] = features
        if deepstack is not None:
            everywhere = deepstack.new_zeros(len(deepstack), *embeds.shape)
            everywhere[:, shown] = deepstack
            deepstack = everywhere
        origin = Origin.join([piece.origin for piece in pieces])
        return Tokens(embeds, torch.cat(positions, dim=1), origin, deepstack=deepstack)

    def _pieces(self, patch: Patch) -> Iterator[_Piece]:
        """The time of a picture, the picture, and the mark that ends it."""
        yield self._written([*self._time_ids(patch), self.model.config.vision_start_token_id], patch)
        origin = Origin.grid([patch.frame], patch.rows, patch.columns)
        yield _Piece([self._video_id] * patch.tokens, _grid(0.0, patch), origin)
        yield self._written([self.model.config.vision_end_token_id], patch)

    def _written(self, ids: Sequence[int], patch: Patch) -> _Piece:
        positions = torch.arange(len(ids), dtype=torch.float32).expand(self.axes, len(ids))
        return _Piece(ids, positions, Origin.text(len(ids), patch.frame))

    @property
    def _video_id(self) -> int:
        return int(self.model.config.video_token_id)

    def _time_ids(self, patch: Patch) -> list[int]:
        return self.tokenize(f"<{sum(patch.times_s) / 2:.1f} seconds>")

    def _least_positions(self, patches: int, patch: Patch) -> int:
        return patches * (len(self._time_ids(patch)) + 2 + max(patch.rows, patch.columns))

    def _pixel_frames(self, frames: int) -> int:
        return frames


def _grid(time: float, patch: Patch) -> Tensor:
    """(3, tokens) positions of a picture: its time, its rows and columns from 0 on."""
    axes = (torch.tensor([float(time)]), torch.arange(patch.rows).float(), torch.arange(patch.columns).float())
    return torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)


def _joined(features: Any) -> Tensor:
    """(tokens, hidden) out of one tensor, or one a video."""
    return features if isinstance(features, Tensor) else torch.cat(list(features))


def _not_too_long(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The picture, with black beside it where one side is so much longer than the other that processors refuse it."""
    height, width, _ = picture.shape
    wanted = (max(height, math.ceil(width / _LARGEST_RATIO)), max(width, math.ceil(height / _LARGEST_RATIO)))
    margins = [((want - have) // 2, (want - have + 1) // 2) for want, have in zip(wanted, (height, width), strict=True)]
    return np.pad(picture, [*margins, (0, 0)]) if wanted != (height, width) else picture
