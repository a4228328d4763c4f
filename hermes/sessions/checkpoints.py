"""States of the engine as safetensors files, whose names tell what is in them."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.errors import SourceError
from hermes.sessions.files import write_atomically
from hermes.sessions.identity import FORMAT_VERSION, check_version

if TYPE_CHECKING:  # a list of sessions needs no torch
    from torch import Tensor

    from hermes.engine import EngineState

_FORMAT = "hermes checkpoint"
_NAME = re.compile(r"([0-9]{8,12})-([0-9.e+-]{1,32})\.safetensors")
_CACHE, _TIMES = "cache.", "frame_times_s"  # names of tensors
_CHECKSUM = "crc32"


@dataclass(frozen=True)
class Checkpoint:
    """A state on the disk.

    Attributes:
        frames: sampled frames that it has seen.
        time_s: of the newest of them, exactly.
    """

    path: Path
    frames: int
    time_s: float
    nbytes: int


def list_checkpoints(folder: Path) -> tuple[Checkpoint, ...]:
    """The checkpoints in a folder, oldest first, by their names alone."""
    found = (_checkpoint(path) for path in folder.glob("*.safetensors"))
    return tuple(sorted((checkpoint for checkpoint in found if checkpoint), key=lambda checkpoint: checkpoint.frames))


def _checkpoint(path: Path) -> Checkpoint | None:
    """None where the name is not one of ours, or the file has just been thinned out by its writer."""
    name = _NAME.fullmatch(path.name)
    try:
        found = Checkpoint(path, int(name[1]), float(name[2]), path.stat().st_size) if name else None
    except (OSError, ValueError):
        return None
    return found if found and math.isfinite(found.time_s) else None


def write_checkpoint(folder: Path, state: EngineState) -> Checkpoint:
    """Write a state that ends with a whole chunk.

    Raises:
        OSError: it cannot be written, for example because the disk is full; nothing else is touched.
    """
    import torch  # noqa: PLC0415
    from safetensors.torch import save  # noqa: PLC0415

    assert not state.pending  # frames are no tensors of the cache; the caller saves between chunks
    assert state.frame_times_s
    frames, time_s = len(state.frame_times_s), float(state.frame_times_s[-1])
    tensors = {_CACHE + name: tensor.detach().cpu().contiguous() for name, tensor in state.cache.items()}
    tensors[_TIMES] = torch.tensor(state.frame_times_s, dtype=torch.float64)
    path = folder / f"{frames:08}-{time_s!r}.safetensors"
    metadata = _metadata(state, frames, time_s)
    write_atomically(path, save(tensors, metadata | {_CHECKSUM: _checksum(tensors, metadata)}))
    return Checkpoint(path, frames, time_s, path.stat().st_size)


def _metadata(state: EngineState, frames: int, time_s: float) -> dict[str, str]:
    exchange = state.last_exchange
    values = {
        "version": FORMAT_VERSION,
        "owner": state.owner,
        "last_exchange": [exchange.question, exchange.answer] if exchange else None,
        "frames": frames,
        "time_s": time_s,
    }
    return {"format": _FORMAT} | {key: json.dumps(value, allow_nan=False) for key, value in values.items()}


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Of everything in the file but itself: a flipped bit would change answers without a word."""
    import torch  # noqa: PLC0415

    told = {name: (str(tensor.dtype), list(tensor.shape)) for name, tensor in sorted(tensors.items())}
    checksum = zlib.crc32(json.dumps([told, sorted(metadata.items())]).encode())
    for name in told:
        checksum = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, checksum)
    return f"{checksum:08x}"


def read_checkpoint(checkpoint: Checkpoint) -> EngineState:
    """The state, on the CPU, exactly as it was written.

    Raises:
        SourceError: the file is damaged, of a newer version, no checkpoint of ours, or gone.
    """
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415

    what = f"checkpoint {checkpoint.path.name}"
    repair = f"move {checkpoint.path} away: the checkpoint before it is used then"
    try:
        with safe_open(checkpoint.path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise SourceError(f"{what} was not written by hermes", repair)
            check_version(json.loads(metadata["version"]), what, repair)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
            checksum = metadata.pop(_CHECKSUM)
            if checksum != _checksum(tensors, metadata):
                raise ValueError(checksum)
            state = _state(tensors, metadata)
    except FileNotFoundError as error:
        raise SourceError(f"{what} has just been deleted to make room", "ask again") from error
    except OSError as error:
        raise SourceError(f"{what} cannot be read: {error.strerror or error}", repair) from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{what} is damaged", repair) from error
    if (len(state.frame_times_s), state.frame_times_s[-1]) != (checkpoint.frames, checkpoint.time_s):
        raise SourceError(f"{what} holds another moment than its name says", repair)
    return state


def _state(tensors: dict[str, Any], metadata: dict[str, str]) -> EngineState:
    from hermes.engine import EngineState  # noqa: PLC0415
    from hermes.guidance import Exchange  # noqa: PLC0415

    owner, exchange = json.loads(metadata["owner"]), json.loads(metadata["last_exchange"])
    times_s = tuple(tensors.pop(_TIMES).tolist())
    if not isinstance(owner, str) or not times_s or not all(map(math.isfinite, times_s)):
        raise ValueError(owner, times_s)
    return EngineState(
        owner=owner,
        cache={key.removeprefix(_CACHE): tensor for key, tensor in tensors.items()},
        frame_times_s=times_s,
        pending=(),
        last_exchange=Exchange(*exchange) if exchange else None,
    )
