"""Asking whoever listens in a session's folder."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path

from hermes.errors import PartialError
from hermes.live.address import connect
from hermes.live.protocol import VERSION, Record, error_of, to_line


def ask_live(folder: Path, request: Record) -> Generator[Record, None, None]:
    """Put a request to the `watch` that has this session open: the records of its reply, the last of type `answer`.

    Close the iterator to cancel the answer. Everything, connecting included, happens as it is read.

    Args:
        request: what the handler of `LiveServer` understands; the version is added.

    Raises:
        NotLiveError: nobody listens; before the first record.
        HermesError: the one that the other side reports.
        PartialError: the other side ended before its answer did.
        UsageError: the socket cannot be reached.
    """
    with connect(folder) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent: the reply says why
            connection.sendall(to_line({"version": VERSION, **request}))
        with closing(_records(connection)) as records:
            for record in records:
                if record["type"] == "error":
                    raise error_of(record)
                yield record
                if record["type"] == "answer":
                    return
    raise PartialError("the watch ended before it had answered", "ask again; what it saved can be asked without it")


def _records(connection: socket.socket) -> Generator[Record, None, None]:
    with connection.makefile("rb") as lines, suppress(ConnectionResetError):
        for line in lines:
            if line.endswith(b"\n"):  # the last one of a process that was killed may not
                yield json.loads(line)
