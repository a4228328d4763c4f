"""Reading lines at a terminal: history, completion, several lines at once, and what Ctrl-C and Ctrl-D mean there."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app, run_in_terminal
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from hermes_cli.repl.keyboard import Keyboard
from hermes_cli.repl.keys import Key

_QUOTES = '"""'  # opens and closes a question of several lines
_TWICE_S = 2.0  # a second Ctrl-C within this time leaves
_REFRESH_S = 1.0  # as often as its clock changes; a redraw costs about 10 ms of a CPU
_ROOMY = 60  # columns from which an empty line says what may be typed


class Prompt:
    """A prompt at the foot of the terminal, with a panel under it that is drawn again and again.

    Args:
        playhead: what stands in front of the prompt.
        panel: the panel, as text with ANSI colours; empty for none.
        say: writes a line above the prompt.
        commands: words that Tab completes at the start of a line.
        history: file of earlier lines, made for its owner alone; None keeps none.
        keys: what single keys do while the line is empty.

    Attributes:
        keyboard: what is typed at.
    """

    def __init__(
        self,
        playhead: Callable[[], str],
        panel: Callable[[], str],
        say: Callable[[str], None],
        commands: Sequence[str],
        history: Path | None,
        keys: Sequence[Key] = (),
    ) -> None:
        self._say = say
        self._playhead = playhead
        self.keyboard = Keyboard(sys.stdin)
        self._session: PromptSession[str] = PromptSession(
            input=self.keyboard,
            message=lambda: f"hermes {playhead()} >>> ",
            prompt_continuation="... ",
            placeholder=_placeholder,
            bottom_toolbar=lambda: ANSI(panel()),
            style=Style.from_dict({"bottom-toolbar": "noreverse"}),
            refresh_interval=_REFRESH_S,
            reserve_space_for_menu=4,
            history=_opened(history),
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=False,
            key_bindings=_bindings(keys, self.keyboard),
            multiline=Condition(self._is_open),
        )

    def lines(self) -> Iterator[str]:
        """What is entered, until Ctrl-D; Ctrl-C clears a line, and twice in a row on an empty one raises.

        Raises:
            KeyboardInterrupt: Ctrl-C twice.
        """
        interrupted_s = float("-inf")
        while True:
            try:
                line = self._session.prompt()
            except EOFError:
                return
            except KeyboardInterrupt:
                if time.monotonic() - interrupted_s < _TWICE_S:
                    raise
                interrupted_s = time.monotonic()
                self._say("Use Ctrl+D or /bye to exit.")
                continue
            interrupted_s = float("-inf")
            yield line.strip().removeprefix(_QUOTES).removesuffix(_QUOTES).strip()

    def close(self) -> None:
        """End the prompt from another thread, as Ctrl-D would."""
        app = self._session.app
        if app.is_running and app.loop is not None:
            app.loop.call_soon_threadsafe(
                lambda: app.exit(exception=EOFError) if app.is_running and not app.is_done else None
            )

    def _is_open(self) -> bool:
        text = self._session.default_buffer.text.strip()
        return text.startswith(_QUOTES) and not (len(text) >= 2 * len(_QUOTES) and text.endswith(_QUOTES))


def _placeholder() -> ANSI:
    roomy = shutil.get_terminal_size().columns >= _ROOMY
    return ANSI("\x1b[2mask about the video, /? for help\x1b[0m" if roomy else "")


def _bindings(keys: Sequence[Key], keyboard: Keyboard) -> KeyBindings:
    bindings = KeyBindings()
    for key in keys:
        bindings.add(key.name, filter=Condition(_on_empty_line) & Condition(key.counts))(partial(_press, key))

    @bindings.add("c-c")
    def clear_or_leave(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    @bindings.add("c-z")
    def suspend(event: KeyPressEvent) -> None:
        run_in_terminal(partial(_suspend, keyboard, event.app))

    return bindings


def _suspend(keyboard: Keyboard, app: Application[str]) -> None:
    try:
        keyboard.suspend()
    except (KeyboardInterrupt, SystemExit) as signalled:  # while it was stopped
        app.exit(exception=signalled)


def _on_empty_line() -> bool:
    return not get_app().current_buffer.text


def _press(key: Key, event: KeyPressEvent) -> None:
    line = key.act()
    if line is not None:
        event.current_buffer.text = line  # it stays on the screen; lines that nobody typed are no history
        event.app.exit(result=line)


def _opened(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return _DispensableHistory(path)


class _DispensableHistory(FileHistory):
    """A line that cannot be written is no earlier line of the next run, and that is all."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)
