"""What is measured side by side: the engine under each memory policy, and stock transformers on the same work.

An arm takes frames and is asked at moments; how long each took comes back. Clocks are read on the wall, when the queues of
the devices are empty.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise

import torch

from hermes.config import MemoryConfig, Sampling
from hermes.engine import Coming, StreamEngine
from hermes.errors import UsageError
from hermes.events import Answer, ChunkEncoded
from hermes.frames import Frame
from hermes.models.base import VideoModel
from hermes.models.prompts import Prompt
from hermes.models.stock import StockDecoder
from hermes.policies import POLICIES, make_policy

STOCK, STOCK_CUT = "stock", "stock-cut"
"""Stock transformers that keeps everything; and cut to the budget after every chunk, which chooses nothing and so only shows
what that many tokens cost there."""


@dataclass(frozen=True)
class Task:
    """What every arm does alike.

    Attributes:
        config: constants of the memory; its chunks are the reference's too.
        prompt_style: see `hermes.models.prompts.STYLES`.
        question_tokens: tokens of a question with all that its prompt puts around it.
        answer_tokens: tokens decoded for each answer; none of them ends it.
        evidence: look which moments an answer drew on, as `hermes watch` does.
    """

    config: MemoryConfig
    prompt_style: str = "template"
    question_tokens: int = 40
    answer_tokens: int = 32
    evidence: bool = False


@dataclass(frozen=True)
class ChunkCost:
    """What a chunk took.

    Attributes:
        frames, tokens: its size.
        behind: tokens that were held before it, in the layer with most.
        encode_ms: everything, from its last frame until the next can be taken.
        vision_ms, prefill_ms: vision tower with its preprocessing, which may pass beside other work; language model.
        guidance_ms, score_ms, compact_ms: the parts of forgetting; None where nothing was forgotten.
    """

    frames: int
    tokens: int
    behind: int
    encode_ms: float
    vision_ms: float
    prefill_ms: float
    guidance_ms: float | None = None
    score_ms: float | None = None
    compact_ms: float | None = None

    @property
    def encode_fps(self) -> float:
        """Frames a second."""
        return self.frames / self.encode_ms * 1000

    @property
    def compress_ms(self) -> float | None:
        """Forgetting as a whole."""
        parts = (self.guidance_ms, self.score_ms, self.compact_ms)
        return None if None in parts else sum(part for part in parts if part is not None)

    @property
    def compress_share(self) -> float | None:
        """Share of the time that forgetting took."""
        return None if self.compress_ms is None else self.compress_ms / self.encode_ms


@dataclass(frozen=True)
class AnswerCost:
    """What an answer took.

    Attributes:
        question_tokens, answer_tokens: read and decoded.
        ttft_ms: from the question's text to the first token's choice.
        tpot_ms: mean time per further token; None for an answer of one token.
    """

    question_tokens: int
    answer_tokens: int
    ttft_ms: float
    tpot_ms: float | None

    @property
    def ttft_plus_step_ms(self) -> float | None:
        """`ttft_ms` and one decode step: what the HERMES authors' code prints as its TTFT."""
        return None if self.tpot_ms is None else self.ttft_ms + self.tpot_ms


class Arm(ABC):
    """One thing to measure, with an empty memory.

    Attributes:
        name: of its rows.
    """

    def __init__(self, name: str, model: VideoModel, task: Task) -> None:
        self.name, self.model, self.task = name, model, task
        self._gpus = sorted({device for device in model.layer_devices if device.type == "cuda"}, key=str)

    @abstractmethod
    def restart(self) -> None:
        """Empty the memory, and keep whatever was set up once."""

    @abstractmethod
    def push(self, frame: Frame, coming: Coming | None = None) -> ChunkCost | None:
        """Take the next frame; arguments and errors as `StreamEngine.push`."""

    @abstractmethod
    def ask(self) -> AnswerCost:
        """Ask, and leave the memory as it was; errors as `StreamEngine.ask`."""

    @property
    @abstractmethod
    def kv_tokens(self) -> tuple[int, ...]:
        """Tokens held, per layer, those in front of the video included."""

    @property
    def kv_mib(self) -> float:
        """Keys and values of the tokens held: what an attention has to read."""
        return sum(self.kv_tokens) * kv_token_bytes(self.model) / self.model.layers / 2**20

    def now_ms(self) -> float:
        """A clock, once the devices have done what they were told."""
        for gpu in self._gpus:
            torch.cuda.synchronize(gpu)
        return time.perf_counter() * 1000


