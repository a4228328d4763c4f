"""`hermes doctor`: what is on this machine, and what runs here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from hermes_cli.checks import CHECKS, Finding, examine
from hermes_cli.options import OutputOptions
from hermes_cli.screen import Screen
from hermes_cli.tables import rendered
from hermes_cli.terminal import clean, json_line, write_out

Json = Annotated[bool, typer.Option("--json", help="Write one JSON object.")]

_URGENCY = ("problem", "note", "ok")


def doctor(json: Json = False) -> None:
    """Look at this machine: what is there, what runs here, and what to do about the rest.

    The embedded model is really loaded and asked; nothing is downloaded. Exit code 0 means that the main job runs here.
    """
    with Screen(OutputOptions()).busy("looking at this machine"):
        findings = examine(CHECKS)
    code = next((finding.exit_code for finding in findings if finding.exit_code), 0)
    if json:
        records = [finding.record for finding in findings]
        write_out(json_line({"type": "doctor", "checks": records, "ok": code == 0}))
    else:
        write_out(_report(findings, code == 0))
    raise typer.Exit(code)


def _report(findings: Sequence[Finding], usable: bool) -> str:
    """A table and a verdict. What is worst comes first; into a file or a pipe every line is as long as it has to be."""
    table = Table("STATE", "CHECK", "FINDING", box=None, pad_edge=False, header_style="")
    for finding in sorted(findings, key=lambda finding: _URGENCY.index(finding.state)):
        text = finding.finding + (f"\nnext: {finding.next_step}" if finding.next_step else "")
        table.add_row(*(Text(clean(cell), overflow="fold") for cell in (finding.state, finding.check, text)))
    verdict = "hermes runs here." if usable else "hermes cannot run here: see the problems above."
    return f"{rendered(table)}\n{verdict}\n"
