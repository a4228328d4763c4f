"""The README shows what its commands print."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.make_readme import MARKED, ROOT, regenerate


def test_marked_parts_are_replaced_by_what_their_commands_print() -> None:
    text = (
        "a\n<!-- output of: echo 1; echo 2 >&2 -->\n```\n$ old\nold\n```\n<!-- end -->\nb\n"
        "<!-- output of: echo 3 -->\nold\n<!-- end -->\n"
    )
    assert regenerate(text) == (
        "a\n<!-- output of: echo 1; echo 2 >&2 -->\n```\n$ echo 1; echo 2 >&2\n1\n2\n```\n<!-- end -->\nb\n"
        "<!-- output of: echo 3 -->\n\n3\n\n<!-- end -->\n"
    )


def test_a_failing_command_changes_nothing_silently() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        regenerate("<!-- output of: exit 3 -->\n<!-- end -->")


def test_the_transcript_in_the_readme_is_what_the_demo_prints() -> None:
    text = Path(ROOT / "README.md").read_text(encoding="utf-8")
    demo = next(match for match in MARKED.finditer(text) if "hermes watch" in match[2])
    again = regenerate(demo[0])
    assert _without_shares(again) == _without_shares(demo[0])


def _without_shares(text: str) -> list[str]:
    """Lines up to the last one, whose share of time differs from run to run."""
    return [line.split("(")[0] if "of the encoding time" in line else line for line in text.splitlines()]
