"""The Hugging Face hub and its cache on this machine: what is there, and fetching what is not.

`huggingface_hub` reads its environment variables when it is imported, so it is imported when it is first needed, after the
options that set them.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shlex
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

from hermes.errors import ModelError
from hermes_cli.terminal import verbose

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_NEEDED = (
    ("tokenizer.json", "vocab.json"),
    ("preprocessor_config.json", "processor_config.json"),
    ("chat_template.jinja", "chat_template.json", "tokenizer_config.json"),
)  # beside configuration and weights; one of each
_SMALL_FILES = ("*.json", "*.jinja", "*.txt", "*.model")
_LOOK_UP_TIMEOUT_S = 5.0


def use_cache_folder(folder: Path | None) -> Path | None:
    """Callback of `--cache-dir`."""
    if folder is not None:
        os.environ["HF_HUB_CACHE"] = str(folder)
    return folder


def stay_offline(wanted: bool) -> bool:
    """Callback of `--offline`."""
    if wanted:
        os.environ["HF_HUB_OFFLINE"] = "1"
    return wanted


def cache_folder() -> Path:
    """Where downloaded models are."""
    from huggingface_hub import constants  # noqa: PLC0415 - see above

    return Path(os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE).expanduser()


def cached(hub_id: str) -> Path | None:
    """The folder of a model of which everything is here; None for one that is not, or only in part."""
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - see above

    try:
        config = try_to_load_from_cache(hub_id, "config.json", cache_dir=cache_folder())
    except (OSError, ValueError):  # a damaged cache
        return None
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    rest = all(any((folder / name).is_file() for name in names) for names in _NEEDED)
    return folder if rest and any(_complete(folder, name) for name in _WEIGHTS) else None


def fetch(hub_id: str, announce: Callable[[str], None], bars: bool) -> Path:
    """The folder of a model, downloaded if it is not here yet. What is here is taken as it is, without asking the hub.

    Args:
        announce: is told of a download before it begins.
        bars: show its progress on standard error.

    Raises:
        ModelError: there is no such model, it cannot be reached, or it is not here and `--offline` was given.
        OSError: the disk is full.
    """
    try:
        folder = cached(hub_id)
    except ValueError as error:
        raise ModelError(f"{hub_id!r} is neither a folder nor a Hugging Face id", str(error).splitlines()[0]) from error
    if folder:
        return folder
    if _offline():
        raise ModelError(
            f"model {hub_id!r} is not in {cache_folder()}, and --offline forbids to fetch it",
            f"fetch it first: {_command(hub_id)}",
        )
    if not verbose():
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        _download(hub_id, announce, bars)
    except Exception as error:  # the hub's client fails in many ways, and passes on those of its libraries
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        raise _unfetched(hub_id, error) from error
    if folder := cached(hub_id):
        return folder
    raise ModelError(f"model {hub_id!r} has no weights that can be used", "it needs config.json and model.safetensors")


def _download(hub_id: str, announce: Callable[[str], None], bars: bool) -> None:
    from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415 - see above
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415 - see above

    # Asked once, since downloads repeat each failed request for half a minute.
    files = HfApi().model_info(hub_id, files_metadata=True, timeout=_LOOK_UP_TIMEOUT_S).siblings or []
    safe = any(file.rfilename.endswith(".safetensors") for file in files)
    patterns = [*_SMALL_FILES, "*.safetensors" if safe else "*.bin"]
    size = sum(file.size or 0 for file in files if any(fnmatch(file.rfilename, pattern) for pattern in patterns))
    announce(f"downloading {hub_id} ({size / 1e9:.1f} GB) into {cache_folder()}")
    if not bars:
        disable_progress_bars()
    snapshot_download(hub_id, cache_dir=cache_folder(), allow_patterns=patterns)


def _complete(folder: Path, weights: str) -> bool:
    """Whether a folder has the weights of this name, in one file or in all the files that an index names."""
    if (folder / weights).is_file():
        return True
    try:
        index = json.loads((folder / f"{weights}.index.json").read_bytes())
        return all((folder / name).is_file() for name in index["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _offline() -> bool:
    from huggingface_hub import constants  # noqa: PLC0415 - see above

    return os.environ.get("HF_HUB_OFFLINE") == "1" or bool(constants.HF_HUB_OFFLINE)


def _command(hub_id: str) -> str:
    """What fetches a model to where it is looked for."""
    folder = f" --cache-dir {shlex.quote(str(cache_folder()))}" if "HF_HUB_CACHE" in os.environ else ""
    return f"hf download {hub_id}{folder}"


def _unfetched(hub_id: str, error: Exception) -> ModelError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403, 404):
        return ModelError(
            f"there is no folder {hub_id!r}, and no such model on the hub, or it is gated",
            "hermes models lists the known ones; for a gated one: hf auth login",
        )
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ModelError(
        f"there is no folder {hub_id!r}, and no model could be fetched from the hub: {reason}",
        f"when the hub can be reached, run it again, or: {_command(hub_id)}",
    )
