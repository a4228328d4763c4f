"""The program `hermes`: its commands, and the one place where whatever ends a run becomes text and an exit code."""

from __future__ import annotations

import contextlib
import itertools
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from hermes import __version__
from hermes_cli import terminal
from hermes_cli.commands.ask import ask
from hermes_cli.commands.bench import bench
from hermes_cli.commands.benchmarks import add_benchmarks
from hermes_cli.commands.cameras import cameras
from hermes_cli.commands.caption import caption
from hermes_cli.commands.doctor import doctor
from hermes_cli.commands.evaluate import evaluations
from hermes_cli.commands.memory import memory
from hermes_cli.commands.models import models
from hermes_cli.commands.probe import probe
from hermes_cli.commands.sessions import sessions
from hermes_cli.commands.watch import watch
from hermes_cli.failures import Failure, describe

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True, pretty_exceptions_enable=False
)
app.command()(watch)
app.command()(ask)
app.command()(caption)
app.command()(doctor)
app.command()(models)
app.command()(cameras)
app.command()(probe)
app.command()(memory)
app.command()(bench)
app.add_typer(sessions, name="sessions")
add_benchmarks(evaluations)
app.add_typer(evaluations, name="eval")


def _show_version(wanted: bool) -> None:
    if wanted:
        terminal.write_out(f"hermes {__version__}\n")
        raise typer.Exit


@app.callback()
def hermes(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Talk to a video that is still running.

    A video is played through a vision-language model into a memory of fixed size, which can be asked at any moment.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; SIGTERM and SIGHUP end it with `SystemExit`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    terminal.prepare()
    try:
        return app(args=arguments, prog_name="hermes", standalone_mode=False) or 0
    except (Exception, KeyboardInterrupt) as error:
        failure = describe(error)
        with contextlib.suppress(OSError):  # where it would be written may be what failed
            _report(failure, arguments)
        return failure.exit_code
    finally:
        terminal.settle()


def _report(failure: Failure, arguments: Sequence[str]) -> None:
    if not failure.expected and terminal.debugging():
        traceback.print_exc()
    options = set(itertools.takewhile(lambda argument: argument != "--", arguments))  # parsing may be what failed
    if failure.message and "--json-lines" in options:
        terminal.write_out(terminal.json_line(failure.record))
    if failure.message and options & {"--json", "--json-lines"}:
        sys.stderr.write(terminal.json_line(failure.record))
    else:
        sys.stderr.writelines(f"{line}\n" for line in failure.lines)
