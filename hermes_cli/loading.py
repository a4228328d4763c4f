"""From options to a model and a memory. What needs torch is imported when it is called, so that `--help` is quick."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

from hermes.config import MemoryConfig, Sampling
from hermes.tiny import checkpoint_folder
from hermes_cli.film import Film
from hermes_cli.knobs import given
from hermes_cli.options import ModelOptions, Settings
from hermes_cli.player import Player
from hermes_cli.terminal import verbose

if TYPE_CHECKING:
    from hermes.models import VideoModel


def load_checkpoint(options: ModelOptions) -> VideoModel:
    """Load the model that the options name, without the noise of the libraries underneath.

    Raises:
        ModelError: the model cannot be loaded.
    """
    if not verbose():
        _silence_libraries()
    from hermes.models import load_model  # noqa: PLC0415 - loads torch

    return load_model(options.model or checkpoint_folder(), options.device, options.dtype)


def load_player(film: Film, config: MemoryConfig, settings: Settings) -> Player:
    """Load the model and put an empty memory behind it.

    Raises:
        UsageError: a decoding setting is out of range.
        ModelError: the model cannot be loaded.
    """
    from hermes.engine import StreamEngine  # noqa: PLC0415 - loads torch
    from hermes.policies import make_policy  # noqa: PLC0415 - loads torch

    sampling = Sampling(**given(settings.answering))
    model, policy = load_checkpoint(settings.model), settings.memory.policy
    engine = StreamEngine(model, config, make_policy(policy, config), settings.model.prompt_style)
    return Player(film, engine, sampling, policy)


def _silence_libraries() -> None:
    """No progress bars, warnings or retries of transformers and the hub on standard error."""
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error  # noqa: PLC0415 - loads torch

    disable_progress_bar()  # the hub's too
    set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
