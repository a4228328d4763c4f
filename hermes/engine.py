"""The stream engine: the one place where the order of steps is written.

frames -> chunk -> vision tower -> prefill -> over budget? guidance -> plan -> compaction; a question borrows the cache.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from hermes.attention import AnswerProbe
from hermes.cache import SlabCache
from hermes.census import census
from hermes.compaction import KeepPlan, compact
from hermes.config import MemoryConfig, Sampling
from hermes.errors import ModelError, UsageError
from hermes.events import Answer, AnswerDelta, ChunkEncoded, Compression, FinishReason, Moment
from hermes.evidence import Watch
from hermes.frames import Frame
from hermes.generate import IncrementalText, decode
from hermes.graphs import StepRunner
from hermes.guidance import Exchange, guidance_attention, guidance_room
from hermes.laps import Laps
from hermes.models.base import Tokens, VideoModel
from hermes.policies import MemoryView, Policy, make_policy
from hermes.tower import Tower


@dataclass(frozen=True)
class EngineState:
    """Everything that a later answer depends on; `StreamEngine.restore` takes it back exactly.

    Attributes:
        owner: fingerprint of what the state fits: model, constants of the memory, and the text in front of the video.
    """

    owner: str
    cache: dict[str, Tensor]
    frame_times_s: tuple[float, ...]
    pending: tuple[Frame, ...]
    last_exchange: Exchange | None


Coming = Callable[[int], Sequence[Frame]]
"""Tells so many of the frames that will be pushed next, or fewer where they are not known yet."""

_SMALLER = "use a memory with a budget (--policy hermes), a smaller --budget or a smaller --chunk"


class StreamEngine:
    """A video stream held in a fixed-size memory that can be asked at any moment.

    Args:
        model: the vision-language model.
        config: constants of the memory.
        policy: how to forget; HERMES when None.
        prompt_style: see `hermes.models.prompts.STYLES`.

    Attributes:
        tower: turns frames into what the decoder reads.

    Raises:
        UsageError: the model joins several frames into one and the chunks do not hold whole ones.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: VideoModel,
        config: MemoryConfig,
        policy: Policy | None = None,
        prompt_style: str = "template",
    ) -> None:
        _check_chunks(config, model)
        self.model = model
        self.config = config
        self.policy = policy or make_policy("hermes", config)
        self.prompt_style = prompt_style
        self.prompt = model.prompt(prompt_style)
        self.tower = Tower(model)
        self.frame_times_s: list[float] = []
        self._pending: list[Frame] = []
        self.last_exchange: Exchange | None = None
        self._watch: Watch | None = None
        self._chunk_span = 0.0  # positions of the longest chunk so far
        self._half_compacted = False
        self._gap = model.positions_per_second * config.longest_gap_s  # positions between chunks at most
        self._room = max(config.position_room, guidance_room(model, self.policy.guidance(model.layers), config))
        prefix_ids = self.prompt.prefix_ids()
        self._owner = _fingerprint(model, self.policy, prefix_ids)
        self.prefix = len(prefix_ids)
        self.cache: SlabCache = model.new_cache(self.prefix + self._room)
        self.runner = StepRunner(model, self.cache, config.shared_rotation)
        self._append(model.text(prefix_ids))

    @property
    def visual_tokens(self) -> tuple[int, ...]:
        """Visual tokens held, per layer."""
        return tuple(length - self.prefix for length in self.cache.lengths)

    @property
    def frames_seen(self) -> int:
        """Frames taken in, those that wait for their chunk included."""
        return len(self.frame_times_s) + len(self._pending)

    @property
    def now_s(self) -> float | None:
        """Time of the newest frame taken in; None before the first."""
        return self._pending[-1].time_s if self._pending else self.frame_times_s[-1] if self.frame_times_s else None

    @property
    def evidence(self) -> tuple[Moment, ...]:
        """The moments that the newest answer drew on, as far as it came; empty where nobody looked (`Sampling.evidence`)."""
        return self._watch.moments() if self._watch else ()

    @property
    def frames_ahead(self) -> int:
        """How many frames it is worth to know before they are pushed."""
        return self.config.chunk_frames if self.tower.looks_ahead else 0

    def push(self, frame: Frame, coming: Coming | None = None) -> ChunkEncoded | None:
        """Take the next frame of the stream; every `config.chunk_frames` of them become part of the memory together.

        Questions see the frames that wait for their chunk too, so nothing is missed, and chunks start at the same frames
        whatever is asked in between.

        When it fails, the memory is as it was before, and the frame may be pushed again.

        Args:
            coming: where the next chunk can be known, its vision tower runs beside the language model's work on this one.

        Raises:
            UsageError: the frame is no picture, or comes before the last one; the memory and its chunks do not fit into the
                model's positions, or without a budget have come to their end; an answer is still under way.
        """
        self._check_usable()
        self._check_frame(frame)
        self._pending.append(frame)
        if len(self._pending) < self.config.chunk_frames:
            return None
        try:
            event = self._feed(self._pending, coming)
        except BaseException:
            self._pending.pop()
            raise
        self._pending = []
        return event

    @torch.inference_mode()
    def _feed(self, frames: Sequence[Frame], coming: Coming | None) -> ChunkEncoded:
        embedded = self.tower.embed(frames, len(self.frame_times_s), self._elapsed_s(frames))
        if coming and self.tower.looks_ahead:
            self._begin(frames, coming(self.config.chunk_frames))
        event = self.feed_tokens(embedded.tokens, [frame.time_s for frame in frames])
        return replace(event, vision_ms=embedded.vision_ms, hidden_ms=embedded.hidden_ms)

    def _begin(self, frames: Sequence[Frame], following: Sequence[Frame]) -> None:
        """Let the tower begin with the chunk behind these frames, if it is known."""
        if len(following) == self.config.chunk_frames:
            elapsed_s = self._elapsed_s([*frames, *following])[len(frames) :]
            self.tower.begin(following, len(self.frame_times_s) + len(frames), elapsed_s)

    @torch.inference_mode()
    def feed_tokens(self, visual: Tokens, times_s: Sequence[float]) -> ChunkEncoded:
        """Take a whole chunk that is already embedded into memory; `vision_ms` of the event is 0. Raises as `push`."""
        laps = Laps(self.model.layer_devices)
        first_frame = len(self.frame_times_s)
        chunk = self._placed(visual)
        renumbered_from = self._make_room(chunk)
        with self.cache.undone_on_failure():
            self._append(chunk)
            laps.mark()
            over_budget = self.policy.over_budget(self.prefix, self.cache.lengths)
            plan = self._plan(laps) if over_budget else None
        top_before = self.cache.top_position - 1
        compression = self._forget(plan, laps) if plan else None
        self.frame_times_s.extend(times_s)
        contents = census(self.cache, self.prefix)
        return ChunkEncoded(
            first_frame=first_frame,
            frames=len(times_s),
            tokens=len(chunk),
            start_s=times_s[0],
            end_s=times_s[-1],
            vision_ms=0.0,
            hidden_ms=0.0,
            prefill_ms=laps.ms()[0],
            compression=compression,
            visual_tokens=self.visual_tokens,
            top_position=self.cache.top_position - 1,
            renumbered_from=top_before if compression and compression.reindexed else renumbered_from,
            summary_tokens=contents.summaries,
            positions=contents.positions,
            oldest_s=self._times_s(contents.oldest),
            median_s=self._times_s(contents.median),
        )

    def _times_s(self, frames: Sequence[int]) -> tuple[float | None, ...]:
        """The times of frames in memory, None for a number that is none."""
        return tuple(self.frame_times_s[frame] if frame >= 0 else None for frame in frames)

    @torch.inference_mode()
    def ask(
        self, question: str, sampling: Sampling | None = None, remember: bool = True
    ) -> Generator[AnswerDelta | Answer, None, None]:
        """Answer a question from the memory as it stands: pieces of text, then the whole `Answer`.

        The memory afterwards is bit-identical, also when the caller stops early (close the iterator) or the model fails.

        Args:
            remember: let the exchange colour the guidance of later compressions (appendix B).

        Raises:
            UsageError: the question is empty, or too long for the room kept free for it; another answer is under way.
            ModelError: the model produced NaN or infinite logits.
        """
        sampling = sampling or Sampling()
        start_s = time.perf_counter()
        self._check_usable()
        ids = self.check_question(question)
        room = self.config.position_room - len(ids)
        sampling = replace(sampling, max_new_tokens=min(sampling.max_new_tokens, room))
        stamps: list[float] = []
        text = IncrementalText(self.model)
        with self.cache.scratch():
            self._read_pending()
            self._watch = self._watched() if sampling.evidence else None
            probe = self._watch.probe if self._watch else None
            hidden = self._read_question(ids, sampling.max_new_tokens, probe)
            for step in decode(self.runner, hidden, sampling, probe):
                stamps.append(_ms_since(start_s))  # the host has waited for the token
                if piece := text.add(step.token):
                    yield AnswerDelta(piece)
        if piece := text.rest():
            yield AnswerDelta(piece)
        reason: FinishReason = "length" if len(stamps) == sampling.max_new_tokens else "stop"
        answer = self._answer(question, text, reason, len(ids), stamps, _ms_since(start_s))
        if remember:
            self.last_exchange = Exchange(answer.question, answer.text)
        yield answer

    def snapshot(self) -> EngineState:
        """A copy of everything that later answers depend on.

        Raises:
            UsageError: an answer is still under way.
        """
        self._check_usable()
        return EngineState(
            self._owner, self.cache.snapshot(), tuple(self.frame_times_s), tuple(self._pending), self.last_exchange
        )

    @torch.inference_mode()
    def restore(self, state: EngineState) -> None:
        """Return to a `snapshot`; answers from here equal those given then, token for token.

        Raises:
            UsageError: it was taken with another model or prompt, or an answer is still under way.
        """
        if state.owner != self._owner:
            reason = "the saved memory belongs to another model, prompt or memory configuration"
            raise UsageError(reason, "use the settings it was made with")
        self._half_compacted = False
        self.cache.restore(state.cache)
        self.frame_times_s = list(state.frame_times_s)
        self._pending = list(state.pending)
        self.last_exchange = state.last_exchange

    def check_question(self, question: str) -> list[int]:
        """Token ids of a question, up to where its answer begins.

        Raises:
            UsageError: it is empty, no text, or too long for the room kept free for it.
        """
        if not question.strip():
            raise UsageError("the question is empty", 'ask something, for example "What is happening now?"')
        try:
            question.encode()
        except UnicodeEncodeError as error:
            raise UsageError("the question is not UTF-8 text", "check where it comes from") from error
        ids = self.prompt.question_ids(question)
        if len(ids) >= self.config.position_room:
            raise UsageError(
                f"the question has {len(ids)} tokens; there is room for {self.config.position_room} with its answer",
                "ask a shorter question",
            )
        return ids

    def _elapsed_s(self, frames: Sequence[Frame]) -> list[float]:
        """Of each of the next frames, seconds since the first frame of the stream, long gaps cut short."""
        times_s = np.array([*self.frame_times_s, *(frame.time_s for frame in frames)], dtype=np.float64)
        steps_s = np.minimum(np.diff(times_s), self.config.longest_gap_s)
        elapsed_s: list[float] = np.concatenate(([0.0], np.cumsum(steps_s)))[-len(frames) :].tolist()
        return elapsed_s

    def _placed(self, visual: Tokens) -> Tokens:
        """A chunk at the positions that the cache counts in."""
        if not visual.in_video:
            return visual
        if self.config.chunk_positions == "restart":
            return replace(visual, positions=visual.positions - visual.positions.amin(dim=1, keepdim=True), in_video=False)
        return replace(visual, positions=visual.positions.floor() + self.prefix)  # whole numbers, as in training

    def _reach(self, tokens: Tokens) -> float:
        """The largest position that these tokens would take."""
        return self.cache.reach(tokens.positions, tokens.in_video)

    def _append(self, tokens: Tokens) -> None:
        self._check_positions(tokens)
        self.cache.reserve(len(tokens))
        self.model.forward(tokens, self.cache, self.config.shared_rotation)

    def _check_positions(self, tokens: Tokens) -> None:
        if self._reach(tokens) >= self.model.max_positions:
            raise UsageError(f"the model's {self.model.max_positions} positions are used up", _SMALLER)

    def _plan(self, laps: Laps) -> KeepPlan:
        """What to keep; guidance and ranking are a lap each."""
        wanted = self.policy.guidance(self.model.layers)
        attention = guidance_attention(self.model, self.cache, self.prefix, wanted, self.last_exchange, self.config)
        laps.mark()
        plan = self.policy.plan(MemoryView.of(self.cache, self.prefix, attention, self.model.cos_sin))
        laps.mark()
        return plan

    def _forget(self, plan: KeepPlan, laps: Laps) -> Compression:
        before = self.cache.lengths
        reindex = self.config.reindex_due(self.cache.top_position - 1, self.model.max_positions)
        self._compact(plan, reindex)
        laps.mark()
        dropped = tuple(length - len(keep) for length, keep in zip(before, plan.keep, strict=True))
        _, guidance_ms, score_ms, compact_ms = laps.ms()
        return Compression(dropped, reindex, guidance_ms, score_ms, compact_ms)

    def _compact(self, plan: KeepPlan, reindex: bool) -> None:
        self._half_compacted = True  # it works in place: what is interrupted here cannot be taken back
        compact(self.cache, plan, self.prefix, reindex, self.model.cos_sin)
        self._half_compacted = False

    def _make_room(self, chunk: Tokens) -> float | None:
        """Size the cache at the first chunk, and renumber BEFORE a prefill that would leave the model's position range, so
        that no position ever passes it.

        Room is kept for this chunk, for frames that wait for the next one, and for guidance or a question with its answer.

        Returns: the largest position before it renumbered, None where it did not.
        """
        if self.policy.bounded:
            self.cache.grow(self.prefix + self.config.largest_budget(self.model.layers) + len(chunk) + self._room)
        self._chunk_span = max(self._chunk_span, self._end(chunk) - self.cache.top_position)
        needed = self._chunk_span + self._gap + self._room
        if self._end(chunk) + needed <= self.model.max_positions:
            return None
        top_before = self.cache.top_position - 1
        self._compact(KeepPlan.everything(self.cache.lengths), reindex=True)
        if self._end(chunk) + needed > self.model.max_positions:
            raise UsageError(f"the memory has reached the model's {self.model.max_positions} positions", _SMALLER)
        return top_before

    def _end(self, chunk: Tokens) -> float:
        """The position behind everything once the chunk is in."""
        return max(self.cache.top_position, self._reach(chunk) + 1)

    def _check_usable(self) -> None:
        self.cache.check_free()
        if self._half_compacted:
            raise ModelError("the memory was interrupted while it forgot", "restore a snapshot, or start again")

    def _check_frame(self, frame: Frame) -> None:
        shape = frame.rgb.shape
        if len(shape) != 3 or shape[2] != 3 or 0 in shape or frame.rgb.dtype != np.uint8:
            raise UsageError(f"a picture of shape {shape}, {frame.rgb.dtype}", "give (height, width, 3), uint8")
        if not (-math.inf if self.now_s is None else self.now_s) <= frame.time_s < math.inf:
            raise UsageError(f"a frame at {frame.time_s} s after one at {self.now_s} s", "give frames in order of time")
        if self.now_s is None:
            self._check_fit(frame)

    def _check_fit(self, frame: Frame) -> None:
        """Refuse at the first frame what could only fail after hours: see `_make_room` for what is kept free."""
        height, width, _ = frame.rgb.shape
        chunk = self.model.chunk_size(self.config.chunk_frames, width, height)
        kept = self.config.largest_budget(self.model.layers) if self.policy.bounded else 0
        needed = self.prefix + kept + 2 * chunk.positions + int(self._gap) + self._room
        if needed > self.model.max_positions:
            what = f"a budget of {kept} tokens and chunks of {chunk.tokens}" if kept else f"chunks of {chunk.tokens} tokens"
            raise UsageError(
                f"{what} need {needed} positions; the model has {self.model.max_positions}",
                "use a smaller --budget or --chunk" if kept else "use a smaller --chunk",
            )

    def _read_pending(self) -> None:
        if self._pending:
            elapsed_s = self._elapsed_s(self._pending)
            self._append(self._placed(self.model.embed_frames(self._pending, len(self.frame_times_s), elapsed_s)))

    def _watched(self) -> Watch:
        """Looks at the deep layers, or at the last one where none is deep: they attend to what a question is about."""
        layers = self.model.layers
        deep = range(min(self.config.boundaries(layers)[1], layers - 1), layers)
        times_s = [*self.frame_times_s, *(frame.time_s for frame in self._pending)]
        return Watch(self.cache, deep, times_s, self.model.frames_per_patch)

    def _read_question(self, ids: Sequence[int], max_new_tokens: int, probe: AnswerProbe | None = None) -> Tensor:
        embeds = self.model.embed_text(ids)
        if self.prompt.ends_video and self.now_s is not None:
            embeds = torch.cat((self.model.end_of_video(), embeds))
        self._check_positions(self.model.plain(embeds))
        self.cache.reserve(len(embeds) + max_new_tokens)
        return self.runner.read(embeds, probe)

    def _answer(
        self, question: str, text: IncrementalText, reason: FinishReason, read: int, stamps: list[float], whole_ms: float
    ) -> Answer:
        gaps = [later - earlier for earlier, later in pairwise(stamps)]
        return Answer(
            question=question,
            text=text.whole.strip(),
            at_s=self.now_s,
            finish_reason=reason,
            question_tokens=read,
            answer_tokens=len(stamps),
            ttft_ms=stamps[0] if stamps else whole_ms,
            tpot_ms=sum(gaps) / len(gaps) if gaps else None,
            evidence=self.evidence,
        )

    @torch.inference_mode()
    def log_likelihood(self, question: str, answer: str) -> float:
        """How likely exactly this answer to a question is from the memory as it stands; leaves the memory as `ask` does.

        Returns: the natural logarithm of its probability, its end included, so that answers of different lengths compare.

        Raises:
            UsageError: the question is empty, or too long together with the answer; another answer is under way.
        """
        self._check_usable()
        ids, answer_ids = self.check_question(question), self.model.tokenize(answer)
        if len(ids) + len(answer_ids) > self.config.position_room:
            raise UsageError(
                f"question and answer need more than {self.config.position_room} tokens", "give a shorter answer"
            )
        steps: list[Tensor] = []
        with self.cache.scratch():
            self._read_pending()
            hidden = self._read_question(ids, len(answer_ids))
            for token in answer_ids:
                steps.append(self.model.logits(hidden).log_softmax(dim=-1)[token])
                hidden = self.runner.read(self.model.embed_text([token]))
            steps.append(self.model.logits(hidden).log_softmax(dim=-1)[sorted(self.model.stop_ids)].logsumexp(dim=-1))
        return float(torch.stack(steps).sum())


def _fingerprint(model: VideoModel, policy: Policy, prefix_ids: Sequence[int]) -> str:
    """Tells apart whatever makes a memory of its own; a policy carries the constants."""
    shape = (model.model.config.model_type, model.layers, model.text_config.hidden_size)
    return hashlib.sha256(repr((model.name, shape, type(policy).__name__, policy.config, prefix_ids)).encode()).hexdigest()


def _check_chunks(config: MemoryConfig, model: VideoModel) -> None:
    if config.chunk_frames % model.frames_per_patch:
        raise UsageError(
            f"a chunk of {config.chunk_frames} frames does not fit a model that joins every {model.frames_per_patch}",
            f"use a --chunk that is a multiple of {model.frames_per_patch}",
        )


def _ms_since(start_s: float) -> float:
    return (time.perf_counter() - start_s) * 1000
