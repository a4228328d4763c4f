"""Playing a film into a memory and asking on the way, as a stream of events for whoever shows them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hermes.config import Sampling
from hermes.errors import UsageError
from hermes.events import Answer, AnswerDelta, ChunkEncoded
from hermes.sources import Feed, Pulse
from hermes.timecode import format_time
from hermes_cli.choosing import Choice
from hermes_cli.film import Film
from hermes_cli.questions import TimedQuestion
from hermes_cli.standing import StandingQuestion
from hermes_cli.transport import Transport

if TYPE_CHECKING:
    from hermes.engine import Coming, StreamEngine
    from hermes.frames import Frame
    from hermes.sessions import Remembered

HALF_MILLISECOND_S = 0.0005
"""Times are written in milliseconds, so closer ones are the same."""

_BEAT_S = 0.25  # how long nothing is told while no frame comes


@dataclass(frozen=True)
class Seen:
    """A frame has been taken in."""

    time_s: float


@dataclass(frozen=True)
class Asking:
    """A question is put to the memory.

    Attributes:
        at_s: the moment it is about.
        frame_s: time of the newest frame in memory.
        frames: how many have been taken in.
        visual_tokens: visual tokens held, per layer.
        top_position: largest position in use over all layers.
        remember: whether the exchange colours what the memory keeps from here on.
    """

    question: str
    at_s: float
    frame_s: float
    frames: int
    visual_tokens: tuple[int, ...]
    top_position: float
    remember: bool = True


@dataclass(frozen=True)
class Warned:
    """Something the user should know; the work goes on."""

    message: str


@dataclass(frozen=True)
class Ended:
    """The film has been played to its end; questions about it may follow."""


@dataclass(frozen=True)
class Forgotten:
    """No earlier question colours any more what the memory keeps.

    Attributes:
        frames: how many have been taken in.
    """

    frames: int


Event = Seen | Ended | Forgotten | ChunkEncoded | Asking | AnswerDelta | Answer | Warned | Pulse


def as_it_is(frame: Frame) -> Frame:
    """The frame as it came."""
    return frame


class NotBegunError(UsageError):
    """There is nothing yet to ask about."""

    def __init__(self) -> None:
        super().__init__("the video has not begun", "ask again in a moment")


@dataclass(frozen=True)
class Player:
    """A film, the memory it is played into, and how questions are answered.

    Attributes:
        policy: the name of the engine's memory policy.
        choice: which model the engine has, and why.
        past: questions of an earlier run that this one repeats, which colour what the memory keeps; in order.
        turn: whoever uses the engine waits for its turn.
        transport: holds the film back, or ends it.
        take: gives each frame as the memory shall see it.
        looks_ahead: whether that is the frame itself, so that frames may be looked at before their turn.
        standing: questions that are asked again and again.
    """

    film: Film
    engine: StreamEngine
    sampling: Sampling
    policy: str
    choice: Choice
    past: deque[Remembered] = field(default_factory=deque)
    turn: Callable[[], AbstractContextManager[Any]] = nullcontext
    transport: Transport = field(default_factory=Transport)
    take: Callable[[Frame], Frame] = as_it_is
    looks_ahead: bool = True
    standing: Sequence[StandingQuestion] = ()

    def play(self, questions: Sequence[TimedQuestion], to_the_end: bool = True) -> Generator[Event, None, None]:
        """Play the film; each question, in the order of their times, is put before the first frame later than its time.

        Args:
            to_the_end: go on playing when the last question is answered.

        Raises:
            UsageError: a question is too long, before anything is played; there is no frame to play, or a source of unknown
                length ends before a question's time.
        """
        for question in questions:
            self.engine.check_question(question.text)
        waiting = deque(questions)
        newest_s = -math.inf if self.engine.now_s is None else self.engine.now_s
        with closing(self.film.feed(newest_s, self.engine.frames_ahead if self.looks_ahead else 0)) as feed:
            coming = feed.coming if self.looks_ahead else None
            while True:
                frame = feed.take(_BEAT_S)
                yield from _told(feed)
                if feed.ended:
                    break
                if self.transport.stopped:
                    return
                if frame is None:
                    continue
                while waiting and self._passed(waiting[0].time_s, frame.time_s):
                    yield from self._ask_timed(waiting.popleft())
                if not (waiting or to_the_end):
                    break
                for standing in self.standing:
                    yield from self._ask_standing(standing, frame.time_s)
                if not self.transport.wait(frame.time_s):
                    return
                chunk = self.push(self.take(frame), coming)
                yield Seen(frame.time_s)
                if chunk:
                    yield chunk
        if self.engine.now_s is None:
            raise UsageError("no frame lies between --start and --end", "move them apart, or give a higher --fps")
        yield from map(Warned, self.film.source.report.notices)
        yield from self._ask_at_the_end(waiting)
        if to_the_end:
            yield Ended()

    def ask(self, question: str, at_s: float | None = None, remember: bool = True) -> Generator[Event, None, None]:
        """Ask about the newest frame, or about `at_s` as its time; arguments and errors as `StreamEngine.ask`.

        Raises:
            NotBegunError: there is no frame in memory.
        """
        engine = self.engine
        with self.turn():
            self._repeat_past()
            now_s = engine.now_s
            if now_s is None:  # everything may have been forgotten while somebody waited for his turn
                raise NotBegunError
            at_s = now_s if at_s is None else at_s
            position = engine.cache.top_position - 1
            yield Asking(question, at_s, now_s, engine.frames_seen, engine.visual_tokens, position, remember)
            with closing(engine.ask(question, self.sampling, remember)) as pieces:
                yield from pieces
            if trouble := engine.runner.trouble():
                yield Warned(trouble)

    def forget(self) -> Generator[Event, None, None]:
        """Let no earlier question colour what the memory keeps."""
        with self.turn():
            self._repeat_past()
            self.engine.last_exchange = None
            yield Forgotten(self.engine.frames_seen)

    def catch_up(self, until_s: float) -> ChunkEncoded | None:
        """Take the frames up to a moment into memory, at once and without a word; returns the last chunk of them.

        Raises as `StreamEngine.push`, and whatever reading the source raises.
        """
        now_s, chunk = self.engine.now_s, None
        film = replace(self.film, end_s=min(self.film.end_s, until_s + 2 / self.film.fps))
        with closing(film.feed(-math.inf if now_s is None else now_s)) as feed:
            while not feed.ended:
                frame = feed.take(_BEAT_S)
                if frame is not None and frame.time_s <= until_s + HALF_MILLISECOND_S:
                    chunk = self.push(frame) or chunk
        return chunk

    def push(self, frame: Frame, coming: Coming | None = None) -> ChunkEncoded | None:
        """Take a frame into memory, in turn and with the questions of an earlier run; arguments and errors as
        `StreamEngine.push`."""
        with self.turn():
            self._repeat_past()
            return self.engine.push(frame, coming)

    def _repeat_past(self) -> None:
        while self.past and self.past[0].frames <= self.engine.frames_seen:
            self.engine.last_exchange = self.past.popleft().exchange

    def _passed(self, time_s: float, next_s: float) -> bool:
        """Whether the moment is over before the next frame; the first frame answers for all before it."""
        return self.engine.now_s is not None and next_s - time_s > HALF_MILLISECOND_S

    def _ask_standing(self, standing: StandingQuestion, next_s: float) -> Generator[Event, None, None]:
        now_s = self.engine.now_s
        moment_s = None if now_s is None else standing.due(now_s, next_s)
        if moment_s is None:
            return
        events = self.ask(standing.text, moment_s, remember=False)  # or a routine question would colour everything
        with suppress(NotBegunError):
            yield from self._told_of(standing, events)

    def _told_of(self, standing: StandingQuestion, events: Generator[Event, None, None]) -> Generator[Event, None, None]:
        """Those of the events that anybody wants to know of."""
        if not standing.until_change:
            yield from events
            return
        told, is_news = list[Event](), False
        with closing(events):
            for event in events:
                told.append(event)
                is_news = is_news or (isinstance(event, Answer) and standing.is_news(event.text))
                if is_news:
                    yield from told  # in turn still, so that no other question mixes with it
                    told.clear()

    def _ask_timed(self, question: TimedQuestion) -> Generator[Event, None, None]:
        now_s = self.engine.now_s
        assert now_s is not None
        if now_s - question.time_s > HALF_MILLISECOND_S:
            asked = question.time_s
            early = f"{format_time(asked)} is before" if asked >= 0 else f"the time asked for is {-asked:g} s before"
            yield Warned(f"{early} the first frame played; answered at {format_time(now_s)}")
        late = math.isinf(question.time_s)
        yield from self.ask(question.text, now_s if late else max(now_s, question.time_s))

    def _ask_at_the_end(self, waiting: Sequence[TimedQuestion]) -> Generator[Event, None, None]:
        early = self.film.source.report.ended_early
        for question in waiting:
            self.film.check_reached(question.time_s)
            cut_short = early is not None and early.end_s < question.time_s < math.inf
            yield from self._ask_timed(replace(question, time_s=early.end_s) if early and cut_short else question)


def _told(feed: Feed) -> Generator[Event, None, None]:
    """What there is to tell of a source."""
    yield from map(Warned, feed.news())
    if (pulse := feed.pulse()) is not None:
        yield pulse
