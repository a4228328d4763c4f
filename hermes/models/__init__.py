"""The models: loading a checkpoint, and the families that are known."""

from hermes.models.base import Tokens, VideoModel
from hermes.models.loading import DTYPES, load_model
from hermes.models.quantisation import QUANTS, LinearLayers, linear_layers
from hermes.models.registry import FAMILIES, wrap_model

__all__ = [
    "DTYPES",
    "FAMILIES",
    "QUANTS",
    "LinearLayers",
    "Tokens",
    "VideoModel",
    "linear_layers",
    "load_model",
    "wrap_model",
]
