"""A batch of the text stage: videos, and rows packed with independent question blocks about each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hermes.config import GLOBAL_PROMPT, LOCAL_PROMPT
from hermes.tiny.questions import Question, Span, sample_questions
from hermes.tiny.training.blocks import ROW_TOKENS, Block, BlockEncoder
from hermes.tiny.training.curriculum import BatchShape
from hermes.tiny.training.tracks import FrameTracks, frame_tracks
from hermes.tiny.training.transfer import OnDevice
from hermes.tiny.world import RandomSource, Scene, Video, make_video

QUESTIONS_PER_ROW = 8  # drawn; about half of them fit
MISSES = 2  # blocks that may find no room before a video's rows count as full
WITHOUT_LEAD = 0.4  # share of guidance prompts that follow the video straight away, as guidance does
GUIDANCE_TOKENS = 400  # of a batch that are supervised


@dataclass(frozen=True, slots=True)
class Targets(OnDevice):
    """The N answer tokens to predict.

    Attributes:
        at: flat place, in (videos, rows, ROW_TOKENS), of the token before, (N,).
        token: (N,).
        question: number of its question in the batch, (N,).
        weight: a long answer's tokens count less, (N,), float32.
        evidence: frames [start, end) this token is read from, (N, 2); (0, 0) where none is known.
    """

    at: Tensor
    token: Tensor
    question: Tensor
    weight: Tensor
    evidence: Tensor


@dataclass(frozen=True, slots=True)
class Mentions(OnDevice):
    """Places where a question has just named an object: `at` (M,), flat, and the frames that show it, (M, 2)."""

    at: Tensor
    evidence: Tensor


@dataclass(frozen=True, slots=True)
class GuidanceTokens(OnDevice):
    """Tokens of global guidance prompts: `at` (G,), flat, and the frames seen before them, (G,)."""

    at: Tensor
    frames_seen: Tensor


@dataclass(frozen=True, slots=True)
class QuestionBatch(OnDevice):
    """Everything the text stage needs to know of one step.

    Attributes:
        videos: all of the same length.
        questions: those that found room, in the order of their blocks.
        prefix: tokens before the video, (PREFIX_TOKENS,).
        tokens: (videos, rows, ROW_TOKENS), int64, as the next three.
        block: number of the token's block in its row, -1 for padding.
        place: of the token in its block.
        frames_seen: frames of the video that the token's block follows.
    """

    videos: tuple[Video, ...]
    questions: tuple[Question, ...]
    prefix: Tensor
    tokens: Tensor
    block: Tensor
    place: Tensor
    frames_seen: Tensor
    targets: Targets
    mentions: Mentions
    guidance: GuidanceTokens
    tracks: FrameTracks


def make_batch(
    rng: RandomSource,
    shape: BatchShape,
    encoder: BlockEncoder,
    pool: Sequence[Scene] | None = None,
    training: bool = True,
    questions_per_video: int | None = None,
) -> QuestionBatch:
    """Draw videos and questions and pack them.

    Args:
        rng: where every draw comes from.
        shape: frames, videos and rows.
        encoder: makes the blocks.
        pool: scenes the videos are put together from; new ones when None.
        training: whether some guidance prompts come without their leading newline.
        questions_per_video: an upper limit.
    """
    packer = _Packer(shape, encoder)
    videos = []
    for index in range(shape.videos):
        video = make_video(shape.frames, rng, pool)
        videos.append(video)
        drawn = sample_questions(video, rng, QUESTIONS_PER_ROW * shape.rows)
        _pack_video(packer, index, drawn, rng, training, questions_per_video or len(drawn))
    return packer.batch(tuple(videos))


def _pack_video(packer: _Packer, video: int, drawn: list[Question], rng: RandomSource, training: bool, limit: int) -> None:
    placed = missed = 0
    for question in drawn:
        bare = training and question.text in (LOCAL_PROMPT, GLOBAL_PROMPT) and rng.random() < WITHOUT_LEAD
        newline = rng.random() < 0.5
        block = packer.encoder.block(question.text, question.answer, newline, "" if bare else "\n")
        if packer.place(video, question, block):
            placed += 1
        else:
            missed += 1
        if missed > MISSES or placed >= limit:
            break


@dataclass
class _Packer:
    """Fills rows first fit and notes what is to be learned at which place."""

    shape: BatchShape
    encoder: BlockEncoder
    questions: list[Question] = field(default_factory=list)
    targets: list[tuple[int, int, int, float, int, int]] = field(default_factory=list)  # as in Targets
    mentions: list[tuple[int, int, int]] = field(default_factory=list)
    guidance: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = (self.shape.videos, self.shape.rows, ROW_TOKENS)
        self.tokens = np.full(size, self.encoder.pad, np.int64)
        self.block = np.full(size, -1, np.int64)
        self.offset = np.zeros(size, np.int64)
        self.frames_seen = np.full(size, self.shape.frames, np.int64)
        self.filled = np.zeros(size[:2], np.int64)
        self.blocks = np.zeros(size[:2], np.int64)

    def place(self, video: int, question: Question, block: Block) -> bool:
        """Put a block into the first row of the video with room for it; False when there is none."""
        length = len(block.tokens)
        free = np.flatnonzero(self.filled[video] + length <= ROW_TOKENS)
        if not len(free):
            return False
        row = int(free[0])
        start = int(self.filled[video, row])
        here = (video, row, slice(start, start + length))
        self.tokens[here], self.block[here] = block.tokens, self.blocks[video, row]
        self.offset[here], self.frames_seen[here] = range(length), question.frames_seen
        self.filled[video, row] += length
        self.blocks[video, row] += 1
        self._note(question, block, (video * self.shape.rows + row) * ROW_TOKENS + start)
        return True

    def _note(self, question: Question, block: Block, start: int) -> None:
        """Note targets, mentions and guidance of a block whose first token is at flat place `start`."""
        number, length = len(self.questions), len(block.tokens)
        weight = 1 / math.sqrt(length - block.answer_start)
        for i in range(block.answer_start, length):
            span = self._evidence_of(question, block, i)
            self.targets.append((start + i - 1, block.tokens[i], number, weight, *span))
        self.mentions += self._mentions_of(question, block, start)
        if question.text == GLOBAL_PROMPT:
            self.guidance += [(start + i, question.frames_seen) for i in range(block.answer_start)]
        self.questions.append(question)

    def _evidence_of(self, question: Question, block: Block, at: int) -> Span:
        """Frames the answer's token at `at` is read from; a narrative moves on with every "then"."""
        if not question.evidence:
            return (0, 0)
        told = block.tokens[block.answer_start : at].count(self.encoder.then) if question.type == "narrative" else 0
        return question.evidence[min(told, len(question.evidence) - 1)]

    def _mentions_of(self, question: Question, block: Block, start: int) -> list[tuple[int, int, int]]:
        """An object is known at the last colour or shape word that names it; only "order" names two."""
        named = self.encoder.named_at(block)
        if question.type == "order" and len(named) == 4:
            return [(start + named[i], *span) for i, span in zip((1, 3), question.mentions, strict=True)]
        if question.evidence and named and question.type != "narrative":
            return [(start + named[-1], *question.evidence[0])]
        return []

    def batch(self, videos: tuple[Video, ...]) -> QuestionBatch:
        """Everything packed so far, as tensors."""
        at, token, question, weight, first, last = zip(*self.targets, strict=True)
        mentions = torch.tensor(self.mentions, dtype=torch.int64).view(-1, 3)
        guidance = torch.tensor(self.guidance[:GUIDANCE_TOKENS], dtype=torch.int64).view(-1, 2)
        targets = Targets(
            torch.tensor(at),
            torch.tensor(token),
            torch.tensor(question),
            torch.tensor(weight, dtype=torch.float32),
            torch.tensor((first, last)).t(),
        )
        return QuestionBatch(
            videos=videos,
            questions=tuple(self.questions),
            prefix=torch.tensor(self.encoder.prefix),
            tokens=torch.from_numpy(self.tokens),
            block=torch.from_numpy(self.block),
            place=torch.from_numpy(self.offset),
            frames_seen=torch.from_numpy(self.frames_seen),
            targets=targets,
            mentions=Mentions(mentions[:, 0], mentions[:, 1:]),
            guidance=GuidanceTokens(guidance[:, 0], guidance[:, 1]),
            tracks=frame_tracks(videos),
        )
