"""A film that is being watched, kept as a session: saved on the way, and open to other processes' questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from hermes.config import Sampling
from hermes.errors import HermesError, ResourceError, UsageError
from hermes.events import Answer, AnswerDelta, ChunkEncoded
from hermes.live import LiveServer, Turnstile
from hermes.sessions import Recorder, Session, SessionStore, SessionWriter, SourceIdentity
from hermes.sessions.files import write_atomically
from hermes.sessions.identity import INFO_FILE
from hermes.sessions.travel import recollect, rewind
from hermes.timecode import Anchor, format_time, parse
from hermes_cli import records
from hermes_cli.course import Skip, skips
from hermes_cli.failures import describe
from hermes_cli.kept import kept_settings
from hermes_cli.options import SavingOptions, Settings
from hermes_cli.player import Asking, Ended, Event, NotBegunError, Player, Warned, as_it_is
from hermes_cli.questions import TimedQuestion
from hermes_cli.recall import BRING_BACK, OR_NEAREST, lost_film, reaches, replayed_film
from hermes_cli.saving import Saver
from hermes_cli.screen import Screen
from hermes_cli.transport import Transport
from hermes_cli.viewing import Viewing

if TYPE_CHECKING:
    from hermes.engine import EngineState
    from hermes.frames import Frame

Record = dict[str, Any]
Turn = Callable[[], AbstractContextManager[Any]]
Events = Generator[Event, None, None]

ASK_NOW = "leave --at out to ask about now"
"""What to do about a moment that has not been played yet."""

RECORD = "record"
"""The setting of a session that says whether its frames are kept too."""


class Host:
    """Saves what is watched as a session, and answers requests about it.

    A question about now takes its turn between two chunks. One about the past gets a memory of its own, made from the saved
    ones, while the film plays on.

    Args:
        watched: what is watched.
        saving: how it is saved.
        settings: of the run.
        turnstile: whoever uses the engine passes it.

    Attributes:
        player: plays the film, and answers with the settings that the run began with.
        session: what is saved of it; another one after `follow_with`.
        watched, saving, settings: as above.
    """

    session: SessionWriter

    def __init__(self, watched: Viewing, saving: SavingOptions, settings: Settings, turnstile: Turnstile) -> None:
        self.player, self.watched, self.saving, self.settings = watched.player, watched, saving, settings
        self._turnstile = turnstile

    def begin(self, writer: SessionWriter) -> None:
        """Save what is watched from now on."""
        self.session = writer
        self._ended_s: float | None = None  # time of the last frame, once the film has been played to its end
        self.player = replace(self.player, film=self.watched.player.film)
        self._saver = Saver(writer, _recorder(writer, self.player, self.saving), self.player, self.watched.screen.warn)
        self.watched.player = replace(self.watched.player, take=self._take, looks_ahead=not is_recorded(writer))
        self.watched.saved = self._keep
        self._serving = ExitStack()
        self._serving.enter_context(_listening(LiveServer(writer.folder, self.answer, self._turnstile), self.watched.screen))

    def end(self) -> None:
        """End the session."""
        self._serving.close()  # those who ask need their turn to come to an end
        with self._turnstile.turn():
            self._end_saving()

    def _end_saving(self) -> None:
        self._saver.close()
        if self.session.last_s is not None:
            again = f'session {self.session.info.id}: hermes ask --at TIME "QUESTION" goes back to any moment of it'
            self.watched.screen.note(again)

    def log(self, record: records.Record) -> None:
        """Add a record to the session's log; may be called from any thread."""
        self._saver.log(record)

    def follow_with(self, writer: SessionWriter, player: Player, state: EngineState) -> None:
        """End the session and go on with another one, from this memory."""
        self._serving.close()
        with self._turnstile.turn():
            self._end_saving()
            player.engine.restore(state)
            player.past.clear()
            player.past.extend(recollect(player.engine, writer.log()))
            self.watched.player = player
            self.begin(writer)

    def save_memory(self) -> None:
        """Have the memory as it is on the disk, and nothing under way."""
        with self._turnstile.turn():
            self._saver.show(Ended())

    @property
    def skips(self) -> tuple[Skip, ...]:
        """What of the film was skipped."""
        return skips(self.session.log())

    def write_info(self) -> None:
        """Write anew what is known of the session."""
        try:
            write_atomically(self.session.folder / INFO_FILE, self.session.info.to_json())
        except OSError as error:
            self.watched.screen.warn(f"what is known of the session is not saved: {error.strerror}")

    def _take(self, frame: Frame) -> Frame:
        return self._saver.take(frame)  # what is live plays on while one session follows another

    def _keep(self, event: Event) -> None:
        """Questions and answers come while whoever asks has its turn; what the film tells waits for one.

        The turn is the only lock there is: with a second one, the film and a question could wait for each other.
        """
        if not isinstance(event, ChunkEncoded | Ended):
            self._saver.show(event)
            return
        with self._turnstile.turn():
            if isinstance(event, Ended):
                self._ended_s = self.player.engine.now_s
            if not isinstance(event, ChunkEncoded) or self.player.engine.frame_times_s:  # or its memory is no more
                self._saver.show(event)

    def answer(self, request: Record, turn: Turn) -> Generator[Record, None, None]:
        """The events of an answer as JSON objects; raises `HermesError` for a request that cannot be answered."""
        try:
            yield from self._told(request, turn)
        except HermesError:
            raise
        except Exception as error:
            failure = describe(error)
            if not failure.expected:
                raise
            raise ResourceError(failure.message, failure.hint) from error

    def _told(self, request: Record, turn: Turn) -> Generator[Record, None, None]:
        question, at, sampling = request.get("question"), request.get("at"), request.get("sampling", {})
        if not isinstance(question, str) or not (at is None or isinstance(at, str)) or not isinstance(sampling, dict):
            raise UsageError("the message has no question, or a time or settings of the wrong kind", "ask with hermes ask")
        player = replace(self.player, sampling=_sampling(self.player, sampling), turn=turn)
        if player.engine.now_s is None:
            raise NotBegunError
        remembered = at is None or parse(at).anchor in {Anchor.NOW, Anchor.END}
        if at is None or remembered:
            events = player.ask(question)
        else:
            player, events = self.then(player, question, at, bool(request.get("nearest")), OR_NEAREST)
        with closing(events):
            asking: Asking | None = None
            for event in events:
                match event:
                    case Asking():
                        asking = event
                        yield {"type": "asking", **asdict(event)}
                    case AnswerDelta():
                        yield {"type": "delta", **asdict(event)}
                    case Warned():
                        yield {"type": "warning", **asdict(event)}
                    case Answer():
                        assert asking is not None  # an answer follows its question
                        self.log(records.logged_answer(asking, event, remembered))
                        waiting = asking.frames % player.engine.config.chunk_frames
                        record = records.answer(player, asking, event.text, event, waiting)
                        yield {"type": "answer", "answered": asdict(event), "record": record}

    def keep_past(self) -> Callable[[Event], None]:
        """Logs an answer about the past, given the events of it."""
        asked: list[Asking] = []

        def keep(event: Event) -> None:
            match event:
                case Asking():
                    asked.append(event)
                case Answer():
                    self.log(records.logged_answer(asked[-1], event, remembered=False))

        return keep

    def then(
        self, player: Player, question: str, at: str, nearest: bool = False, hint: str = BRING_BACK, ask_now: str = ASK_NOW
    ) -> tuple[Player, Events]:
        """Ask about a moment that was played, with a memory of its own: the player that answers, and its events.

        Where the film has been played to its end, whatever is not before its last frame is about that one, and the memory is
        the one that stands there.

        Args:
            nearest: ask the memory that was saved last before that moment, and do without the source.
            hint: what to do about a source that is gone or has changed.
            ask_now: what to do about a moment that has not been played yet.

        Raises:
            UsageError: the time cannot be read, was skipped or has not been played yet; the frames before it are gone, and
                no memory was saved.
        """
        from hermes.engine import StreamEngine  # noqa: PLC0415 - loads torch

        live = player.engine
        film = lost_film(self.session) if nearest else replayed_film(self.session, hint, self.settings.playing)
        moment_s = film.moment(at)
        film.check_seen(moment_s)
        is_last = live.now_s is not None and live.now_s == self._ended_s and moment_s >= live.now_s
        if is_last and not nearest:
            return player, player.ask(question, None if math.isinf(moment_s) else moment_s, remember=False)
        if live.now_s is None or (moment_s > live.now_s and not is_last):
            raise UsageError(f"{at} has not been played yet", ask_now)
        engine = StreamEngine(live.model, live.config, live.policy, live.prompt_style)
        coming = rewind(engine, self.session, moment_s)
        alone = replace(player, turn=nullcontext, take=as_it_is, looks_ahead=True, transport=Transport())
        past = replace(alone, film=film, engine=engine, past=coming)
        if reaches(self.session, film, moment_s):
            return past, past.play([TimedQuestion(moment_s, question)], to_the_end=False)
        if engine.now_s is None:
            raise UsageError("no memory was saved before that moment yet", "give a later time")
        return past, _from_saved(past, question)


