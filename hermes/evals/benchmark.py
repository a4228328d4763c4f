"""Plays the videos of a benchmark, each once per memory policy, and asks every question at its own moment.

A question sees the frames up to its moment and no later one, and leaves no trace in the memory, so an answer does not depend
on the other questions.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from hermes.config import MemoryConfig, Sampling
from hermes.engine import StreamEngine
from hermes.errors import SourceError, UsageError
from hermes.evals.multiple_choice import Wording
from hermes.evals.pictures import open_clip
from hermes.evals.question import Clip, Question
from hermes.events import Answer
from hermes.frames import Frame
from hermes.models.base import VideoModel
from hermes.policies import make_policy
from hermes.sources import Source

_SAME_S = 0.0005  # a frame so much after a question's moment is still at it; sources round their times


@dataclass(frozen=True)
class Asking:
    """How a benchmark is asked.

    Attributes:
        fps: frames taken per second of video.
        wording: how multiple choices are put.
        closed, open: how answers to multiple choices and to open questions are decoded.
        as_open: ask multiple choices without their options.
        prompt_style: see `hermes.models.prompts.STYLES`.
    """

    fps: float
    wording: Wording
    closed: Sampling
    open: Sampling
    as_open: bool = False
    prompt_style: str = "template"

    def is_open(self, question: Question) -> bool:
        """Whether a question is asked without options."""
        return self.as_open or question.choices is None


@dataclass(frozen=True)
class Reply:
    """A question that was answered.

    Attributes:
        frames: how many had been seen.
        note: what should be known about the moment it was asked at; empty as a rule.
    """

    policy: str
    question: Question
    answer: Answer
    frames: int
    note: str = ""


@dataclass(frozen=True)
class Unasked:
    """Questions of one video that could not be asked, and why."""

    policy: str
    questions: tuple[Question, ...]
    reason: str


@dataclass(frozen=True)
class Trouble:
    """A video could be played, but not as it should be."""

    policy: str
    clip: Clip
    notice: str


def by_video(questions: Sequence[Question]) -> list[list[Question]]:
    """Questions put together by their clips, in the order in which clips first appear."""
    clips: dict[Clip, list[Question]] = {}
    for question in questions:
        clips.setdefault(question.video, []).append(question)
    return list(clips.values())


def sample_id(policy: str, question: Question) -> str:
    """Names a question under a policy."""
    return f"{policy}/{question.id}"


def run_benchmark(
    model: VideoModel,
    config: MemoryConfig,
    policies: Sequence[str],
    videos: Sequence[Sequence[Question]],
    asking: Asking,
    done: Container[str] = (),
) -> Iterator[Reply | Unasked | Trouble]:
    """Ask about every video under every policy; yields each reply as it is ready.

    Args:
        videos: the questions of each video, as of `by_video`.
        done: the `sample_id` of each question that need not be asked again.

    Raises:
        UsageError: the memory does not fit the model.
        ModelError: the model failed.
    """
    for questions in videos:
        for policy in policies:
            wanted = [question for question in questions if sample_id(policy, question) not in done]
            if wanted:
                yield from _Playing(model, config, policy, wanted, asking).run()


class _Playing:
    """One video under one policy."""

    def __init__(
        self, model: VideoModel, config: MemoryConfig, policy: str, questions: Sequence[Question], asking: Asking
    ) -> None:
        self._engine = StreamEngine(model, config, make_policy(policy, config), asking.prompt_style)
        self._policy, self._asking, self._clip = policy, asking, questions[0].video
        timed = [question for question in questions if question.at_s is not None]
        # Stable: questions of one moment stay in their order.
        self._waiting = [*sorted(timed, key=_moment_s), *(question for question in questions if question.at_s is None)]

    def run(self) -> Iterator[Reply | Unasked | Trouble]:
        try:
            source = open_clip(self._clip)
            yield from self._play(source)
        except (SourceError, UsageError) as error:
            if isinstance(error, UsageError) and not self._engine.frames_seen:
                raise  # no video would fare better
            yield self._unasked(error.message)

    def _play(self, source: Source) -> Iterator[Reply | Unasked | Trouble]:
        clip = self._clip
        with closing(source.frames(self._asking.fps, clip.start_s, clip.end_s)) as frames:
            for frame in frames:
                while self._is_due_before(frame):
                    yield self._ask(self._waiting.pop(0))
                if not self._waiting:
                    break
                self._engine.push(frame)
        if not self._engine.frames_seen:
            raise SourceError(f"{clip.path} has no picture between {clip.start_s:g} s and {clip.end_s} s")
        if source.report.ended_early is not None:
            yield from self._cut_short(f"{clip.path}: {source.report.ended_early}")
        elif source.report.notices:
            yield Trouble(self._policy, clip, "; ".join(source.report.notices))
        while self._waiting:
            question = self._waiting.pop(0)
            yield self._ask(question, "" if self._is_reached(question) else self._late(question))

    def _cut_short(self, reason: str) -> Iterator[Unasked]:
        """Give up the questions about what is missing of a video."""
        missing = tuple(question for question in self._waiting if question.at_s is None or not self._is_reached(question))
        self._waiting = [question for question in self._waiting if question not in missing]
        if missing:
            yield Unasked(self._policy, missing, reason)

    def _is_due_before(self, frame: Frame) -> bool:
        """Whether the next question is asked before a frame is seen."""
        at_s = self._waiting[0].at_s if self._waiting else None
        return at_s is not None and at_s + _SAME_S < frame.time_s

    def _is_reached(self, question: Question) -> bool:
        """Whether what was played goes up to a question's moment."""
        now_s = self._engine.now_s
        assert now_s is not None
        return question.at_s is None or question.at_s <= now_s + 1 / self._asking.fps

    def _late(self, question: Question) -> str:
        return f"its moment, {question.at_s:g} s, is after the end of the video; asked at {self._engine.now_s:g} s"

    def _ask(self, question: Question, note: str = "") -> Reply | Unasked:
        is_open = self._asking.is_open(question)
        text = question.question if is_open else self._asking.wording.prompt(question)
        try:
            *_, answer = self._engine.ask(text, self._asking.open if is_open else self._asking.closed, remember=False)
        except UsageError as error:  # it is too long
            return Unasked(self._policy, (question,), f"question {question.id}: {error.message}")
        assert isinstance(answer, Answer)
        seen = self._engine.frames_seen
        return Reply(self._policy, question, answer, seen, note if seen else "asked before the first frame")

    def _unasked(self, reason: str) -> Unasked:
        """All questions that are still waiting; they wait no more."""
        waiting, self._waiting = tuple(self._waiting), []
        return Unasked(self._policy, waiting, reason)


def _moment_s(question: Question) -> float:
    assert question.at_s is not None
    return question.at_s
