"""From options to a model and a memory. What needs torch is imported when it is called, so that `--help` is quick."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.catalog import TINY
from hermes.config import MemoryConfig, Sampling
from hermes.errors import ModelError
from hermes_cli.choosing import Choice, choose, embedded, is_folder
from hermes_cli.film import Film
from hermes_cli.hub import fetch
from hermes_cli.options import ModelOptions, Settings
from hermes_cli.player import Player
from hermes_cli.screen import Screen
from hermes_cli.terminal import verbose
from hermes_cli.transport import Transport

if TYPE_CHECKING:
    from hermes.models import VideoModel


def choose_checkpoint(options: ModelOptions) -> Choice:
    """The model that the options name, or the best one here; raises as `hermes_cli.choosing.choose`."""
    return choose(options.model, options.device, options.quant)


def fetch_checkpoint(choice: Choice, announce: Callable[[str], None], bars: bool) -> Path:
    """The folder of a chosen model; arguments and errors as `hermes_cli.hub.fetch`."""
    return Path(choice.source) if is_folder(choice.source) else fetch(choice.source, announce, bars)


def load_checkpoint(options: ModelOptions, choice: Choice | None = None) -> VideoModel:
    """Load a chosen model, without the noise of the libraries underneath; downloads it if it is not here yet.

    Args:
        choice: the model; None is the one that the options name, or else the embedded one.

    Raises:
        ModelError: the model cannot be fetched or loaded.
        UsageError: it cannot be limited to so few pixels.
    """
    choice = choice or (choose(options.model) if options.model else embedded())
    folder = fetch_checkpoint(choice, _announce, sys.stderr.isatty())
    if not verbose():
        _silence_libraries()
    from hermes.models import load_model  # noqa: PLC0415 - loads torch

    try:
        model = load_model(folder, options.device, options.dtype, options.quant)
    except ModelError as error:
        if is_folder(choice.source) or str(folder) not in error.message:
            raise
        message = error.message.replace(str(folder), choice.source)  # not where the hub's cache keeps it
        raise ModelError(message, f"fetch it again: hf download {choice.source} --force-download") from error
    model.cuda_graphs = options.cuda_graphs
    if options.max_pixels is not None:
        model.limit_pixels(options.max_pixels)
    if choice.alias == TINY.alias:
        model.name = TINY.alias
        _leave_a_core(model)
    elif is_folder(choice.source):
        model.name = str(folder.absolute())
    else:  # it is in the hub's cache, where a folder is named after its commit
        model.name, model.revision = choice.source, folder.name
    return model


def load_player(film: Film, config: MemoryConfig, sampling: Sampling, settings: Settings, screen: Screen) -> Player:
    """Choose and load a model and put an empty memory behind it.

    Raises:
        ModelError: the model cannot be fetched or loaded.
    """
    with screen.busy("choosing the model"):
        choice = choose_checkpoint(settings.model)
    shown = settings.output
    fetch_checkpoint(choice, screen.note, bars=sys.stderr.isatty() and shown.progress == "auto" and not shown.quiet)
    if choice.note:
        screen.note(choice.note)
    with screen.busy("loading the model"):
        from hermes.engine import StreamEngine  # noqa: PLC0415 - loads torch
        from hermes.policies import make_policy  # noqa: PLC0415 - loads torch

        model, policy = load_checkpoint(settings.model, choice), settings.memory.policy
        engine = StreamEngine(model, config, make_policy(policy, config), settings.model.prompt_style)
    if settings.model.quant != "none":
        screen.note(str(model.weights))
    return Player(film, engine, sampling, policy, choice, transport=Transport(film.speed))


def _leave_a_core(model: VideoModel) -> None:
    """Let a model whose steps are too small for several threads use one, and its vision tower another one beside it."""
    import torch  # noqa: PLC0415 - slow to load

    if model.device.type == "cpu" and not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(1)


def _announce(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _silence_libraries() -> None:
    """No progress bars, warnings or retries of transformers, the hub and what loads weights on standard error."""
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error  # noqa: PLC0415 - loads torch

    disable_progress_bar()  # the hub's too
    set_verbosity_error()
    for library in ("accelerate", "bitsandbytes", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
