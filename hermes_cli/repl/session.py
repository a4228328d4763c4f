"""A film and a prompt at once: the film plays in a thread of its own, questions are asked between its chunks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from prompt_toolkit import ANSI, print_formatted_text
from prompt_toolkit.patch_stdout import patch_stdout
from rich.table import Column, Table
from rich.text import Text

from hermes.config import Sampling
from hermes.errors import ResourceError, UsageError
from hermes.events import Answer, ChunkEncoded
from hermes.sources.opening import printable
from hermes.timecode import format_time
from hermes_cli.clock import clock
from hermes_cli.contents import contents_table
from hermes_cli.dialogue import BEGINS_WITH_TIME
from hermes_cli.drawing.text import MapText
from hermes_cli.export import FORMATS, exported
from hermes_cli.failures import spares_memory
from hermes_cli.mapping import sheet_of_player
from hermes_cli.player import Event, Seen
from hermes_cli.questions import readable
from hermes_cli.repl import slash
from hermes_cli.repl.footer import Footer
from hermes_cli.repl.keys import transport_keys
from hermes_cli.repl.moves import SAVE_NEXT_TIME, Moves
from hermes_cli.repl.prompt import Prompt
from hermes_cli.serving import Host
from hermes_cli.steering import AT_INSTEAD
from hermes_cli.terminal import clean
from hermes_cli.transport import Transport
from hermes_cli.viewing import Viewing
from hermes_cli.writing import write_text

_ASK_NOW = "ask without /at about now"


class Repl:
    """The prompt of a film being watched.

    Args:
        watched: the film.
        host: answers about moments that were played; None when nothing is saved.
        footer: the panel at the foot of the prompt.
        history: file of earlier lines, None for none.

    Attributes:
        leaving: set by a command that ends the prompt.
    """

    def __init__(self, watched: Viewing, host: Host | None, footer: Footer, history: Path | None) -> None:
        self._watched, self._host, self._footer = watched, host, footer
        self._answered: Answer | None = None
        watched.drawn = self._draw
        commands = [f"/{name}" for name in slash.COMMANDS]
        self._moves = Moves(watched, host, footer)
        info = watched.player.film.source.info
        keys = transport_keys(self.transport, lambda: self._moves.position_s, info.name if info.is_live else None, self.say)
        self._prompt = Prompt(self.playhead, footer.text, self.say, commands, history, keys)
        self._film = self._new_film()
        self._exit_code = 0
        self.leaving = False

    def run(self) -> int:
        """Play the film and take questions until the user leaves; returns the exit code.

        Raises:
            KeyboardInterrupt: Ctrl-C twice at an empty prompt.
            Exception: the film could not be played, and nothing of it can be asked about.
        """
        self._failed: Exception | None = None
        with self._prompt.keyboard.held(), patch_stdout(raw=True):
            self._film.start()
            try:
                for line in self._prompt.lines():
                    self._take(line)
                    if self.leaving:
                        break
            finally:
                self.transport.stop()
                self._film.join()
        if self._failed is not None:
            raise self._failed
        return self._exit_code

    @property
    def transport(self) -> Transport:
        """The controls of the film."""
        return self._watched.player.transport

    @property
    def sampling(self) -> Sampling:
        """How answers are decoded."""
        return self._watched.player.sampling

    @sampling.setter
    def sampling(self, sampling: Sampling) -> None:
        self._watched.player = replace(self._watched.player, sampling=sampling)

    def playhead(self) -> str:
        """Where the film is."""
        return clock(self._moves.position_s)

    def panel(self) -> str:
        """All that the panel can tell now."""
        return self._footer.whole()

    def say(self, text: str) -> None:
        """Write lines above the prompt."""
        self._watched.screen.say(text)

    def memory(self) -> str:
        """What is still remembered, layer by layer over time, with ANSI colours.

        Raises:
            UsageError: no chunk has become part of the memory yet.
        """
        sheet = sheet_of_player(self._watched.player, self._answered)
        return self._watched.screen.drawn(MapText(sheet, self._footer.ascii_only))

    def say_rows(self, rows: Iterable[Sequence[object]]) -> None:
        """Write columns above the prompt, each as wide as it has to be, the last one folded within itself."""
        first, *others = rows
        grid = Table.grid(*(Column(no_wrap=True) for _ in first[:-1]), Column(), padding=(0, 2))
        for row in (first, *others):
            grid.add_row(*(Text(clean(str(cell))) for cell in row))
        self.say("\n".join(line.rstrip() for line in self._watched.screen.drawn(grid).splitlines()))

    def say_colored(self, text: str) -> None:
        """Write lines with ANSI colours above the prompt."""
        print_formatted_text(ANSI(text))

    def ask_then(self, question: str, time: str) -> None:
        """Ask about a moment that was played.

        Raises:
            UsageError: nothing is saved to go back to, or the moment has not been played.
        """
        if self._host is None:
            raise UsageError("this run is not saved, so there is no way back", SAVE_NEXT_TIME)
        if time[:1] in ("+", "-"):
            time = format_time(max(0.0, self._moves.moment_s(time)))
        _, events = self._host.then(self._watched.player, readable(question), time, ask_now=_ASK_NOW)
        self._watched.tell(_about_the_answer(events), self._host.keep_past())

    def forget_conversation(self) -> None:
        """Let no earlier question colour what the memory keeps."""
        self._watched.show(self._watched.player.forget())

    def seek(self, time: str) -> None:
        """Move the film to a moment.

        Raises:
            UsageError: the source is live, that is no moment of it, or there is no way back.
            SourceError: the way back is damaged.
        """
        if self._moves.is_live:
            raise UsageError("the source is live: there is nothing to move", AT_INSTEAD)
        to_s = self._moves.moment_s(time)
        self.say(self._standing(lambda: self._moves.seek(to_s)))
        if self.transport.paused and self._moves.is_ahead:
            self.transport.step()  # to see where it is

    def contents(self, which: str) -> str:
        """What every layer holds, or one of them; raises as `contents_table`."""
        return contents_table(self._watched.player, which)

    def save(self, name: str) -> None:
        """Save the memory as it is, and name the session; raises `UsageError` where nothing is saved or that is no name."""
        self.say(self._moves.save(name))

    def load(self, name: str) -> None:
        """Go on with another session; raises as `hermes_cli.steering.load`."""
        self.say(self._standing(lambda: self._moves.load(name)))

    def reset(self) -> None:
        """Forget everything and play on; raises as `hermes_cli.steering.begin_anew`."""
        self.say(self._standing(self._moves.reset))

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What `/show` can show."""
        player = self._watched.player
        engine, source = player.engine, player.film.source.info
        model = {
            "name": engine.model.name,
            "revision": engine.model.revision,
            "family": engine.model.model.config.model_type,
            "layers": engine.model.layers,
            "weights": engine.model.weights,
            "device": engine.model.device,
            "chosen": player.choice.reason,
        }
        prompt = {"prefix": engine.prompt.prefix, "before": engine.prompt.before, "after": engine.prompt.after}
        return {
            "model": model,
            "source": {**asdict(source), "sampled a second": player.film.fps},
            "settings": {"policy": player.policy, **asdict(engine.config), **asdict(player.sampling)},
            "prompt": {name: repr(text) for name, text in prompt.items()},
        }

    def export(self, form: str, target: str) -> None:
        """Write the answers so far into a new file.

        Raises:
            UsageError: the format is unknown, nothing is saved, or the file is there already or cannot be made.
            ResourceError: the disk is full.
        """
        if form not in FORMATS or not target:
            missing = "there is no file" if form in FORMATS else f"there is no format {form!r}"
            raise UsageError(missing, f"write /export srt talk.srt; formats: {', '.join(FORMATS)}")
        if self._host is None:
            raise UsageError("this run is not saved, so there are no answers to export", SAVE_NEXT_TIME)
        session = self._host.session
        answers = session.log().answers
        with _survived():
            write_text(Path(target), exported(form, session.info, answers), force=False, instead="name another file")
        self.say(f"written to {printable(target)}")

    def _take(self, line: str) -> None:
        """A line of the user's; whatever goes wrong with it, the next one can be taken."""
        if not line:
            return
        try:
            if line in slash.LEAVING or (line.startswith("/") and not line.startswith("//")):
                slash.run(self, line)
            else:
                self._ask(line.removeprefix("/"))
        except KeyboardInterrupt:
            self._watched.screen.note("cancelled")
        except Exception as error:
            if not spares_memory(error):
                raise
            self._watched.complain(error)
        finally:
            self._footer.settle()

    def _ask(self, question: str) -> None:
        if BEGINS_WITH_TIME.match(question):
            time, _, question = question.partition(" ")
            return self.ask_then(question, time)
        return self._watched.ask(readable(question))

    def _draw(self, event: Event) -> None:
        self._footer.take(event)
        if isinstance(event, Answer):
            self._answered = event

    def _standing(self, move: Callable[[], str]) -> str:
        """Do something while the film stands still, and let it go on from wherever it is then."""
        if self._moves.is_live:
            with _survived():
                return move()  # what is live cannot be played again
        try:
            self.transport.interrupt()
            self._film.join()
            with _survived():
                return move()
        finally:
            self._await_film()  # Ctrl-C may have come before
            self.transport.resume()
            if self._failed is None and not self._footer.ended:  # or it would tell its end once more
                self._film = self._new_film()
                self._film.start()

    def _await_film(self) -> None:
        """Wait for the film whatever is typed: two of them must not share a memory."""
        while self._film.is_alive():
            with suppress(KeyboardInterrupt):
                self._film.join()

    def _new_film(self) -> threading.Thread:
        return threading.Thread(target=self._play, name="hermes film", daemon=True)

    def _play(self) -> None:
        try:
            self._exit_code = self._watched.play_on(())
        except Exception as error:  # belongs to the main thread
            self._failed = error
            self._prompt.close()


@contextmanager
def _survived() -> Iterator[None]:
    """A disk that cannot be written fails a command, and not the run; raises `ResourceError`."""
    try:
        yield
    except OSError as error:
        raise ResourceError(f"cannot write: {error.strerror or error}", "free some space, or write elsewhere") from error


def _about_the_answer(events: Generator[Event, None, None]) -> Generator[Event, None, None]:
    """Without what is played for it, which is not the film that is being watched."""
    with closing(events):
        yield from (event for event in events if not isinstance(event, Seen | ChunkEncoded))


def history_file(state: Path) -> Path | None:
    """Where earlier lines are kept, or None where the user wants none."""
    return None if os.environ.get("HERMES_NOHISTORY") else state / "history"
