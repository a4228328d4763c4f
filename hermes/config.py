"""Every constant of the method, in one frozen object with named presets.

The paper is arXiv 2601.14724; "released code" is the authors' repository at commit 8d699b1. Where the two differ, or
leave something open, the choice is a field here and never a number in code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Literal

from hermes.errors import UsageError

LOCAL_PROMPT = (
    "Describe the current scene in detail, focusing on specific objects, fine-grained actions, and spatial relationships."
)
GLOBAL_PROMPT = (
    "Summarize the video narrative, identifying main characters, key events, timeline changes, and the overall theme."
)
"""The guidance prompts, generic questions that stand in for the unknown one (appendix B)."""


class Role(Enum):
    """What a layer is in the hierarchy: sensory, working or long-term memory (paper section 2)."""

    SHALLOW = "shallow"
    MIDDLE = "middle"
    DEEP = "deep"


@dataclass(frozen=True)
class MemoryConfig:
    """Constants of the HERMES memory.

    Attributes:
        budget: visual tokens kept per layer, the summary token included, the system prefix on top (paper section 4.1).
        chunk_frames: sampled frames encoded before each compression (paper section 4.1).
        shallow_share: share of layers that are shallow; the boundary is `int(shallow_share * layers)` (paper section 4.1).
        deep_share: share of layers that are deep; the boundary is `int((1 - deep_share) * layers)` (paper section 4.1).
        shallow_rate: forgetting rate k of shallow layers, over distances normalised to [0, 1] (paper eq. 1; released code).
        middle_rate: k at the first middle layer and its total fall across the middle layers (released code).
        middle_recency: omega_0 and gamma of eq. 3, weight of recency at the first middle layer and its fall.
        smoothing: (shallow, middle, deep) share lambda of the next deeper layer's score (paper eq. 5, appendix C).
        smoothing_mode: `cascade` blends with the already smoothed deeper score (released code), `raw` with the raw one
            (eq. 5 as printed), `off` not at all.
        guidance: where the attention of the guidance prompts comes from: `forward` is a true causal forward of the prompt
            over the cache (paper section 3.1), `embedding` applies every layer's projections to the prompt's embeddings (the
            released code under sdpa).
        reindex: `lazy` renumbers positions only near the model's limit, `eager` at every compression (paper section 3.3).
        reindex_margin: positions below the model's limit at which lazy re-indexing starts (released code).
        position_room: tokens kept free for a question and its answer, in the cache and below the model's position limit; a
            chunk that would enter it renumbers first, whatever `reindex` says.
        history_tokens: the longest part of the last question and answer that is woven into a guidance prompt.
        trigger_includes_prefix: compress when prefix + visual tokens exceed the budget (released code) instead of
            visual tokens alone.
        smoothing_alignment: which score of the deeper layer a token's is blended with: that at the same cache `index`
            (released code), although layers that have forgotten differently hold other tokens there, or that of the same
            token by its `origin`; where the deeper layer has dropped it, the token keeps its own.
        anchors: (shallow, middle, deep) share of a layer's budget that goes to frames spaced over everything seen so far,
            however they score: to the best tokens of each.
        anchor_tokens: share of the tokens of such a frame that it keeps, one at least.
        anchor_decay: how much denser they are towards the present: their distances grow with this power of their age. 0
            spaces them evenly.
        layer_budgets: (shallow, middle, deep) weights of the layers' budgets, whose mean stays `budget` (paper appendix C).
        summaries: summary tokens that a deep layer's dropped tokens are folded into at a compression, each those of another
            stretch; 0 for none (algorithm 1 has one).
        summary_weighting: what a summary is the mean of: `token`, each dropped slot alike (algorithm 1), or `count`, an
            earlier summary token among them as often as it stands for others.
        protect_summary: never drop or re-fold an earlier summary token; the released code treats it as an ordinary one.
        chunk_positions: where a chunk stands in a family whose rows and columns count from the start of the video
            (Qwen2.5-VL): `continue` as in one forward over the whole video, `restart` behind everything so far on all three
            axes (released Qwen path).
        longest_gap_s: seconds without a frame after which positions that tell the time (Qwen2.5-VL) count no further, so
            that a camera that was away for a day does not use them up.
        shared_rotation: rotate every layer at layer 0's offset although each records its own, as the released Qwen path
            does; only for comparison with it.
    """

    budget: int = 4000
    chunk_frames: int = 16
    shallow_share: float = 0.1
    deep_share: float = 0.3
    shallow_rate: float = 20.0
    middle_rate: tuple[float, float] = (20.0, 12.0)
    middle_recency: tuple[float, float] = (0.75, 0.6)
    smoothing: tuple[float, float, float] = (0.1, 0.3, 0.4)
    smoothing_mode: Literal["cascade", "raw", "off"] = "cascade"
    guidance: Literal["forward", "embedding"] = "forward"
    reindex: Literal["lazy", "eager"] = "lazy"
    reindex_margin: int = 1024
    position_room: int = 512
    history_tokens: int = 128
    trigger_includes_prefix: bool = False
    smoothing_alignment: Literal["index", "origin"] = "origin"
    anchors: tuple[float, float, float] = (0.9, 0.9, 0.9)
    anchor_tokens: float = 0.25
    anchor_decay: float = 1.0
    layer_budgets: tuple[float, float, float] = (1.0, 1.0, 1.0)
    summaries: int = 1
    summary_weighting: Literal["token", "count"] = "token"
    protect_summary: bool = False
    chunk_positions: Literal["continue", "restart"] = "continue"
    longest_gap_s: float = 120.0
    shared_rotation: bool = False

    def __post_init__(self) -> None:
        _require(self.budget >= 2, f"budget {self.budget} is too small", "keep at least 2 visual tokens per layer")
        _require(self.chunk_frames >= 1, f"chunk of {self.chunk_frames} frames", "a chunk holds at least one frame")
        shares = 0 <= self.shallow_share and 0 <= self.deep_share and self.shallow_share + self.deep_share <= 1
        _require(shares, "the shares of shallow and deep layers must lie in [0, 1] together", "the paper uses 0.1 and 0.3")
        shares = all(0 <= share <= 1 for share in (*self.anchors, self.anchor_tokens))
        _require(shares, f"anchors {self.anchors} of {self.anchor_tokens}", "each is a share, 0 to 1")
        _require(0 <= self.anchor_decay <= 4, f"anchor decay {self.anchor_decay}", "0 to 4")
        _require(min(self.layer_budgets) > 0, f"layer budgets {self.layer_budgets}", "each is a weight above 0")
        _require(0 <= self.summaries < self.budget, f"{self.summaries} summary tokens", "0, or fewer than the budget")
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            _require(value in allowed, f"{name} {value!r} is unknown", f"choose one of: {', '.join(allowed)}")

    def roles(self, layers: int) -> tuple[Role, ...]:
        """The role of each layer (section 4.1; the boundaries as the released code rounds them)."""
        shallow_end, deep_start = self.boundaries(layers)
        return tuple(
            Role.SHALLOW if layer < shallow_end else Role.DEEP if layer >= deep_start else Role.MIDDLE
            for layer in range(layers)
        )

    def boundaries(self, layers: int) -> tuple[int, int]:
        """First middle layer and first deep layer: (l_short, l_long) of eq. 3."""
        return int(self.shallow_share * layers), int(layers * (1 - self.deep_share))

    def recency_weight(self, layer: int, layers: int) -> float:
        """omega^l, how much recency counts in a layer: 1 in shallow, eq. 3 in middle, 0 in deep layers."""
        return self._by_role(layer, layers, 1.0, self.middle_recency, 0.0)

    def forgetting_rate(self, layer: int, layers: int) -> float:
        """k of eq. 1 in a layer, over distances normalised to [0, 1]; 0 in deep layers, which ignore recency."""
        return self._by_role(layer, layers, self.shallow_rate, self.middle_rate, 0.0)

    def smoothing_share(self, layer: int, layers: int) -> float:
        """lambda of eq. 5 by the role of the layer that is smoothed."""
        return self._of_role(self.smoothing, layer, layers)

    def anchor_share(self, layer: int, layers: int) -> float:
        """Share of a layer's budget that goes to evenly spaced frames."""
        return self._of_role(self.anchors, layer, layers)

    def layer_budget(self, layer: int, layers: int) -> int:
        """Visual tokens that a layer may keep, summary tokens included."""
        mean = sum(self._of_role(self.layer_budgets, other, layers) for other in range(layers)) / layers
        return max(self.summaries + 1, round(self.budget * self._of_role(self.layer_budgets, layer, layers) / mean))

    def largest_budget(self, layers: int) -> int:
        """Visual tokens that the layer with the largest budget may keep."""
        return max(self.layer_budget(layer, layers) for layer in range(layers))

    def reindex_due(self, top_position: float, max_positions: int) -> bool:
        """Whether a compression renumbers: always when eager, within the margin of the limit when lazy (section 3.3)."""
        return self.reindex == "eager" or top_position > max_positions - self.reindex_margin

    def _of_role(self, values: tuple[float, float, float], layer: int, layers: int) -> float:
        """What holds for a layer of values for shallow, middle and deep ones."""
        return dict(zip(Role, values, strict=True))[self.roles(layers)[layer]]

    def _by_role(self, layer: int, layers: int, shallow: float, middle: tuple[float, float], deep: float) -> float:
        shallow_end, deep_start = self.boundaries(layers)
        if layer < shallow_end:
            return shallow
        if layer >= deep_start:
            return deep
        start, fall = middle
        return start - fall * (layer - shallow_end) / (deep_start - shallow_end)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> MemoryConfig:
        """A named set of constants with some fields replaced; raises `UsageError` for an unknown name or field."""
        _require(name in PRESETS, f"unknown preset {name!r}", f"choose one of: {', '.join(PRESETS)}")
        known = {field.name for field in fields(cls)}
        for field in changes:
            _require(field in known, f"unknown memory setting {field!r}", f"choose one of: {', '.join(sorted(known))}")
        return replace(PRESETS[name], **changes)


