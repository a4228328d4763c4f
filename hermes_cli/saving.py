"""Keeping a run as a session: what was asked, and the memory as it was at moments of the film."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes.errors import HermesError
from hermes.events import Answer, ChunkEncoded
from hermes_cli import records
from hermes_cli.player import Asking, Ended, Event, Player

if TYPE_CHECKING:
    from hermes.engine import EngineState
    from hermes.sessions import SessionWriter

_SHARE = 0.04
"""Largest share of the time since the start that goes into saving the memory, the last save apart."""


class Saver:
    """A reader of events that writes a session. When it cannot, the run goes on without it.

    The memory is saved after a chunk, as often as `_SHARE` allows, in a thread of its own, and at the end of the film and of
    the run. Frames that wait for their chunk are left out: they are read again from the source.

    Args:
        writer: the session.
        player: what is saved.
        warn: says that saving has stopped.
    """

    def __init__(self, writer: SessionWriter, player: Player, warn: Callable[[str], None]) -> None:
        self._writer, self._player, self._warn = writer, player, warn
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hermes-saving")
        self._saving: Future[float] | None = None
        self._asking: Asking | None = None
        self._chunks_unsaved = 0
        self._start_s = time.monotonic()
        self._spent_s = 0.0
        self._working = True

    def show(self, event: Event) -> None:
        """Take an event."""
        match event:
            case ChunkEncoded():
                self._chunks_unsaved += 1
                self._attempt(self._save_if_due)
            case Ended():
                self._attempt(self._catch_up)
            case Asking():
                self._asking = event
            case Answer() if self._asking:
                self.log(records.logged_answer(self._asking, event))

    def log(self, record: records.Record) -> None:
        """Add a record to the session's log; may be called from any thread."""
        self._attempt(lambda: self._writer.append(record))

    def close(self) -> None:
        """Save what has not been saved yet, and end the session."""
        self._attempt(self._save_last)
        self._thread.shutdown()
        self._writer.close()

    def _save_if_due(self) -> None:
        now_s = time.monotonic()
        if self._saving is not None and self._saving.done():
            self._wait()
        if self._saving is None and self._spent_s <= _SHARE * (now_s - self._start_s):
            self._saving = self._thread.submit(self._timed_save, self._state())
            self._spent_s += time.monotonic() - now_s

    def _save_last(self) -> None:
        self._writer.append(records.stopped(self._player))
        self._catch_up()

    def _catch_up(self) -> None:
        self._wait()
        if self._chunks_unsaved:
            self._writer.save(self._state())

    def _wait(self) -> None:
        """Take in what the thread has done."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            self._spent_s += saving.result()

    def _state(self) -> EngineState:
        with self._player.turn():
            state = self._player.engine.snapshot()
        self._chunks_unsaved = 0
        return replace(state, pending=())

    def _timed_save(self, state: EngineState) -> float:
        start_s = time.monotonic()
        self._writer.save(state)
        return time.monotonic() - start_s

    def _attempt(self, step: Callable[[], Any]) -> None:
        if not self._working:
            return
        try:
            step()
        except (OSError, HermesError) as error:  # the latter when the memory was interrupted while it forgot
            self._working = False
            self._warn(f"the session is no longer saved: {getattr(error, 'strerror', None) or error}")
