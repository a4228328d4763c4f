"""The embedded world as a streaming benchmark, memory policies side by side.

Questions come at their own moments while the video plays, as in OVO-Bench: "realtime" ones about what is on screen,
"backward" ones about what was there before. An answer is right when it equals the expected text after `normalise`. Its
evidence is right when one of its moments has its middle in the scene that the answer is read from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hermes.config import MemoryConfig, Sampling
from hermes.engine import StreamEngine
from hermes.errors import UsageError
from hermes.evals.statistics import Accuracy
from hermes.events import Answer, Moment
from hermes.frames import Frame
from hermes.models.base import VideoModel
from hermes.policies import make_policy
from hermes.tiny.questions import Question, Span, sample_questions
from hermes.tiny.render import video_frames
from hermes.tiny.world import RandomSource, make_video

GROUPS = ("realtime", "backward")
PICTURE_SIZE = 48  # pixels per side, what the embedded model looks at


@dataclass(frozen=True)
class ShapesTask:
    """Which videos and questions of the embedded world to use.

    Attributes:
        frames: length of each video, one frame a second.
        videos: how many videos.
        questions: how many questions about each.
        seed: names the videos and questions; training draws from other seeds.
    """

    frames: int
    videos: int = 20
    questions: int = 20
    seed: str = "shapes"

    def __post_init__(self) -> None:
        if self.frames < 2 or self.videos < 1 or self.questions < 1:
            raise UsageError("nothing to evaluate", "use at least 2 frames, 1 video and 1 question")


@dataclass(frozen=True)
class Sample:
    """One question answered under one policy.

    Attributes:
        age: frames between the end of the evidence and the question; None where there is no evidence to point at.
        traced: whether the scene that the answer is read from is among the moments it drew on; None where that is not one
            scene.
        traced_by_chance: how likely it would be among moments of the same lengths at random places; None as `traced`.
    """

    policy: str
    frames: int
    video: int
    type: str
    group: str
    at_frame: int
    age: int | None
    question: str
    expected: str
    answer: str
    right: bool
    traced: bool | None
    traced_by_chance: float | None


def accuracy(samples: Iterable[Sample], group: str, frames: int, policy: str) -> Accuracy:
    """The share of right answers among the samples of one group, length and policy."""
    hits = [s.right for s in samples if (s.group, s.frames, s.policy) == (group, frames, policy)]
    return Accuracy(sum(hits), len(hits))


def tracing(samples: Iterable[Sample], frames: int, policy: str) -> tuple[Accuracy, float]:
    """How often right answers of one length and policy name the scene they are read from among their moments, and how often
    chance would (NaN without any)."""
    found, chances = [], []
    for sample in samples:
        if (sample.frames, sample.policy, sample.right) == (frames, policy, True) and sample.traced_by_chance is not None:
            found.append(bool(sample.traced))
            chances.append(sample.traced_by_chance)
    return Accuracy(sum(found), len(found)), sum(chances) / len(chances) if chances else math.nan


def evaluate_shapes(
    model: VideoModel, config: MemoryConfig, policies: Sequence[str], task: ShapesTask, prompt_style: str = "template"
) -> Iterator[Sample]:
    """Play every video once per policy and answer its questions at their moments; yields each sample as it is ready."""
    for index in range(task.videos):
        name = f"{task.seed}/{task.frames}/{index}"
        video = make_video(task.frames, RandomSource(name))
        questions = sample_questions(video, RandomSource(f"{name}/questions"), task.questions)
        pictures = video_frames(video, PICTURE_SIZE)
        frames = [Frame(float(second), picture) for second, picture in enumerate(pictures)]
        for policy in policies:
            engine = StreamEngine(model, config, make_policy(policy, config), prompt_style)
            for question, answer in _play(engine, frames, questions):
                yield _sample(policy, task.frames, index, question, answer)


def _play(engine: StreamEngine, frames: Sequence[Frame], questions: Sequence[Question]) -> Iterator[tuple[Question, Answer]]:
    """Each question with its answer, asked as soon as its frames have been seen; none colours another's memory."""
    for seen, frame in enumerate(frames, start=1):
        engine.push(frame)
        for question in questions:
            if question.frames_seen == seen:
                *_, answer = engine.ask(question.text, Sampling(max_new_tokens=64), remember=False)
                assert isinstance(answer, Answer)
                yield question, answer


def _sample(policy: str, frames: int, video: int, question: Question, answer: Answer) -> Sample:
    ends = [min(end, question.frames_seen) for _, end in question.evidence]
    scene = question.evidence[0] if len(question.evidence) == 1 else None
    return Sample(
        policy=policy,
        frames=frames,
        video=video,
        type=question.type,
        group=question.group,
        at_frame=question.frames_seen,
        age=question.frames_seen - min(ends) if ends else None,
        question=question.text,
        expected=question.answer,
        answer=answer.text,
        right=normalise(answer.text) == normalise(question.answer),
        traced=_traced(answer.evidence, scene) if scene else None,
        traced_by_chance=chance(answer.evidence, scene, question.frames_seen - 1) if scene else None,
    )


def _traced(moments: Sequence[Moment], scene: Span) -> bool:
    start, end = scene  # one frame a second
    return any(start <= (moment.start_s + moment.end_s) / 2 < end for moment in moments)


def chance(moments: Sequence[Moment], scene: Span, now_s: float) -> float:
    """How likely one of the moments would have its middle in the scene, were each moved to a random place between 0 and
    `now_s`, independently of the others."""
    start, end = scene
    missed = 1.0
    for moment in moments:
        half = (moment.end_s - moment.start_s) / 2
        first, last = half, now_s - half  # where its middle can be
        if last > first:
            missed *= 1 - max(0.0, min(end, last) - max(start, first)) / (last - first)
        elif start <= first < end:
            missed = 0.0
    return 1 - missed


def normalise(text: str) -> str:
    """An answer without case, outer white space and a last full stop."""
    return text.strip().rstrip(".").casefold()
