"""Keeping a run as a session: what was asked, and the memory as it was at moments of the film."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from hermes.errors import HermesError
from hermes.events import Answer, ChunkEncoded
from hermes_cli import records
from hermes_cli.player import Asking, Ended, Event, Forgotten, Player

if TYPE_CHECKING:
    from hermes.engine import EngineState
    from hermes.frames import Frame
    from hermes.sessions import Recorder, SessionWriter

_T = TypeVar("_T")

_LOG, _MEMORY = "answers are", "the memory is"  # what is saved

_SHARE = 0.04
"""Largest share of the time since the start that goes into saving the memory, the last save apart."""


class Saver:
    """A reader of events that writes a session. When it cannot, the run goes on without it.

    Memories and frames stop together, so that those that are there fit; the log goes on without them, and they without it.

    The memory is saved after a chunk, as often as `_SHARE` allows, in a thread of its own, and at the end of the film and of
    the run. Frames that wait for their chunk are left out: they are read again from the source. Whoever calls `show` or
    `close` has its turn at the engine.

    Args:
        writer: the session.
        recorder: keeps the frames, if anything does.
        player: what is saved.
        warn: says what is no longer saved.
    """

    def __init__(
        self, writer: SessionWriter, recorder: Recorder | None, player: Player, warn: Callable[[str], None]
    ) -> None:
        self._writer, self._recorder, self._player, self._warn = writer, recorder, player, warn
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hermes-saving")
        self._saving: Future[float] | None = None
        self._asking: Asking | None = None
        self._chunks_unsaved = 0
        self._start_s = time.monotonic()
        self._spent_s = self._cost_s = 0.0  # seconds in all, and of the newest save
        self._stopped = set[str]()

    def show(self, event: Event) -> None:
        """Take an event."""
        match event:
            case ChunkEncoded():
                self._chunks_unsaved += 1
                self._attempt(_MEMORY, self._save_if_due)
            case Ended():
                self._attempt(_MEMORY, self._catch_up)
            case Asking():
                self._asking = event
            case Answer() if self._asking:
                self.log(records.logged_answer(self._asking, event))
            case Forgotten():
                self.log(records.forgotten(event))

    def take(self, frame: Frame) -> Frame:
        """Record a frame; returns it as the memory shall see it, so that it sees what can be read back."""
        recorder = self._recorder
        return frame if recorder is None else self._attempt(_MEMORY, lambda: recorder.take(frame)) or frame

    def log(self, record: records.Record) -> None:
        """Add a record to the session's log; may be called from any thread."""
        self._attempt(_LOG, lambda: self._writer.append(record))

    def close(self) -> None:
        """Save what has not been saved yet, and end the session."""
        self.log(records.stopped(self._player))
        self._attempt(_MEMORY, self._catch_up)
        if self._recorder is not None:
            self._attempt(_MEMORY, self._recorder.close)
        self._thread.shutdown()
        self._writer.close()

    def _save_if_due(self) -> None:
        now_s = time.monotonic()
        if self._saving is not None and self._saving.done():
            self._wait()
        if self._saving is None and self._spent_s + self._cost_s <= _SHARE * (now_s - self._start_s):
            self._saving = self._thread.submit(self._timed_save, self._state())
            self._spent_s += time.monotonic() - now_s

    def _catch_up(self) -> None:
        self._wait()
        if self._chunks_unsaved:
            self._writer.save(self._state())

    def _wait(self) -> None:
        """Take in what the thread has done."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            self._cost_s = saving.result()
            self._spent_s += self._cost_s

    def _state(self) -> EngineState:
        state = self._player.engine.snapshot()
        self._chunks_unsaved = 0
        return replace(state, pending=())

    def _timed_save(self, state: EngineState) -> float:
        start_s = time.monotonic()
        self._writer.save(state)
        return time.monotonic() - start_s

    def _attempt(self, what: str, step: Callable[[], _T]) -> _T | None:
        """What a step of saving something returns; None where that has failed, then or earlier."""
        if what in self._stopped:
            return None
        try:
            return step()
        except (OSError, HermesError) as error:  # the latter when the memory was interrupted while it forgot
            self._stopped.add(what)
            self._warn(f"{what} no longer saved: {getattr(error, 'strerror', None) or error}")
            return None
