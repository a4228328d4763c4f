"""Arms of a comparison: memory policies, or one setting of the memory at several values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hermes.config import PRESETS, MemoryConfig
from hermes.errors import UsageError


@dataclass(frozen=True)
class Arm:
    """One of the memories that are compared.

    Attributes:
        name: what results call it.
        policy: a key of `hermes.policies.POLICIES`.
        changes: fields of MemoryConfig that differ from the settings of the run.
        remember: whether each question and its answer colour the guidance of later compressions (paper appendix B).
    """

    name: str
    policy: str = "hermes"
    changes: Mapping[str, Any] = field(default_factory=dict)
    remember: bool = False

    def config(self, settings: MemoryConfig) -> MemoryConfig:
        """The constants of this arm in a run with these settings."""
        return replace(settings, **self.changes)


def sweep_arms(name: str) -> tuple[Arm, ...]:
    """The arms of a sweep; raises `UsageError` for an unknown one."""
    if name not in SWEEPS:
        raise UsageError(f"unknown sweep {name!r}", f"choose one of: {', '.join(SWEEPS)}")
    return SWEEPS[name]


def _preset(name: str) -> Arm:
    """All constants of a preset but the sizes, which belong to the run."""
    constants = asdict(PRESETS[name])
    return Arm(name, changes={key: value for key, value in constants.items() if key not in ("budget", "chunk_frames")})


def _rate(k: float) -> Arm:
    """Forgetting rate k in shallow layers, and in middle ones falling from k by the same share as in the paper."""
    _, fall = PRESETS["paper"].middle_rate
    return Arm(f"k = {k:g}", changes={"shallow_rate": k, "middle_rate": (k, fall * k / PRESETS["paper"].shallow_rate)})


def _recency(start: float, fall: float) -> Arm:
    """Weight of recency from the first middle layer to behind the last one (omega of eq. 3)."""
    return Arm(f"{start:g} to {start - fall:g}", changes={"middle_recency": (start, fall)})


def _anchors(name: str, *shares: float) -> Arm:
    return Arm(name, changes={"anchors": shares})


SWEEPS: dict[str, tuple[Arm, ...]] = {
    "guidance": tuple(Arm(source, changes={"guidance": source}) for source in ("forward", "embedding")),
    "preset": tuple(_preset(name) for name in PRESETS),
    "smoothing": tuple(Arm(mode, changes={"smoothing_mode": mode}) for mode in ("cascade", "raw", "off")),
    "summary": (
        Arm("one", changes={"summaries": 1, "protect_summary": False}),
        Arm("protected", changes={"summaries": 1, "protect_summary": True}),
        Arm("counted", changes={"summaries": 1, "summary_weighting": "count"}),
        Arm("four", changes={"summaries": 4}),
        Arm("none", changes={"summaries": 0}),
    ),
    "alignment": tuple(Arm(how, changes={"smoothing_alignment": how}) for how in ("origin", "index")),
    "anchors": (
        *(_anchors(f"all, {share:g}", share, share, share) for share in (0.9, 0.7, 0.5, 1.0)),
        _anchors("middle and deep, 0.9", 0.0, 0.9, 0.9),
        _anchors("deep, 0.9", 0.0, 0.0, 0.9),
        _anchors("none", 0.0, 0.0, 0.0),
    ),
    "anchor-decay": tuple(Arm(f"{power:g}", changes={"anchor_decay": power}) for power in (1.0, 0.0, 0.5, 1.5)),
    "anchor-tokens": tuple(Arm(f"{share:g}", changes={"anchor_tokens": share}) for share in (0.25, 0.5, 1.0)),
    "layer-budgets": tuple(
        Arm("/".join(f"{weight:g}" for weight in weights), changes={"layer_budgets": weights})
        for weights in ((1.0, 1.0, 1.0), (1.3, 1.0, 0.7), (0.7, 1.6, 0.7), (0.7, 1.0, 1.3))
    ),
    "history": (Arm("without"), Arm("with", remember=True)),
    "reindex": tuple(Arm(when, changes={"reindex": when}) for when in ("lazy", "eager")),
    "rate": tuple(_rate(k) for k in (20.0, 5.0, 10.0, 40.0)),
    "recency": (_recency(0.75, 0.6), _recency(0.0, 0.0), _recency(0.5, 0.4), _recency(1.0, 0.9), _recency(1.0, 0.0)),
}
"""What `--sweep` knows; every arm is compared with the first."""
