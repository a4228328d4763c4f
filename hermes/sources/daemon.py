"""Calls that may block for long, in threads that nobody has to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_daemon(call: Callable[[], T]) -> Future[T]:
    """Start a call in a thread of its own, which does not keep the process alive. Ctrl-C ends waiting for its result."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="hermes-source", daemon=True).start()
    return future
