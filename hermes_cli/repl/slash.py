"""The commands of the prompt: their names, what they take, and what they do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from hermes.config import Sampling
from hermes.errors import UsageError
from hermes_cli.knobs import described
from hermes_cli.repl.keys import SHORTCUTS
from hermes_cli.transport import Transport


class Repl(Protocol):
    """What a command may do (`hermes_cli.repl.session.Repl`)."""

    leaving: bool
    sampling: Sampling

    @property
    def transport(self) -> Transport: ...

    def playhead(self) -> str: ...

    def panel(self) -> str: ...

    def memory(self) -> str: ...

    def facts(self) -> Mapping[str, Mapping[str, Any]]: ...

    def say(self, text: str) -> None: ...

    def say_rows(self, rows: Iterable[Sequence[object]]) -> None: ...

    def say_colored(self, text: str) -> None: ...

    def ask_then(self, question: str, time: str) -> None: ...

    def forget_conversation(self) -> None: ...

    def seek(self, time: str) -> None: ...

    def contents(self, which: str) -> str: ...

    def save(self, name: str) -> None: ...

    def load(self, name: str) -> None: ...

    def reset(self) -> None: ...

    def export(self, form: str, target: str) -> None: ...


_MOST_STEPS = 10_000

LEAVING = ("bye", "exit", "quit")


@dataclass(frozen=True)
class Command:
    """A command of the prompt.

    Attributes:
        usage: its name and what it takes.
        help: what it does, on one line.
        run: carries it out with the rest of the line.
    """

    usage: str
    help: str
    run: Callable[[Repl, str], None]


def _help(repl: Repl, rest: str) -> None:
    if rest == "shortcuts":
        return repl.say_rows(SHORTCUTS)
    known = [COMMANDS[_named(rest)]] if rest else [command for name, command in COMMANDS.items() if name not in LEAVING[1:]]
    repl.say_rows((f"/{command.usage}", command.help) for command in known)
    if not rest:
        repl.say('Anything else is a question; """ opens and closes one of several lines, // starts one with a slash.')
        repl.say("Single keys do something while the line is empty: /? shortcuts")
    return None


def _at(repl: Repl, rest: str) -> None:
    time, _, question = rest.partition(" ")
    if not question.strip():
        raise UsageError("there is no time and question", "write /at 00:20 What is on screen?")
    repl.ask_then(question.strip(), time)


def _pause(repl: Repl, rest: str) -> None:
    repl.transport.pause()
    repl.say(f"paused at {repl.playhead()}; /play goes on, /step takes one frame")


def _play(repl: Repl, rest: str) -> None:
    repl.transport.play()


def _step(repl: Repl, rest: str) -> None:
    if rest and not (re.fullmatch("[0-9]{1,9}", rest) and 0 < int(rest) <= _MOST_STEPS):
        raise UsageError(f"{rest!r} is no number of frames", f"write /step, or /step N with N from 1 to {_MOST_STEPS}")
    repl.transport.step(int(rest or 1))


def _seek(repl: Repl, rest: str) -> None:
    if not rest:
        raise UsageError("there is no time", "write /seek 00:20, /seek +10s, /seek -30s, /seek 50% or /seek end")
    repl.seek(rest)


def _speed(repl: Repl, rest: str) -> None:
    try:
        repl.transport.set_speed(float("inf") if rest == "fast" else float(rest.removesuffix("x")))
    except ValueError as error:
        raise UsageError(f"{rest!r} is no speed", "write /speed 2, /speed 0.5 or /speed fast") from error


def _status(repl: Repl, rest: str) -> None:
    repl.say_colored(repl.panel())


def _cache(repl: Repl, rest: str) -> None:
    repl.say(repl.contents(rest))


def _save(repl: Repl, rest: str) -> None:
    repl.save(rest)


def _load(repl: Repl, rest: str) -> None:
    if not rest:
        raise UsageError("there is no session named", "write /load NAME; hermes sessions lists them")
    repl.load(rest)


def _reset(repl: Repl, rest: str) -> None:
    repl.reset()


def _memory(repl: Repl, rest: str) -> None:
    repl.say_colored(repl.memory())


def _set(repl: Repl, rest: str) -> None:
    name, _, value = rest.partition(" ")
    names = [field.name for field in fields(Sampling)]
    if not name:
        repl.say_rows((name, getattr(repl.sampling, name), described(Sampling, name)) for name in names)
        return
    if name not in names:
        raise UsageError(f"unknown setting {name!r}", f"one of: {', '.join(names)}")
    repl.sampling = replace(repl.sampling, **{name: _read(name, value.strip())})


def _show(repl: Repl, rest: str) -> None:
    facts = repl.facts()
    if rest not in facts:
        raise UsageError(f"nothing to show as {rest!r}", f"one of: {', '.join(facts)}")
    repl.say_rows(facts[rest].items())


def _clear(repl: Repl, rest: str) -> None:
    repl.forget_conversation()
    repl.say("the conversation is forgotten; what was seen is still there")


def _export(repl: Repl, rest: str) -> None:
    form, _, target = rest.partition(" ")
    repl.export(form, target.strip())


def _bye(repl: Repl, rest: str) -> None:
    repl.leaving = True


COMMANDS: dict[str, Command] = {
    "help": Command("help [COMMAND|shortcuts]", "this list; /? does the same", _help),
    "at": Command("at TIME QUESTION", "ask about a moment that was played, while the video plays on", _at),
    "pause": Command("pause", "hold the video", _pause),
    "play": Command("play", "let it go on", _play),
    "seek": Command("seek TIME", "move the video: 00:20, +10s, -30s, 50%, start, end", _seek),
    "step": Command("step [N]", "take one sampled frame, or N, and hold", _step),
    "speed": Command("speed X", "play X times as fast as it was filmed; fast: as fast as it can be read", _speed),
    "status": Command("status", "the panel, as text", _status),
    "cache": Command("cache [layer N]", "what every layer holds: tokens, positions, moments", _cache),
    "memory": Command("memory", "what is still remembered, layer by layer over time", _memory),
    "set": Command("set [NAME VALUE]", "how answers are decoded", _set),
    "show": Command("show model|source|settings|prompt", "what is being used", _show),
    "export": Command("export FORMAT FILE", "write the answers so far: txt, srt, vtt, tsv, json or md", _export),
    "save": Command("save [NAME]", "save the memory as it is now, and name the session", _save),
    "load": Command("load NAME", "go on with another session of this video, from its newest memory", _load),
    "clear": Command("clear", "forget the conversation, keep what was seen", _clear),
    "reset": Command("reset", "forget both, and play on from here as a new session", _reset),
    **{name: Command("bye", "leave; so do Ctrl-D, /exit and /quit", _bye) for name in LEAVING},
}


def run(repl: Repl, line: str) -> None:
    """Carry out a line that starts with a slash.

    Raises:
        UsageError: there is no such command, or it cannot be carried out so.
    """
    name, _, rest = line.removeprefix("/").partition(" ")
    COMMANDS[_named(name)].run(repl, rest.strip())


def _named(name: str) -> str:
    name = name.removeprefix("/").lower()
    name = "help" if name == "?" else name
    if name not in COMMANDS:
        raise UsageError(f"unknown command '/{name}'", "type /? for help")
    return name


def _read(name: str, value: str) -> Any:
    kind = type(getattr(Sampling(), name))
    try:
        if kind is bool:
            return {"on": True, "true": True, "off": False, "false": False}[value.lower()]
        return kind(value)
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"{value!r} is no value of {name}", f"for example /set {name} {getattr(Sampling(), name)}"
        ) from error
