"""Memory policies: what each layer keeps when a chunk has pushed it over budget. They rank; `hermes.compaction` writes."""

from __future__ import annotations

from hermes.config import MemoryConfig
from hermes.errors import UsageError
from hermes.policies.base import Guidance, MemoryView, Policy
from hermes.policies.by_attention import AttentionOnly, StreamMem
from hermes.policies.hierarchical import Hermes
from hermes.policies.infinipot import InfiniPotV
from hermes.policies.whole_frames import Recent, Uniform
from hermes.policies.windows import Fifo, Full

__all__ = ["POLICIES", "Fifo", "Guidance", "Hermes", "MemoryView", "Policy", "make_policy"]

POLICIES: dict[str, type[Policy]] = {
    "hermes": Hermes,
    "fifo": Fifo,
    "full": Full,
    "recent": Recent,
    "uniform": Uniform,
    "attention": AttentionOnly,
    "streammem": StreamMem,
    "infinipot": InfiniPotV,
}


def make_policy(name: str, config: MemoryConfig) -> Policy:
    """The policy of that name; raises `UsageError` listing the known ones."""
    if name not in POLICIES:
        raise UsageError(f"unknown memory policy {name!r}", f"choose one of: {', '.join(POLICIES)}")
    return POLICIES[name](config)