class PolicyArm(Arm):
    """The engine under one memory policy, through nothing but what it offers to everybody."""

    def __init__(self, name: str, model: VideoModel, task: Task) -> None:
        super().__init__(name, model, task)
        self.engine = StreamEngine(model, task.config, make_policy(name, task.config), task.prompt_style)
        self._empty = self.engine.snapshot()
        self._tower = self.engine.tower
        self._question = question_of(self.engine.prompt, task.question_tokens)

    def restart(self) -> None:
        self._tower.settle()
        self.engine.restore(self._empty)

    def push(self, frame: Frame, coming: Coming | None = None) -> ChunkCost | None:
        behind, start_ms = max(self.kv_tokens), self.now_ms()
        event = self.engine.push(frame, coming)
        return chunk_cost(event, behind, self.now_ms() - start_ms) if event else None

    def ask(self) -> AnswerCost:
        self._tower.settle()  # questions are measured alone
        sampling = Sampling(max_new_tokens=self.task.answer_tokens, evidence=self.task.evidence)
        with never_ending(self.model):
            *_, answer = self.engine.ask(self._question, sampling, remember=False)
        assert isinstance(answer, Answer)
        return AnswerCost(answer.question_tokens, answer.answer_tokens, answer.ttft_ms, answer.tpot_ms)

    @property
    def kv_tokens(self) -> tuple[int, ...]:
        return tuple(self.engine.prefix + visual for visual in self.engine.visual_tokens)


class StockArm(Arm):
    """transformers' own decoder, `DynamicCache` and scaled dot product attention: the same embeddings in the same chunks,
    the same question, as many tokens decoded greedily. Positions rise by one a token in every family.

    Args:
        keeps: visual tokens that are left after each chunk; None keeps all.
    """

    def __init__(self, name: str, model: VideoModel, task: Task, keeps: int | None = None) -> None:
        super().__init__(name, model, task)
        self._stock = StockDecoder(model)
        prompt = model.prompt(task.prompt_style)
        self._prefix_ids = prompt.prefix_ids()
        self._question_ids = prompt.question_ids(question_of(prompt, task.question_tokens))
        self._ends_video = prompt.ends_video
        self._most = None if keeps is None else len(self._prefix_ids) + keeps
        self.restart()

    def restart(self) -> None:
        self._stock.reset()
        self._waiting: list[Frame] = []
        self._frames = 0
        with torch.inference_mode():
            self._stock.append(self.model.text(self._prefix_ids))

    @torch.inference_mode()
    def push(self, frame: Frame, coming: Coming | None = None) -> ChunkCost | None:
        self._waiting.append(frame)
        if len(self._waiting) < self.task.config.chunk_frames:
            return None
        frames, self._waiting = self._waiting, []
        behind = self._stock.length
        start_ms = self.now_ms()
        visual = self.model.embed_frames(frames, self._frames, [frame.time_s for frame in frames])
        seen_ms = self.now_ms()
        self._stock.append(visual)
        read_ms = self.now_ms()
        if self._most is not None:
            self._stock.cut(self._most)
        self._frames += len(frames)
        encode_ms = self.now_ms() - start_ms
        return ChunkCost(len(frames), len(visual), behind, encode_ms, seen_ms - start_ms, read_ms - seen_ms)

    @torch.inference_mode()
    def ask(self) -> AnswerCost:
        held = self._stock.length
        try:
            stamps_ms = list(self._stamps())
        finally:
            self._stock.cut(held)
        start_ms, *tokens_ms = stamps_ms
        gaps = [later - earlier for earlier, later in pairwise(tokens_ms)]
        tpot_ms = sum(gaps) / len(gaps) if gaps else None
        return AnswerCost(len(self._question_ids), len(tokens_ms), tokens_ms[0] - start_ms, tpot_ms)

    def _stamps(self) -> Iterator[float]:
        """When it begins, and when each token is chosen."""
        yield self.now_ms()
        embeds = self.model.embed_text(self._question_ids)
        if self._ends_video:
            embeds = torch.cat((self.model.end_of_video(), embeds))
        for _ in range(self.task.answer_tokens):
            token = int(self.model.logits(self._stock.append(self.model.plain(embeds))).argmax())
            yield self.now_ms()
            embeds = self.model.embed_text([token])

    @property
    def kv_tokens(self) -> tuple[int, ...]:
        return (self._stock.length,) * self.model.layers


