"""A film that is being watched, kept as a session: saved on the way, and open to other processes' questions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

from hermes.config import Sampling
from hermes.errors import HermesError, ResourceError, UsageError
from hermes.events import Answer, AnswerDelta
from hermes.live import LiveServer, Turnstile
from hermes.sessions import Session, SessionStore, SessionWriter, SourceIdentity, rewind
from hermes_cli import records
from hermes_cli.failures import describe
from hermes_cli.options import SavingOptions, Settings
from hermes_cli.player import Asking, Event, Player, Warned
from hermes_cli.questions import TimedQuestion
from hermes_cli.recall import kept_settings, recalled_film
from hermes_cli.saving import Saver
from hermes_cli.screen import Screen
from hermes_cli.viewing import Viewing

Record = dict[str, Any]
Turn = Callable[[], AbstractContextManager[Any]]
Events = Generator[Event, None, None]


@dataclass(frozen=True)
class Host:
    """Answers requests about a session that is being played.

    A question about now takes its turn between two chunks. One about the past gets a memory of its own, made from the saved
    ones, while the film plays on.

    Attributes:
        player: plays the film.
        session: what is saved of it.
        log: takes records of the session's log.
    """

    player: Player
    session: Session
    log: Callable[[records.Record], None]

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
            raise UsageError("the video has not begun", "ask again in a moment")
        remembered = at is None
        player, events = self._now(player, question) if at is None else self._then(player, question, at)
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

    def _now(self, player: Player, question: str) -> tuple[Player, Events]:
        return player, player.ask(question)

    def _then(self, player: Player, question: str, at: str) -> tuple[Player, Events]:
        from hermes.engine import StreamEngine  # noqa: PLC0415 - loads torch

        live, film = player.engine, recalled_film(self.session)
        moment_s = film.moment(at)
        if live.now_s is None or moment_s > live.now_s:
            raise UsageError(f"{at} has not been played yet", "leave --at out to ask about now")
        engine = StreamEngine(live.model, live.config, live.policy, live.prompt_style)
        past = replace(player, film=film, engine=engine, past=rewind(engine, self.session, moment_s), turn=nullcontext)
        return past, past.play([TimedQuestion(moment_s, question)], to_the_end=False)


def _sampling(player: Player, changes: Record) -> Sampling:
    try:
        return replace(player.sampling, **changes)
    except TypeError as error:
        raise UsageError("the message has an unknown setting for answers", "use the same hermes as the watch") from error


@contextmanager
def kept(watched: Viewing, saving: SavingOptions, settings: Settings, what: Session | str | None) -> Iterator[None]:
    """While it lasts, what is watched is saved as a session, and other processes may ask about it.

    Args:
        what: the session that goes on, or the source of a new one.

    Raises:
        UsageError: the session is written by another process, or its new name cannot be one.
    """
    writer = _open_writer(watched, saving, settings, what)
    if writer is None:
        yield
        return
    turnstile, screen = Turnstile(), watched.screen
    watched.player = player = replace(watched.player, turn=turnstile.turn)
    saver = Saver(writer, player, screen.warn)
    watched.saved = saver.show
    try:
        with _listening(LiveServer(writer.folder, Host(player, writer, saver.log).answer, turnstile), screen):
            yield
    finally:
        saver.close()
        screen.note(f'session {writer.info.id}: hermes ask --at TIME "QUESTION" goes back to any moment of it')


def _open_writer(
    watched: Viewing, saving: SavingOptions, settings: Settings, what: Session | str | None
) -> SessionWriter | None:
    store, model = SessionStore(), watched.player.engine.model
    if not saving.save:
        return None
    if isinstance(what, Session):
        return store.reopen(what, saving.session_size)
    kept_options = kept_settings(watched.player, settings)
    source = SourceIdentity.of(str(what))
    try:
        return store.create(source, model.name, model.revision, kept_options, saving.name, saving.session_size)
    except (UsageError, OSError) as error:
        if saving.name:
            raise
        watched.screen.warn(f"this run is not saved as a session: {error}")
        return None


@contextmanager
def _listening(server: LiveServer, screen: Screen) -> Iterator[None]:
    """A server that is not there is no reason not to watch."""
    with ExitStack() as stack:
        try:
            stack.enter_context(server)
        except HermesError as error:
            screen.warn(f"other processes cannot ask: {error}")
        yield
