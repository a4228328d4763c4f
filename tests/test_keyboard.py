"""What is typed is not lost, whenever it is typed."""

from __future__ import annotations

import os
import pty
import signal
import termios
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prompt_toolkit.keys import Keys

from hermes_cli.repl.keyboard import Keyboard
from hermes_cli.repl.prompt import _suspend

TYPED = b"a\x04\r\x1a\x1c\x13"
ARRIVED = ["a", Keys.ControlD, Keys.ControlM, Keys.ControlZ, Keys.ControlBackslash, Keys.ControlS]


class Desk:
    """A terminal, and somebody at its other end."""

    def __init__(self) -> None:
        self._controller, device = pty.openpty()
        self.terminal = open(device)  # noqa: PTH123, SIM115 - a file number, closed with the desk
        self.keyboard = Keyboard(self.terminal)

    def type(self, keys: bytes) -> None:
        os.write(self._controller, keys)

    @property
    def modes(self) -> list[object]:
        return list(termios.tcgetattr(self.terminal))

    @property
    def arrived(self) -> list[object]:
        """The keys that reach a prompt."""
        return [press.key for press in self.keyboard.read_keys()]

    @property
    def shown(self) -> bytes:
        """What the terminal itself has made of the keys."""
        os.set_blocking(self._controller, False)
        try:
            return os.read(self._controller, 100)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.terminal.close()
        os.close(self._controller)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


def test_what_is_typed_while_lines_are_written_arrives(desk: Desk) -> None:
    with desk.keyboard.raw_mode():
        with desk.keyboard.cooked_mode():
            desk.type(TYPED)
        assert desk.arrived == ARRIVED
    assert desk.shown == b""


def test_what_is_typed_between_two_prompts_waits_unseen_for_the_next_one(desk: Desk) -> None:
    before = desk.modes
    with desk.keyboard.held():
        with desk.keyboard.raw_mode():
            pass
        desk.type(TYPED)
        with desk.keyboard.raw_mode():
            assert desk.arrived == ARRIVED
    assert desk.shown == b""
    assert desk.modes == before


def test_the_shell_finds_the_terminal_as_it_was(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    before, stopped = desk.modes, list[tuple[int, int, bool]]()
    monkeypatch.setattr(os, "kill", lambda group, number: stopped.append((group, number, desk.modes == before)))
    with desk.keyboard.held(), desk.keyboard.raw_mode():
        during = desk.modes
        desk.keyboard.suspend()
        assert desk.modes == during
    assert stopped == [(0, signal.SIGTSTP, True)]


def test_a_signal_while_it_is_stopped_ends_the_prompt(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(group: int, number: int) -> None:
        raise SystemExit(143)

    before, ends = desk.modes, list[SystemExit]()

    def end(exception: SystemExit) -> None:
        ends.append(exception)

    app: Any = SimpleNamespace(exit=end)
    monkeypatch.setattr(os, "kill", leave)
    with desk.keyboard.held():
        _suspend(desk.keyboard, app)
    assert [end.code for end in ends] == [143]
    assert desk.modes == before