def arms(model: VideoModel, policies: Sequence[str], task: Task, reference: bool) -> dict[str, Callable[[], Arm]]:
    """What makes each arm, by name, in the order of the rows.

    Raises:
        UsageError: a policy is unknown, the model cannot do the task, or there can be no reference (`StockDecoder`).
    """
    check_policies(policies)
    PolicyArm(policies[0], model, task)  # refuses now what every arm would refuse
    made: dict[str, Callable[[], Arm]] = {name: partial(PolicyArm, name, model, task) for name in policies}
    if reference:
        StockDecoder(model)  # the same, instead of after the other arms
        made[STOCK] = partial(StockArm, STOCK, model, task)
        made[STOCK_CUT] = partial(StockArm, STOCK_CUT, model, task, task.config.budget)
    return made


def check_policies(names: Sequence[str]) -> None:
    """Raises `UsageError`, naming the known ones, where a name is no memory policy."""
    for name in names:
        if name not in POLICIES:
            raise UsageError(f"unknown memory policy {name!r}", f"choose among: {', '.join(POLICIES)}")


def chunk_cost(event: ChunkEncoded, behind: int, encode_ms: float) -> ChunkCost:
    """What the engine says of a chunk, with the time that was measured around it."""
    forgot = event.compression
    parts = (forgot.guidance_ms, forgot.score_ms, forgot.compact_ms) if forgot else (None, None, None)
    return ChunkCost(event.frames, event.tokens, behind, encode_ms, event.vision_ms, event.prefill_ms, *parts)


def kv_token_bytes(model: VideoModel) -> int:
    """Keys and values of one token in all layers."""
    config = model.text_config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * model.layers * config.num_key_value_heads * head_dim * model.dtype.itemsize)


def question_of(prompt: Prompt, tokens: int) -> str:
    """A question of so many tokens with its prompt, or of as many as come closest from below.

    Raises:
        UsageError: the prompt alone has more.
    """
    text = "What"
    least = len(prompt.question_ids(text))
    if least > tokens:
        raise UsageError(f"a question of {tokens} tokens is too short", f"its prompt alone takes {least}")
    for word in cycle((" is", " there", " now", " on", " screen")):
        longer = next((text + more for more in (word, " a", "?") if len(prompt.question_ids(text + more)) <= tokens), text)
        if len(prompt.question_ids(longer)) == len(prompt.question_ids(text)):
            return text
        text = longer
    raise AssertionError("a cycle does not end")


@contextmanager
def never_ending(model: VideoModel) -> Iterator[None]:
    """No token ends an answer meanwhile, so that all answers are as long."""
    stop_ids, model.stop_ids = model.stop_ids, frozenset()
    try:
        yield
    finally:
        model.stop_ids = stop_ids
