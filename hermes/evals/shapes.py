"""The embedded world as a streaming benchmark, memories side by side.

Questions come at their own moments while the video plays, as in OVO-Bench: "realtime" ones about what is on screen,
"backward" ones about what was there before. An answer is right when it equals the expected text after `normalise`. Its
evidence is right when one of its moments has its middle in the scene that the answer is read from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from hermes.config import MemoryConfig, Sampling
from hermes.engine import StreamEngine
from hermes.errors import UsageError
from hermes.evals.choices import options
from hermes.evals.journal import Journal
from hermes.evals.statistics import Accuracy
from hermes.evals.sweeps import Arm
from hermes.events import Answer, Moment
from hermes.frames import Frame
from hermes.models.base import VideoModel
from hermes.policies import make_policy
from hermes.tiny.questions import Question, Span, sample_questions
from hermes.tiny.render import video_frames
from hermes.tiny.world import RandomSource, Video, make_video

GROUPS = ("realtime", "backward")
PICTURE_SIZE = 48  # pixels per side, what the embedded model looks at
LONGEST = 100_000  # frames of a video, whose pictures are all in memory at once


@dataclass(frozen=True)
class ShapesTask:
    """Which videos and questions of the embedded world to use.

    Attributes:
        frames: length of each video, one frame a second.
        videos: how many videos.
        questions: how many questions about each.
        seed: names the videos and questions; training draws from other seeds.
        choices: ask every question as multiple choice too.
    """

    frames: int
    videos: int = 20
    questions: int = 20
    seed: str = "shapes"
    choices: bool = False

    def __post_init__(self) -> None:
        if self.frames < 2 or self.videos < 1 or self.questions < 1:
            raise UsageError("nothing to evaluate", "use at least 2 frames, 1 video and 1 question")
        if self.frames > LONGEST:
            raise UsageError(f"{self.frames} frames are too many for one video", f"use at most {LONGEST}")


@dataclass(frozen=True)
class Sample:
    """One question answered from one memory.

    Attributes:
        arm: the name of the memory; that of its policy where policies are compared.
        number: of the question among those about its video.
        age: frames between the end of the evidence and the question, of the oldest where there are several; None where there
            is no evidence to point at.
        traced: whether the scene that the answer is read from is among the moments it drew on; None where that is not one
            scene.
        traced_by_chance: how likely it would be among moments of the same lengths at random places; None as `traced`.
        options: answers to choose from, in random order; empty where it was not asked as multiple choice.
        chosen: the most likely of them; None without.
    """

    arm: str
    policy: str
    frames: int
    video: int
    number: int
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
    options: tuple[str, ...] = ()
    chosen: str | None = None

    @property
    def chosen_right(self) -> bool:
        """Whether the right one of the options was chosen."""
        return self.chosen == self.expected


def tracing(samples: Iterable[Sample], frames: int, arm: str) -> tuple[Accuracy, float]:
    """How often right answers of one length and arm name the scene they are read from among their moments, and how often
    chance would (NaN without any)."""
    found, chances = [], []
    for sample in samples:
        if (sample.frames, sample.arm, sample.right) == (frames, arm, True) and sample.traced_by_chance is not None:
            found.append(bool(sample.traced))
            chances.append(sample.traced_by_chance)
    return Accuracy(sum(found), len(found)), sum(chances) / len(chances) if chances else math.nan


def evaluate_shapes(
    model: VideoModel,
    config: MemoryConfig,
    arms: Sequence[Arm | str],
    task: ShapesTask,
    prompt_style: str = "template",
    journal: Journal | None = None,
) -> Iterator[Sample]:
    """Play every video once per arm and answer its questions at their moments; yields each sample as it is ready.

    Args:
        arms: the memories to compare; a policy's name stands for that policy with the constants of `config`.
        journal: where samples are kept; those that it has already are not made again, and a video is played no further than
            to its last question that has no sample yet.
    """
    named = [Arm(arm, arm) if isinstance(arm, str) else arm for arm in arms]
    journal = Journal(None, {}) if journal is None else journal
    for index in range(task.videos):
        clip = _Clip(task, index)
        for arm in named:
            yield from _play(model, config, arm, clip, prompt_style, journal)


@dataclass(frozen=True)
class _Clip:
    """A video with its questions."""

    task: ShapesTask
    index: int

    @property
    def name(self) -> str:
        """Of the video, which its random draws start from."""
        return f"{self.task.seed}/{self.task.frames}/{self.index}"

    @cached_property
    def video(self) -> Video:
        return make_video(self.task.frames, RandomSource(self.name))

    @cached_property
    def questions(self) -> list[tuple[int, Question]]:
        """With their numbers, in the order of their moments."""
        drawn = sample_questions(self.video, RandomSource(f"{self.name}/questions"), self.task.questions)
        return sorted(enumerate(drawn), key=lambda numbered: numbered[1].frames_seen)

    @cached_property
    def frames(self) -> list[Frame]:
        pictures = video_frames(self.video, PICTURE_SIZE)
        return [Frame(float(second), picture) for second, picture in enumerate(pictures)]

    def options(self, number: int, question: Question) -> tuple[str, ...]:
        """Answers to choose from; none where the task does not want any."""
        return options(question, self.video, RandomSource(f"{self.name}/options/{number}")) if self.task.choices else ()


def _play(
    model: VideoModel, config: MemoryConfig, arm: Arm, clip: _Clip, prompt_style: str, journal: Journal
) -> Iterator[Sample]:
    """A sample of every question, asked as soon as its frames have been seen."""
    constants = arm.config(config)
    engine = StreamEngine(model, constants, make_policy(arm.policy, constants), prompt_style)
    names = {number: f"{clip.task.frames}/{clip.index}/{number}/{arm.name}" for number, _ in clip.questions}
    done = {
        number: sample
        for number, question in clip.questions
        if (sample := _restored(journal.done.get(names[number], {}), arm, clip, number, question))
    }
    if arm.remember and len(done) < len(names):  # each answer depends on those before it
        done = {}
    for number, question in clip.questions:
        if number not in done:
            for frame in clip.frames[engine.frames_seen : question.frames_seen]:
                engine.push(frame)
            done[number] = _asked(engine, arm, clip, number, question)
            journal.add({"id": names[number], **_record(done[number])})
        yield done[number]


def _asked(engine: StreamEngine, arm: Arm, clip: _Clip, number: int, question: Question) -> Sample:
    *_, answer = engine.ask(question.text, Sampling(max_new_tokens=64), remember=arm.remember)
    assert isinstance(answer, Answer)
    scene = question.evidence[0] if len(question.evidence) == 1 else None
    offered = clip.options(number, question)
    return _sample(
        arm,
        clip,
        number,
        question,
        answer=answer.text,
        traced=_traced(answer.evidence, scene) if scene else None,
        traced_by_chance=chance(answer.evidence, scene, question.frames_seen - 1) if scene else None,
        chosen=max(offered, key=lambda text: engine.log_likelihood(question.text, text), default=None),
    )


def _sample(
    arm: Arm,
    clip: _Clip,
    number: int,
    question: Question,
    *,
    answer: str,
    traced: bool | None,
    traced_by_chance: float | None,
    chosen: str | None,
) -> Sample:
    """The sample of a question to which this was said."""
    ends = [min(end, question.frames_seen) for _, end in question.evidence]
    return Sample(
        arm=arm.name,
        policy=arm.policy,
        frames=clip.task.frames,
        video=clip.index,
        number=number,
        type=question.type,
        group=question.group,
        at_frame=question.frames_seen,
        age=question.frames_seen - min(ends) if ends else None,
        question=question.text,
        expected=question.answer,
        answer=answer,
        right=normalise(answer) == normalise(question.answer),
        traced=traced,
        traced_by_chance=traced_by_chance,
        options=clip.options(number, question),
        chosen=chosen,
    )


def _record(sample: Sample) -> dict[str, Any]:
    """As a journal keeps it: `type` says there what kind of line it is."""
    record = {field.name: getattr(sample, field.name) for field in fields(Sample)}
    return {"question_type" if key == "type" else key: value for key, value in record.items()}


def _restored(record: Mapping[str, Any], arm: Arm, clip: _Clip, number: int, question: Question) -> Sample | None:
    """The sample of a record of a journal; None where that is none of this question, for example because it was edited."""
    said = {name: record.get(name) for name in ("answer", "traced", "traced_by_chance", "chosen")}
    if not isinstance(said["answer"], str) or not isinstance(said["traced"], bool | None):
        return None
    if not isinstance(said["traced_by_chance"], float | int | None):
        return None
    sample = _sample(arm, clip, number, question, **said)  # type: ignore[arg-type]  # as just checked
    if sample.chosen not in (sample.options or (None,)):
        return None
    kept = {key: value for key, value in record.items() if key not in ("type", "id")}
    return sample if kept == {**_record(sample), "options": list(sample.options)} else None


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
