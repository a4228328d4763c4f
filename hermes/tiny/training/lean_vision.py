"""Vision tower, projector and pooling through the model's own parameters, in fewer kernels than the model's forward.

Gives what `get_video_features` gives for single frames, and the tower's patches besides.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlavaOnevisionForConditionalGeneration

from hermes.tiny.architecture import FRAME_SIZE, PATCH_SIZE, PATCHES_PER_SIDE, TOKENS_PER_FRAME


def to_pixels(images: Tensor) -> Tensor:
    """Images in [0, 1] as the processor hands them to the model: in [-1, 1]."""
    return images * 2 - 1


def encode_frames(model: LlavaOnevisionForConditionalGeneration, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Encode N single frames.

    Args:
        model: in float32.
        pixels: (N, 3, FRAME_SIZE, FRAME_SIZE), in [-1, 1].

    Returns:
        The visual tokens (N, TOKENS_PER_FRAME, hidden) and the tower's patches
        (N, PATCHES_PER_SIDE**2, vision hidden).
    """
    tower = model.model.vision_tower
    patches = _embed_patches(tower.embeddings, pixels)
    for layer in tower.encoder.layers:
        patches = _vision_layer(layer, patches)
    projector = model.model.multi_modal_projector
    projected = projector.linear_2(functional.gelu(projector.linear_1(patches)))
    half = PATCHES_PER_SIDE // 2
    pooled = projected.view(-1, half, 2, half, 2, projected.shape[-1]).mean((2, 4))  # bilinear halving is this mean
    return pooled.reshape(-1, TOKENS_PER_FRAME, projected.shape[-1]), patches


def _embed_patches(embeddings: Any, pixels: Tensor) -> Tensor:
    """The patch convolution as one matrix product: (N, patches, vision hidden)."""
    count, side = pixels.shape[0], PATCHES_PER_SIDE
    assert pixels.shape[1:] == (3, FRAME_SIZE, FRAME_SIZE), pixels.shape
    patches = pixels.reshape(count, 3, side, PATCH_SIZE, side, PATCH_SIZE).permute(0, 2, 4, 1, 3, 5)
    convolution = embeddings.patch_embedding
    patches = patches.reshape(count, side * side, -1)
    position: Tensor = embeddings.position_embedding.weight
    return functional.linear(patches, convolution.weight.flatten(1), convolution.bias) + position


def _vision_layer(layer: Any, patches: Tensor) -> Tensor:
    attention, mlp = layer.self_attn, layer.mlp
    normed = layer.layer_norm1(patches)
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    fused = functional.linear(
        normed,
        torch.cat([projection.weight for projection in projections]),
        torch.cat([projection.bias for projection in projections]),
    )  # (N, patches, 3 * vision hidden)
    query, key, value = torch.unflatten(fused, -1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    patches = patches + attention.out_proj(mixed)
    inner = functional.gelu(mlp.fc1(layer.layer_norm2(patches)), approximate="tanh")
    changed: Tensor = patches + mlp.fc2(inner)
    return changed
