"""The embedded model: a tiny, real LLaVA-OneVision checkpoint and the procedural world it was trained on.

The model watches videos of coloured shapes at one frame a second and answers questions about what is on screen now
and what was there before. It exists so that everything in this package can be run, tested and shown in seconds on any
computer, with a model that really sees and really remembers. `world` draws the videos, `questions` asks about them
and knows the answers, `render` turns them into pictures and clips, `training` makes the weights.
"""

from __future__ import annotations

from pathlib import Path


def checkpoint_folder() -> Path:
    """The folder of the shipped weights, in the Hugging Face format."""
    return Path(__file__).parent / "checkpoint"
