"""Listening in a session's folder, and answering whoever asks there."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from types import TracebackType

from hermes.errors import HermesError, ResourceError, UsageError
from hermes.live.address import SOCKET_NAME, connect, listen, peer_user
from hermes.live.protocol import REQUEST_BYTES, Record, error_record, parse_request, to_line
from hermes.live.turnstile import PATROL_S, Turnstile

REQUEST_S = 10.0
"""How long an asker may take over its request."""
SEND_S = 5.0
"""How long an asker may leave a record of its reply unread."""
MAX_ASKERS = 32

Turn = Callable[[], AbstractContextManager[None]]
"""Waits for the turnstile; the place is given up when the asker is gone."""
Handler = Callable[[Record, Turn], Generator[Record, None, None]]
"""Answers a request with the records of its reply. It runs in the asker's own thread, takes the turn around every use of the
engine, and is closed when nobody wants the rest; a `HermesError` becomes the last record."""


class LiveServer:
    """Answers requests that come over a socket in a session's folder, each in a thread of its own, while its block runs.

    At the end of the block no more come in, answers under way get some time to finish and are then cancelled, and the socket
    is removed. Whatever an asker sends or fails to do ends that asker's connection and nothing else.

    Args:
        folder: of the session; its name may be of any length.
        handler: see `Handler`.
        turnstile: what the handler waits for; the player passes it around every `push`.
        grace_s: time that answers under way get at the end.

    Raises:
        UsageError: somebody listens there already, or what has the socket's name is none; at the start of the block.
        ResourceError: the file system lets no socket be made; at the start of the block.
    """

    def __init__(self, folder: Path, handler: Handler, turnstile: Turnstile, grace_s: float = 2.0) -> None:
        self._folder = folder
        self._handler = handler
        self._turnstile = turnstile
        self._grace_s = grace_s
        self._closing = threading.Event()
        self._askers: list[_Asker] = []
        self._door = threading.Thread(target=self._let_in, name="hermes live", daemon=True)

    def __enter__(self) -> LiveServer:
        self._listener = listen(self._folder)
        self._listener.settimeout(PATROL_S)
        self._door.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """What the end of the block does; when this returns, none of its threads runs."""
        if self._closing.is_set():
            return
        self._closing.set()
        with suppress(OSError, HermesError):  # the session may have been deleted
            connect(self._folder).close()  # wakes the door, which looks up by itself otherwise, but later
        with suppress(OSError):
            (self._folder / SOCKET_NAME).unlink()
        self._door.join()
        deadline = time.monotonic() + self._grace_s
        for asker in self._askers:
            if asker.answering:
                asker.thread.join(max(0.0, deadline - time.monotonic()))
            asker.hang_up()
        for asker in self._askers:
            asker.thread.join()

    def _let_in(self) -> None:
        with self._listener:
            while not self._closing.is_set():
                try:
                    connection, _ = self._listener.accept()
                except TimeoutError:
                    continue
                except OSError:  # no file handle is left: one may be, later
                    self._closing.wait(PATROL_S)
                    continue
                if self._closing.is_set():
                    connection.close()
                else:
                    self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        self._askers = [asker for asker in self._askers if asker.thread.is_alive()]
        asker = _Asker(connection, self._handler, self._turnstile)
        try:
            if peer_user(connection) != os.geteuid():
                connection.close()
            elif len(self._askers) >= MAX_ASKERS:
                asker.refuse(ResourceError(f"{MAX_ASKERS} others are asking already", "ask again in a moment"))
                connection.close()
            else:
                asker.thread.start()
                self._askers.append(asker)
        except (OSError, RuntimeError):  # it has left already, or the system has no thread to spare
            connection.close()


class _AskerGoneError(Exception):
    """Nobody is there to read an answer."""


class _Asker:
    """A connection, from its request to the end of the reply."""

    def __init__(self, connection: socket.socket, handler: Handler, turnstile: Turnstile) -> None:
        self.answering = False
        self.thread = threading.Thread(target=self._serve, name="hermes asker", daemon=True)
        self._connection = connection
        self._handler = handler
        self._turnstile = turnstile

    def hang_up(self) -> None:
        """End the connection from another thread; whatever the asker's own thread does with it then fails."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def refuse(self, error: HermesError) -> None:
        """Reply with an error, if there is anybody to read it."""
        with suppress(_AskerGoneError):
            self._send(error_record(error))

    def _serve(self) -> None:
        with self._connection:
            try:
                request = parse_request(self._read_line())
                self.answering = True
                with closing(self._handler(request, self._turn)) as records:
                    for record in records:
                        self._send(record)
            except _AskerGoneError:
                return
            except HermesError as error:
                self.refuse(error)
            except Exception as error:  # a mistake of the handler's, which must not end the watch
                line = str(error).partition("\n")[0]
                self.refuse(HermesError(f"unexpected {type(error).__name__}: {line}", "this is a bug in the watch"))

    def _turn(self) -> AbstractContextManager[None]:
        return self._turnstile.turn(self._check_there)

    def _check_there(self) -> None:
        poll = select.poll()
        poll.register(self._connection, select.POLLHUP)
        if poll.poll(0):
            raise _AskerGoneError

    def _read_line(self) -> bytes:
        deadline = time.monotonic() + REQUEST_S
        line = bytearray()
        while b"\n" not in line:
            room = REQUEST_BYTES + 1 - len(line)
            if not room:
                raise UsageError(f"the message is longer than {REQUEST_BYTES // 1024} KiB", "ask a shorter question")
            piece = self._receive(deadline, room)
            if not (piece or line):
                raise _AskerGoneError  # it only looked whether anybody listens
            if not piece:
                raise UsageError("the message ended before its line did", "ask with hermes ask")
            line += piece
        return bytes(line.partition(b"\n")[0])

    def _receive(self, deadline: float, size: int) -> bytes:
        try:
            self._connection.settimeout(max(0.001, deadline - time.monotonic()))
            return self._connection.recv(size)
        except TimeoutError as error:
            raise UsageError(f"no whole message came within {REQUEST_S:g} s", "ask with hermes ask") from error
        except OSError as error:
            raise _AskerGoneError from error

    def _send(self, record: Record) -> None:
        line = to_line(record)
        try:
            self._connection.settimeout(SEND_S)
            self._connection.sendall(line)
        except OSError as error:  # it has left, or has stopped reading
            raise _AskerGoneError from error
