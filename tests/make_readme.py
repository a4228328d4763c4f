"""`python -m tests.make_readme [PART]`: run the commands that README.md shows again, those that hold PART, and put what they
print in their place.

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


def main(wanted: str) -> None:
    """Run the marked parts again whose command holds `wanted`; each is in the file before the next one begins."""
    readme = ROOT / "README.md"
    with tempfile.TemporaryDirectory() as state:
        for number, marked in enumerate(MARKED.finditer(readme.read_text(encoding="utf-8"))):
            if wanted in marked[2]:
                replaced = _replaced(marked, state)
                text = readme.read_text(encoding="utf-8")
                match = list(MARKED.finditer(text))[number]
                readme.write_text(text[: match.start()] + replaced + text[match.end() :], encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
