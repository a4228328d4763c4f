"""What happened, as facts. The engine makes them; screens, logs, benchmarks and JSON output read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class Compression:
    """One round of forgetting after a chunk.

    Attributes:
        dropped: visual tokens dropped, per layer (those folded into a summary token included).
        reindexed: whether positions were renumbered.
        guidance_ms, score_ms, compact_ms: reading the guidance prompts; ranking; moving what stays.
    """

    dropped: tuple[int, ...]
    reindexed: bool
    guidance_ms: float
    score_ms: float
    compact_ms: float


@dataclass(frozen=True)
class ChunkEncoded:
    """A chunk has become part of the memory.

    Attributes:
        first_frame: number of its first sampled frame, counted from 0.
        frames, tokens: its size.
        start_s, end_s: times of its first and last frame.
        vision_ms, prefill_ms: vision tower; language model.
        hidden_ms: of `vision_ms`, what passed beside the language model's work on the chunk before.
        compression: None while the cache is within its budget.
        visual_tokens: visual tokens now held, per layer.
        top_position: largest position in use over all layers.
        renumbered_from: the largest position before positions were renumbered for this chunk; None where they were not.
        summary_tokens: summary tokens among the visual ones, per layer.
        positions: smallest and largest position of the visual tokens, per layer.
        oldest_s: time of the oldest frame with a token of its own, per layer; None where only summary tokens are left.
        median_s: time of the frame of the middle one of the tokens in the order of frames, per layer; None as above.
    """

    first_frame: int
    frames: int
    tokens: int
    start_s: float
    end_s: float
    vision_ms: float
    hidden_ms: float
    prefill_ms: float
    compression: Compression | None
    visual_tokens: tuple[int, ...]
    top_position: float
    renumbered_from: float | None
    summary_tokens: tuple[int, ...]
    positions: tuple[tuple[float, float], ...]
    oldest_s: tuple[float | None, ...]
    median_s: tuple[float | None, ...]

    @property
    def reading_ms(self) -> float:
        """What the chunk kept the stream waiting for before anything was forgotten."""
        return self.vision_ms - self.hidden_ms + self.prefill_ms


@dataclass(frozen=True)
class AnswerDelta:
    """The next piece of an answer's text."""

    text: str


@dataclass(frozen=True)
class Moment:
    """A stretch of the stream that an answer drew on (`hermes.evidence`).

    Attributes:
        start_s: time of its first frame.
        end_s: time of the frame after its last; of the newest frame where that is the last.
        share: how much of the attention to all that was remembered went there, in [0, 1].
    """

    start_s: float
    end_s: float
    share: float


@dataclass(frozen=True)
class Answer:
    """A finished answer.

    Attributes:
        at_s: the moment of the stream it was given for: the time of the newest frame in memory; None before any frame.
        finish_reason: `stop` by itself, `length` at the token limit, `cancelled` by the user.
        question_tokens, answer_tokens: tokens read and written.
        ttft_ms: time to the first token, from the question's text to the first token's choice.
        tpot_ms: mean time per further token; None for fewer than two tokens.
        evidence: the moments it drew on most, the largest share first; empty where nobody looked or nothing was seen.
    """

    question: str
    text: str
    at_s: float | None
    finish_reason: FinishReason
    question_tokens: int
    answer_tokens: int
    ttft_ms: float
    tpot_ms: float | None
    evidence: tuple[Moment, ...] = ()