@dataclass(frozen=True)
class Sampling:
    """How answers are decoded.

    Attributes:
        max_new_tokens: longest answer, in tokens.
        temperature: 0 is greedy.
        top_p: nucleus; only with a temperature.
        repetition_penalty: divides the logits of tokens the answer already holds; the released code defaults to 1.1.
        seed: of the sampling, only with a temperature.
        evidence: say which moments each answer drew on.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    evidence: bool = True

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise UsageError(f"{self.max_new_tokens} new tokens is no answer", "ask for at least 1")
        for name, low, high in (("temperature", 0, 100), ("top_p", 0.001, 1), ("repetition_penalty", 0.01, 100)):
            _require(low <= getattr(self, name) <= high, f"{name} {getattr(self, name)} is out of range", f"{low} to {high}")
        tiny = 0 < self.temperature < 0.001
        _require(not tiny, f"temperature {self.temperature} is out of range", "0 for greedy decoding, or 0.001 to 100")
        _require(0 <= self.seed < 2**63, f"seed {self.seed} is out of range", "0 to 2**63 - 1")


def _require(condition: bool, message: str, hint: str) -> None:
    if not condition:
        raise UsageError(message, hint)


_CHOICES = {
    "smoothing_mode": ("cascade", "raw", "off"),
    "smoothing_alignment": ("index", "origin"),
    "summary_weighting": ("token", "count"),
    "guidance": ("forward", "embedding"),
    "reindex": ("lazy", "eager"),
    "chunk_positions": ("continue", "restart"),
}

_PAPER = MemoryConfig(smoothing_alignment="index", anchors=(0.0, 0.0, 0.0), anchor_decay=0.0)

PRESETS = {
    "default": MemoryConfig(),
    "paper": _PAPER,
    "llava-code": replace(
        _PAPER, middle_rate=(20.0, 19.5), middle_recency=(1.0, 0.9), guidance="embedding", trigger_includes_prefix=True
    ),
    "qwen-code": replace(
        _PAPER, guidance="embedding", trigger_includes_prefix=True, chunk_positions="restart", shared_rotation=True
    ),
}
"""`default`: what measured best on the embedded world (README). `paper`: the equations, open constants as in the released
Qwen path, which matches eq. 3. `llava-code`, `qwen-code`: the two paths of the released code."""
