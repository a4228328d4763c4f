"""Orthogonalised momentum for the matrices inside the layers, AdamW for everything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from hermes.tiny.training.recipe import Recipe


class LayerOptimizer:
    """Trains modules of transformer layers together with the read-outs and other parameters around them.

    Args:
        modules: their matrices below a `layers` list get Muon, their other parameters AdamW.
        others: parameters that get AdamW.
        recipe: the settings.
    """

    def __init__(self, modules: Iterable[nn.Module], others: Iterable[nn.Parameter], recipe: Recipe) -> None:
        matrices: list[nn.Parameter] = []
        rest = list(others)
        for module in modules:
            for name, parameter in module.named_parameters():
                in_layer = parameter.dim() == 2 and "layers." in name
                (matrices if in_layer else rest).append(parameter)
        self.parameters = matrices + rest
        self._clip, self._gain = recipe.clip, recipe.matrix_gain
        # Muon takes the gain in its rate, so its decay is divided by it: both kinds of parameter decay alike.
        self._muon = torch.optim.Muon(
            matrices,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay / recipe.matrix_gain,
            adjust_lr_fn="match_rms_adamw",
        )
        groups: list[dict[str, Any]] = [
            {"params": [parameter for parameter in rest if parameter.dim() >= 2]},
            {"params": [parameter for parameter in rest if parameter.dim() < 2], "weight_decay": 0.0},
        ]
        self._adamw = torch.optim.AdamW(groups, betas=recipe.betas, weight_decay=recipe.weight_decay)

    def step(self, rate: float) -> None:
        """Clip the gradients, take one step at this learning rate and forget the gradients."""
        nn.utils.clip_grad_norm_(self.parameters, self._clip)
        for optimizer, own_rate in ((self._adamw, rate), (self._muon, rate * self._gain)):
            for group in optimizer.param_groups:
                group["lr"] = own_rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on."""
        return {"muon": self._muon.state_dict(), "adamw": self._adamw.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._muon.load_state_dict(state["muon"])
        self._adamw.load_state_dict(state["adamw"])
