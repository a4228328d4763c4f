"""Counting what a run did, out of its events."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.events import Answer, ChunkEncoded
from hermes.sources.base import counted
from hermes_cli.player import Event, Seen


@dataclass
class Tally:
    """What happened so far.

    Attributes:
        at: time of the newest frame taken in, in seconds; None before the first.
        frames, chunks, compressions, answers: how many.
        waiting: frames that wait for their chunk to be whole; questions see them too.
        visual_tokens: held after the newest chunk, in the layer that holds most.
        encode_ms, compress_ms: spent on chunks (vision tower and language model), and on forgetting after them.
    """

    at: float | None = None
    frames: int = 0
    chunks: int = 0
    compressions: int = 0
    answers: int = 0
    waiting: int = 0
    visual_tokens: int = 0
    encode_ms: float = 0.0
    compress_ms: float = 0.0

    def add(self, event: Event) -> None:
        """Count one event."""
        match event:
            case Seen():
                self.at = event.time_s
                self.frames += 1
                self.waiting += 1
            case ChunkEncoded():
                self._add_chunk(event)
            case Answer():
                self.answers += 1

    def _add_chunk(self, chunk: ChunkEncoded) -> None:
        self.chunks += 1
        self.waiting -= chunk.frames
        self.visual_tokens = max(chunk.visual_tokens)
        self.encode_ms += chunk.reading_ms
        if forgetting := chunk.compression:
            self.compressions += 1
            self.compress_ms += forgetting.guidance_ms + forgetting.score_ms + forgetting.compact_ms

    @property
    def compress_share(self) -> float:
        """Share of the time spent on chunks that went into forgetting."""
        total = self.encode_ms + self.compress_ms
        return self.compress_ms / total if total else 0.0

    def __str__(self) -> str:
        forgetting = f", compressed {counted(self.compressions, 'time')}" if self.compressions else ""
        share = f" ({self.compress_share:.0%} of the encoding time)" if self.compressions else ""
        held = f"{counted(self.visual_tokens, 'visual token')} held"
        waiting = f" and {self.waiting} waiting" if self.waiting else ""
        return f"{counted(self.frames, 'frame')} in {counted(self.chunks, 'chunk')}{waiting}, {held}{forgetting}{share}"
