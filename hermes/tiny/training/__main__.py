"""Train, measure and export the embedded model.

    python -m hermes.tiny.training --out DIR --processes 2                 # from nothing, on two CPU cores
    python -m hermes.tiny.training --out DIR --tokens-per-step 24000       # on a CUDA GPU, where there is one
    python -m hermes.tiny.training --out DIR --resume                      # go on with an interrupted run
    python -m hermes.tiny.training --out DIR --init FOLDER --start 0.5     # go on from an exported folder
    python -m hermes.tiny.training --out DIR --init FOLDER --fresh-text    # keep its vision part only

DIR gets log.jsonl, state.pt (every few minutes), evaluation.json and the exported folder `model`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hermes.tiny.training.recipe import add_recipe_flags, recipe_from_flags
from hermes.tiny.training.run import Run, train


def main(arguments: list[str] | None = None) -> None:
    """Run the command with these arguments, or those of the process."""
    train(parse(arguments))


def parse(arguments: list[str] | None = None) -> Run:
    """The run asked for; a mistake ends the process with a line on what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m hermes.tiny.training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--init", type=Path, help="exported folder to start from; the vision stage is left out")
    parser.add_argument("--fresh-text", action="store_true", help="with --init: keep its vision part only")
    parser.add_argument("--start", type=float, default=0.0, help="progress of the text stage to begin with (0.0)")
    parser.add_argument("--resume", action="store_true", help="go on from state.pt in --out")
    parser.add_argument("--processes", type=int, default=1, help="CPU processes, one thread each (1)")
    add_recipe_flags(parser)
    values = vars(parser.parse_args(arguments))
    own = ("out", "init", "fresh_text", "start", "resume", "processes")
    run = Run(**{name: values[name] for name in own}, recipe=recipe_from_flags(values))
    mistake = _mistake_in(run)
    if mistake:
        parser.error(mistake)
    return run


def _mistake_in(run: Run) -> str:
    if run.init is not None and not (run.init / "config.json").exists():
        return f"--init: {run.init} is not an exported model folder"
    if run.fresh_text and run.init is None:
        return "--fresh-text needs --init"
    if run.resume and not (run.out / "state.pt").exists():
        return f"--resume: there is no state.pt in {run.out}"
    if run.processes < 1:
        return "--processes must be at least 1"
    return ""


if __name__ == "__main__":
    main()
