"""`python -m tests.make_readme`: run the commands that README.md shows again, and put what they print in their place.

A part between `<!-- output of: COMMAND -->` and `<!-- end -->` is replaced: by a transcript where it is a code block, by
the output as it is (a Markdown table) elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
MARKED = re.compile(r"(<!-- output of: (.+?) -->\n)(```\n)?.*?(<!-- end -->)", re.DOTALL)


def regenerate(text: str) -> str:
    """The text with every marked part run again, one after another, with sessions of their own.

    Raises:
        CalledProcessError: a command fails.
    """
    with tempfile.TemporaryDirectory() as state:
        return MARKED.sub(lambda match: _replaced(match, state), text)


def _replaced(match: re.Match[str], state: str) -> str:
    start, command, fence, end = match.groups()
    output = _run(command, state)
    shown = f"```\n$ {command}\n{output}```\n" if fence else f"\n{output}\n"
    return f"{start}{shown}{end}"


def _run(command: str, state: str) -> str:
    """Both output streams in the order a terminal shows them."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", "HERMES_STATE_DIR": state}
    done = subprocess.run(
        command, shell=True, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=True,
    )  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(regenerate(readme.read_text(encoding="utf-8")), encoding="utf-8")
