"""One training run, from the starting model to the exported and measured one."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.spawn import spawn
from transformers import LlavaOnevisionForConditionalGeneration

from hermes.tiny.architecture import Architecture, build_model, load_tokenizer
from hermes.tiny.export import export
from hermes.tiny.training.blocks import BlockEncoder
from hermes.tiny.training.evaluation import evaluate
from hermes.tiny.training.learner import Learner
from hermes.tiny.training.processes import Processes
from hermes.tiny.training.readouts import Readouts
from hermes.tiny.training.recipe import Recipe
from hermes.tiny.training.text_stage import TextStage
from hermes.tiny.training.vision_stage import train_vision


@dataclass(frozen=True, slots=True)
class Run:
    """What a run is asked to do.

    Attributes:
        out: folder of everything that is written.
        init: exported folder to start from; None to start from nothing.
        fresh_text: of `init`, keep the vision part only.
        start: progress of the text stage to begin with.
        resume: go on from `state.pt` in `out`.
        processes: CPU processes, one thread each; with a CUDA GPU there is always one.
        recipe: every setting of the training.
    """

    out: Path
    init: Path | None = None
    fresh_text: bool = False
    start: float = 0.0
    resume: bool = False
    processes: int = 1
    recipe: Recipe = field(default_factory=Recipe)


def train(run: Run) -> None:
    """Train, export to `out/model` and measure what was exported."""
    run.out.mkdir(parents=True, exist_ok=True)
    count = 1 if torch.cuda.is_available() else run.processes
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = Path(folder) / "meeting"
        if count == 1:
            train_in_process(0, 1, meeting_point, run)
        else:
            spawn(train_in_process, (count, meeting_point, run), nprocs=count)  # type: ignore[no-untyped-call]


def train_in_process(rank: int, count: int, meeting_point: Path, run: Run) -> None:
    """What each process does; those after the first only share the steps."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if count > 1:
        torch.set_num_threads(1)
    learner = _make_learner(run, Processes.join(rank, count, meeting_point))
    encoder = BlockEncoder(load_tokenizer())
    state: dict[str, Any] = {}
    if run.resume:
        state = learner.restore()
    elif run.init is None:
        train_vision(learner)
        learner.save()
    TextStage(learner, encoder, run.start, state).run()
    if rank == 0:
        _finish(learner, encoder)


def _make_learner(run: Run, processes: Processes) -> Learner:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(run.recipe.seed)
    model = _starting_model(run).to(device)
    readouts = Readouts(Architecture()).to(device)
    return Learner(model, readouts, run.recipe, device, processes, run.out)


def _starting_model(run: Run) -> LlavaOnevisionForConditionalGeneration:
    if run.init is None:
        return build_model(Architecture(), load_tokenizer())
    given = LlavaOnevisionForConditionalGeneration.from_pretrained(run.init, dtype=torch.float32)
    if not run.fresh_text:
        return given
    model = build_model(Architecture(), load_tokenizer())
    model.model.vision_tower.load_state_dict(given.model.vision_tower.state_dict())
    model.model.multi_modal_projector.load_state_dict(given.model.multi_modal_projector.state_dict())
    return model


@torch.no_grad()
def _finish(learner: Learner, encoder: BlockEncoder) -> None:
    """Export the model and measure what was exported: its weights rounded to bfloat16."""
    export(learner.model, encoder.tokenizer, learner.folder / "model")
    for parameter in learner.model.parameters():
        parameter.copy_(parameter.to(torch.bfloat16))
    measured = {
        "recipe": asdict(learner.recipe),
        "right": evaluate(learner.model, encoder, learner.recipe, learner.device),
    }
    (learner.folder / "evaluation.json").write_text(json.dumps(measured, indent=1) + "\n")