def _from_saved(player: Player, question: str) -> Events:
    assert player.engine.now_s is not None
    yield Warned(f"answered from the memory that was saved at {format_time(player.engine.now_s)}")
    yield from player.ask(question)


def _sampling(player: Player, changes: Record) -> Sampling:
    try:
        return replace(player.sampling, **changes)
    except TypeError as error:
        raise UsageError("the message has an unknown setting for answers", "use the same hermes as the watch") from error


@contextmanager
def kept(watched: Viewing, saving: SavingOptions, settings: Settings, what: Session | str | None) -> Iterator[Host | None]:
    """While it lasts, what is watched is saved as a session, and other processes may ask about it.

    It yields who answers about the session; None where nothing is saved.

    Args:
        what: the session that goes on, or the source of a new one.

    Raises:
        UsageError: the session is written by another process, or its new name cannot be one.
    """
    writer = _open_writer(watched, saving, settings, what)
    turnstile = Turnstile()
    watched.player = replace(watched.player, turn=turnstile.turn)
    if writer is None:
        yield None
        return
    host = Host(watched, saving, settings, turnstile)
    host.begin(writer)
    try:
        yield host
    finally:
        host.end()


def _open_writer(
    watched: Viewing, saving: SavingOptions, settings: Settings, what: Session | str | None
) -> SessionWriter | None:
    store, model = SessionStore(), watched.player.engine.model
    if not saving.save:
        return None
    if isinstance(what, Session):
        if saving.record and not is_recorded(what):
            raise UsageError(f"session {what.info.id} has not been recorded from its start", "leave --record out")
        return store.reopen(what, saving.session_size)
    kept_options = kept_settings(watched.player, settings) | {RECORD: saving.record}
    source = SourceIdentity.of(str(what))
    try:
        return store.create(source, model.name, model.revision, kept_options, saving.name, saving.session_size)
    except (UsageError, OSError) as error:
        if saving.name:
            raise
        watched.screen.warn(f"this run is not saved as a session: {error}")
        return None


def _recorder(session: Session, player: Player, saving: SavingOptions) -> Recorder | None:
    recorded = is_recorded(session)
    return Recorder(session.folder, player.engine.frames_seen, saving.session_size) if recorded else None


def is_recorded(session: Session) -> bool:
    """Whether a session's frames are kept too."""
    return bool(session.info.settings.get(RECORD))  # sessions of the first days do not say


@contextmanager
def _listening(server: LiveServer, screen: Screen) -> Iterator[None]:
    """A server that is not there is no reason not to watch."""
    with ExitStack() as stack:
        try:
            stack.enter_context(server)
        except HermesError as error:
            screen.warn(f"other processes cannot ask: {error}")
        yield
