"""A command of the user's, run when the answer to a standing question changes."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import IO

from hermes.errors import UsageError
from hermes.events import Answer
from hermes.sources.opening import printable
from hermes_cli import records
from hermes_cli.player import Asking
from hermes_cli.screen import Screen
from hermes_cli.terminal import clean, json_line
from hermes_cli.viewing import Events, Viewing

_PATIENCE_S = 3.0  # for commands that are under way when the user leaves
_LAST_WORDS_S = 1.0  # from being told to end until being ended; also for output that is still in the pipe
_LINE = 8192  # characters; a longer one is shown in pieces


def command_words(written: str) -> tuple[str, ...]:
    """A command as words, without a shell; raises `UsageError` where there is none that could be run."""
    try:
        words = shlex.split(written)
    except ValueError as error:
        reason = str(error).lower()
        raise UsageError(f"--on-change {written!r} cannot be read: {reason}", "close its quotes") from None
    if not words:
        raise UsageError("--on-change names no command", 'for example --on-change "notify.py --loud"')
    if shutil.which(words[0]) is None:
        hint = "check its name, and that it may be executed; without a shell, only a program can be run"
        raise UsageError(f"--on-change: there is no command {printable(words[0])!r}", hint)
    return tuple(words)


class Reactor:
    """Runs a command in a thread of its own, one at a time, with an answer as JSON on its standard input.

    What comes while it runs waits, for each question only the newest. What the command writes is shown on standard error. It
    is in a session of its own, so that Ctrl-C is ours alone, and has no file of ours but those three streams.

    Args:
        words: program and arguments.
        screen: shows what the command writes, and how it failed.
    """

    def __init__(self, words: Sequence[str], screen: Screen) -> None:
        self._words, self._screen = words, screen
        self._name = f"--on-change: {printable(words[0])}"
        self._answers = dict[str, str]()  # the newest to each question
        self._waiting = dict[str, records.Record]()  # by question, oldest first
        self._changed = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._busy = self._leaving = self._ended = False
        self._thread = threading.Thread(target=self._run, name="hermes on-change", daemon=True)
        self._thread.start()

    def followed(self, watched: Viewing, events: Events) -> Events:
        """The same events; the first answer to a standing question, and each that differs from the last, is reacted to."""
        asking: Asking | None = None
        with closing(events):
            for event in events:
                yield event
                match event:
                    case Asking():
                        asking = event
                    case Answer() if asking is not None and not asking.remember:
                        before, self._answers[asking.question] = self._answers.get(asking.question), event.text
                        if event.text != before:
                            text, waiting = clean(event.text).strip(), watched.tally.waiting
                            self.take(records.answer(watched.player, asking, text, event, waiting))

    def take(self, answer: records.Record) -> None:
        """Run the command with an answer as soon as it is free."""
        with self._changed:
            is_first = not self._waiting
            self._waiting.pop(answer["question"], None)
            self._waiting[answer["question"]] = answer
            self._changed.notify_all()
            late = self._busy and is_first
        if late:
            self._screen.warn(f"{self._name} is still running: the newest answer waits for it, older ones are left out")

    def close(self) -> None:
        """Let the command come to its end for a moment, then end it."""
        try:
            with self._changed:
                self._leaving = True
                self._changed.notify_all()
            self._thread.join(_PATIENCE_S)
        finally:
            self._end()

    def _run(self) -> None:
        while (answer := self._next()) is not None:
            self._react(json_line(answer))
            with self._changed:
                self._busy = False

    def _next(self) -> records.Record | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._leaving)
            self._busy = bool(self._waiting)
            return self._waiting.pop(next(iter(self._waiting))) if self._waiting else None

    def _react(self, line: str) -> None:
        try:
            process = self._started()
        except OSError as error:
            self._screen.warn(f"{self._name} cannot be started: {error.strerror}")
            return
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        reader = threading.Thread(target=self._show, args=(process.stdout,), daemon=True)
        reader.start()
        with suppress(BrokenPipeError), process.stdin as pipe:  # it need not read what it is told
            pipe.write(line)
        code = process.wait()
        reader.join(_LAST_WORDS_S)  # what the command has left running may hold the pipe
        if code and not self._ended:
            how = f"failed with exit code {code}" if code > 0 else f"was ended by signal {-code}"
            self._screen.warn(f"{self._name} {how}")

    def _started(self) -> subprocess.Popen[str] | None:
        with self._changed:
            if self._ended:
                return None
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            return self._process

    def _show(self, output: IO[str]) -> None:
        with output:
            while line := output.readline(_LINE):
                self._screen.pass_on(line.rstrip("\n"))

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            process, left_out = self._process, bool(self._waiting)
            self._waiting.clear()
        if process is None or process.poll() is not None:
            return
        self._screen.warn(f"{self._name} is still running and is ended{'; an answer is left out' if left_out else ''}")
        _signal(process, signal.SIGTERM)
        try:
            process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
        self._thread.join(_LAST_WORDS_S)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """To the command and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


@contextmanager
def reacting(watched: Viewing, words: Sequence[str] | None) -> Iterator[None]:
    """While it lasts, a command is run for changed answers of standing questions, if there is one."""
    if words is None:
        yield
        return
    reactor = Reactor(words, watched.screen)
    watched.followed = partial(reactor.followed, watched)
    try:
        yield
    finally:
        reactor.close()
