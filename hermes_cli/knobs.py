"""Command line options out of the library's frozen settings: their texts, their defaults, and their grouping.

A group of options is a frozen dataclass whose fields are typer options; `grouped` lets a command take the whole group
as one parameter. So each option is written once, however many commands have it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape


def described(owner: type, name: str) -> str:
    """What the docstring of a settings class says about one of its attributes, on one line."""
    entry = re.search(rf"^ {{4}}{name}: (.*(?:\n {{8,}}.*)*)", inspect.getdoc(owner) or "", re.MULTILINE)
    assert entry is not None, f"{owner.__name__} does not describe {name}"
    return " ".join(entry[1].split())


def knob(owner: type, name: str) -> dict[str, Any]:
    """Keyword arguments of a `typer.Option` for an attribute of a settings class: help, default shown, values allowed."""
    text = described(owner, name)
    help_text = escape(text[0].upper() + text[1:])
    keywords: dict[str, Any] = {"help": help_text, "show_default": str(getattr(owner(), name))}
    kind = get_type_hints(owner)[name]
    return keywords | (choice(get_args(kind)) if get_origin(kind) is Literal else {})


def choice(names: tuple[str, ...]) -> dict[str, Any]:
    """Keyword arguments of a `typer.Option` whose values the library checks."""
    return {"metavar": "|".join(names), "autocompletion": lambda: list(names)}


def given(group: object, *names: str) -> dict[str, Any]:
    """Those of the named fields of a group of options (all, without names) that the user has set."""
    assert is_dataclass(group)
    wanted = names or [field.name for field in fields(group)]
    return {name: value for name in wanted if (value := getattr(group, name)) is not None}


def written(context: typer.Context, group: type) -> list[str]:
    """Names of the options of a group, at any depth, that stand on the command line."""
    hints, found = get_type_hints(group), list[str]()
    for field in fields(group):
        source = context.get_parameter_source(field.name)
        if is_dataclass(hints[field.name]):
            found += written(context, hints[field.name])
        elif source is not None and source.name == "COMMANDLINE":
            found.append(field.name)
    return found


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let typer see the fields of every dataclass parameter of a command, at any depth, as options of their own."""
    parameters = inspect.signature(command).parameters
    hints = get_type_hints(command, include_extras=True)
    flat = [option for name in parameters for option in _flat(parameters[name].replace(annotation=hints[name]))]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        command(**{name: _gathered(name, hints[name], values) for name in parameters})

    del run.__wrapped__  # typer would look through it
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in flat}
    return run


def _flat(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    group = parameter.annotation
    if not is_dataclass(group):
        return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    hints = get_type_hints(group, include_extras=True)
    members = (
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    )
    return [option for member in members for option in _flat(member)]


def _gathered(name: str, kind: Any, values: dict[str, Any]) -> Any:
    if not is_dataclass(kind):
        return values[name]
    assert isinstance(kind, type)
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{field.name: _gathered(field.name, hints[field.name], values) for field in fields(kind)})
