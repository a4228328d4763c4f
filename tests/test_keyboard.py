"""What is typed is not lost, whenever it is typed."""

from __future__ import annotations

import os
import pty
import sys
import termios
from collections.abc import Iterator

import pytest
from prompt_toolkit.keys import Keys

from hermes_cli.repl.keyboard import Keyboard, typed_ahead


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of the terminal that standard input is."""
    controller, device = pty.openpty()
    with open(device) as terminal:  # noqa: PTH123 - a file number
        monkeypatch.setattr(sys, "stdin", terminal)
        yield controller
    os.close(controller)


def keys(keyboard: Keyboard) -> list[object]:
    """What has been typed."""
    return [press.key for press in keyboard.read_keys()]


def test_an_end_of_file_that_is_typed_while_lines_are_written_arrives(controller: int) -> None:
    keyboard = Keyboard(sys.stdin)
    with keyboard.raw_mode():
        with keyboard.cooked_mode():
            os.write(controller, b"a\x04\r")
        assert keys(keyboard) == ["a", Keys.ControlD, Keys.ControlM]


def test_what_is_typed_between_two_prompts_waits_unseen_for_the_next_one(controller: int) -> None:
    keyboard, before = Keyboard(sys.stdin), termios.tcgetattr(sys.stdin)
    with typed_ahead():
        with keyboard.raw_mode():
            pass
        os.write(controller, b"a\x04\r")
        with keyboard.raw_mode():
            assert keys(keyboard) == ["a", Keys.ControlD, Keys.ControlM]
        os.set_blocking(controller, False)
        with pytest.raises(BlockingIOError):
            os.read(controller, 100)  # nothing was echoed
    assert termios.tcgetattr(sys.stdin) == before
