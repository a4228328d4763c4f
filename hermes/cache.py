"""The KV cache: a preallocated slab, with the position and the origin of every slot of every layer.

`SlabCache` is a transformers cache, so every model writes into it through its own forward. Nothing here decides what is
kept; `hermes.compaction` is the only writer of kept keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from hermes.errors import UsageError
from hermes.upload import upload

TEXT_ORIGIN = -1  # frame number of a slot that holds text: the system prefix, a question, an answer
SUMMARY_ORIGIN = -2  # frame number of a slot that stands for several dropped tokens

_BLOCK = 256  # slots


@dataclass(frozen=True)
class Origin:
    """Where tokens come from: `place` is (3, tokens) int32 - frame number, row, column - and `count` (tokens,) int32.

    The frame number counts the sampled frames of the stream from 0, or is TEXT_ORIGIN or SUMMARY_ORIGIN. `count` is how
    many visual tokens a slot stands for: 1, or more for a summary token.
    """

    place: Tensor  # (3, tokens)
    count: Tensor  # (tokens,)

    @classmethod
    @lru_cache(maxsize=8)  # an answer needs the same one for every token, and nobody writes to them
    def text(cls, tokens: int, frame: int = TEXT_ORIGIN) -> Origin:
        """The origin of text tokens; those that a family writes into the video itself belong to a frame of it."""
        place = torch.full((3, tokens), TEXT_ORIGIN, dtype=torch.int32)
        place[0] = frame
        return cls(place, torch.zeros(tokens, dtype=torch.int32))

    @classmethod
    def grid(cls, frames: Iterable[int], rows: int, columns: int) -> Origin:
        """The origin of rows x columns tokens for each of the frame numbers, frame by frame, row by row."""
        axes = (torch.tensor(list(frames)), torch.arange(rows), torch.arange(columns))
        place = torch.cartesian_prod(*axes).reshape(-1, 3).T.to(torch.int32)
        return cls(place.contiguous(), torch.ones(place.shape[1], dtype=torch.int32))

    @classmethod
    def join(cls, origins: Sequence[Origin]) -> Origin:
        """Several origins one after another."""
        return cls(torch.cat([o.place for o in origins], dim=1), torch.cat([o.count for o in origins]))


@dataclass(frozen=True)
class SlotShape:
    """What one slot of a layer holds.

    Attributes:
        kv_heads, head_dim: of its key and its value.
        axes: position axes: one for plain rotary embedding, three for M-RoPE.
        dtype: of keys and values.
    """

    kv_heads: int
    head_dim: int
    axes: int
    dtype: torch.dtype


class Slab:
    """The storage of all layers on one device, so that one operation reaches all of them.

    Attributes:
        keys: (layers, kv_heads, capacity, head_dim), rotated to `positions`, as attention reads them.
        raw_keys: the same keys unrotated, valid up to a layer's `raw_length`. Renumbering always rotates from these, so that
            keys of a 16-bit cache do not drift however often they are renumbered.
        values: (layers, kv_heads, capacity, head_dim).
        positions: (layers, axes, capacity), float32.
        place, count: (layers, 3, capacity) and (layers, capacity), see `Origin`.
        capacity: slots of each layer, as many as asked for or a few more.
    """

    def __init__(self, layers: int, capacity: int, shape: SlotShape, device: torch.device) -> None:
        self.device = device
        self.capacity = capacity = _whole(capacity, device)
        size = (layers, shape.kv_heads, capacity, shape.head_dim)
        self.keys = torch.zeros(size, dtype=shape.dtype, device=device)
        self.values = torch.zeros(size, dtype=shape.dtype, device=device)
        self.raw_keys = torch.zeros(size, dtype=shape.dtype, device=device)
        self.positions = torch.zeros(layers, shape.axes, capacity, device=device)
        self.place = torch.zeros(layers, 3, capacity, dtype=torch.int32, device=device)
        self.count = torch.zeros(layers, capacity, dtype=torch.int32, device=device)

    def grow(self, capacity: int) -> None:
        """Reallocate to a larger capacity, one kind of content after another; where memory is short, nothing is lost."""
        capacity = _whole(capacity, self.device)
        for name in ("keys", "values", "raw_keys"):
            setattr(self, name, _extended(getattr(self, name), capacity, dim=2))
        for name in ("positions", "place", "count"):
            setattr(self, name, _extended(getattr(self, name), capacity, dim=-1))
        self.capacity = capacity


class SlabLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not typed here
    """One layer's part of a slab. Slots [0, length) are alive; a forward appends behind them.

    Attributes:
        slab, row: where it is stored.
        keys, raw_keys, values: (1, kv_heads, capacity, head_dim); positions, place, count: (axes, capacity), (3, capacity),
            (capacity,). Views of the slab.
        next_position: where text goes that follows, on every axis.
        time_shift: how far renumbering has moved the first axis, time, for chunks whose positions count from the start of
            the video (`SlabCache.stage`).
    """

    is_compileable = False
    is_sliding = False

    def __init__(self, slab: Slab, row: int) -> None:
        super().__init__()
        self.slab, self.row = slab, row
        self.device = slab.device
        self.length = 0
        self.raw_length = 0
        self.next_position = 0.0
        self.time_shift = 0.0
        self.is_initialized = True
        self.look()

    def look(self) -> None:
        """Take fresh views of the slab, which has been reallocated."""
        slab, row = self.slab, self.row
        self.keys, self.values, self.raw_keys = (kind[row : row + 1] for kind in (slab.keys, slab.values, slab.raw_keys))
        self.positions, self.place, self.count = slab.positions[row], slab.place[row], slab.count[row]

    @property
    def capacity(self) -> int:
        """Slots of the slab."""
        return self.slab.capacity

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append (1, kv_heads, tokens, head_dim) and return views of everything alive (called by transformers)."""
        start, tokens = self.length, key_states.shape[2]
        self.length = end = start + tokens
        self.keys.narrow(2, start, tokens).copy_(key_states)
        self.values.narrow(2, start, tokens).copy_(value_states)
        return self.keys.narrow(2, 0, end), self.values.narrow(2, 0, end)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the slab exists from the start."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys visible to a query of `query_length` tokens and their offset, for transformers' masks."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens alive."""
        return self.length

    def get_max_length(self) -> int:
        """Slots of the slab."""
        return self.capacity

    get_max_cache_shape = get_max_length  # the name before transformers 5.2x


@dataclass(frozen=True)
class Run:
    """Neighbouring layers of one slab that hold the same number of tokens, so that one operation serves them all.

    Attributes:
        slab: where they are stored.
        first: index of the first of `layers` in the cache.
        layers: in order.
    """

    slab: Slab
    first: int
    layers: tuple[SlabLayer, ...]

    @property
    def rows(self) -> slice:
        """Their rows in the slab."""
        return slice(self.layers[0].row, self.layers[-1].row + 1)

    @property
    def span(self) -> slice:
        """Their indices in the cache."""
        return slice(self.first, self.first + len(self.layers))

    @property
    def length(self) -> int:
        """Tokens alive in each of them."""
        return self.layers[0].length


class SlabCache(Cache):  # type: ignore[misc]
    """The memory of all layers.

    Args:
        shape: what a slot holds, in every layer.
        capacity: slots of each layer.
        devices: of each layer; neighbours on one device share a slab.
    """

    layers: list[SlabLayer]

    def __init__(self, shape: SlotShape, capacity: int, devices: Sequence[torch.device]) -> None:
        self.slabs: list[Slab] = []
        layers = []
        for device, group in groupby(devices):
            count = len(list(group))
            self.slabs.append(Slab(count, capacity, shape, device))
            layers += [SlabLayer(self.slabs[-1], row) for row in range(count)]
        super().__init__(layers=layers)
        self.video_time = 0.0  # the largest time so far among positions in the video, before any shift
        self._borrowed = False

    @property
    def lengths(self) -> list[int]:
        """Tokens alive per layer, prefix included."""
        return [layer.length for layer in self.layers]

    @property
    def top_position(self) -> float:
        """The largest position that the next token of any layer would get."""
        return max(layer.next_position for layer in self.layers)

    @property
    def nbytes(self) -> int:
        """Bytes allocated for keys (rotated and unrotated) and values."""
        return sum(kind.nbytes for slab in self.slabs for kind in (slab.keys, slab.values, slab.raw_keys))

    def runs(self, *alike: Sequence[Any]) -> list[Run]:
        """The layers as runs that are as long as possible.

        Args:
            alike: each has a value per layer, which is to be the same within a run too.
        """
        traits = zip(self.layers, *alike, strict=True)
        numbered = [(id(layer.slab), layer.length, layer.raw_length, *others) for layer, *others in traits]
        runs: list[Run] = []
        for _, group in groupby(range(len(self.layers)), key=numbered.__getitem__):
            indices = list(group)
            members = tuple(self.layers[index] for index in indices)
            runs.append(Run(members[0].slab, indices[0], members))
        return runs

    def grow(self, capacity: int) -> None:
        """Give every layer at least `capacity` slots."""
        try:
            for slab in self.slabs:
                if slab.capacity < capacity:
                    slab.grow(capacity)
        finally:
            for layer in self.layers:
                layer.look()

    def reserve(self, tokens: int) -> None:
        """Make sure that every layer can take `tokens` more. A cache sized for its budget never grows here; one without a
        budget at least doubles."""
        if any(layer.length + tokens > layer.capacity for layer in self.layers):
            self.grow(max(max(self.lengths) + tokens, 2 * self.layers[0].capacity))

    def locate(self, positions: Tensor, in_video: bool = False) -> Tensor:
        """Where tokens at `positions` (axes, tokens) come to stand in each layer.

        Args:
            in_video: they are counted from the start of the video on every axis, the prefix in front of it included, so that
                rows and columns repeat from chunk to chunk and time goes on; otherwise from each layer's next position.

        Returns: (layers, axes, tokens), float32, on the CPU.
        """
        return self._starts(len(positions), in_video)[..., None] + positions.cpu()

    def reach(self, positions: Tensor, in_video: bool = False) -> float:
        """The largest position that `locate` would give."""
        return float((self._starts(len(positions), in_video).amax(dim=0) + positions.cpu().amax(dim=1)).max())

    def _starts(self, axes: int, in_video: bool) -> Tensor:
        """Where positions count from, (layers, axes)."""
        if not in_video:
            return torch.tensor([layer.next_position for layer in self.layers])[:, None].expand(-1, axes)
        starts = torch.zeros(len(self.layers), axes)
        starts[:, 0] = torch.tensor([layer.time_shift for layer in self.layers])
        return starts

    def stage(self, positions: Tensor, origin: Origin, in_video: bool = False) -> Tensor:
        """Announce a forward of tokens; arguments and result as `locate`."""
        located = self.locate(positions, in_video)
        tokens = positions.shape[-1]
        for run in self.runs():
            slots = slice(run.length, run.length + tokens)
            assert slots.stop <= run.slab.capacity, "the caller reserves room before a forward"
            run.slab.positions[run.rows, :, slots] = upload(located[run.span], run.slab.device)
            run.slab.place[run.rows, :, slots] = upload(origin.place, run.slab.device)
            run.slab.count[run.rows, slots] = upload(origin.count, run.slab.device)
        for layer, top in zip(self.layers, located.amax(dim=(1, 2)).tolist(), strict=True):
            layer.next_position = max(layer.next_position, top + 1)
        if in_video:
            self.video_time = max(self.video_time, float(positions[0].max()))
        return located

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Whatever is appended inside is forgotten at the end: the memory afterwards is bit-identical.

        Raises:
            UsageError: somebody else is still inside, such as an answer that is neither finished nor closed.
        """
        self.check_free()
        marks = self._marks()
        self._borrowed = True
        try:
            yield
        finally:
            self._return_to(marks)
            self._borrowed = False

    @contextmanager
    def undone_on_failure(self) -> Iterator[None]:
        """Whatever is appended inside stays, unless an exception leaves: then it is forgotten. Raises as `scratch`."""
        self.check_free()
        marks = self._marks()
        try:
            yield
        except BaseException:
            self._return_to(marks)
            raise

    def check_free(self) -> None:
        """Raise `UsageError` while somebody is inside `scratch`."""
        if self._borrowed:
            raise UsageError("an answer is still under way", "read it to its end, or close it first")

    def _marks(self) -> tuple[float, list[tuple[int, int, float]]]:
        return self.video_time, [(layer.length, layer.raw_length, layer.next_position) for layer in self.layers]

    def _return_to(self, marks: tuple[float, list[tuple[int, int, float]]]) -> None:
        self.video_time, of_layers = marks
        for layer, (length, raw_length, next_position) in zip(self.layers, of_layers, strict=True):
            layer.length, layer.raw_length, layer.next_position = length, raw_length, next_position

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of everything alive, as named tensors; `restore` takes it back exactly. Raises as `check_free`."""
        self.check_free()
        state = {"video_time": torch.tensor(self.video_time, dtype=torch.float64)}
        for index, layer in enumerate(self.layers):
            for name, alive in _alive(layer).items():
                state[f"{index}.{name}"] = alive.clone()
            numbers = [layer.length, layer.raw_length, layer.next_position, layer.time_shift]
            state[f"{index}.state"] = torch.tensor(numbers, dtype=torch.float64)
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put the cache back to a `snapshot`. Raises as `check_free`."""
        self.check_free()
        self.video_time = float(state["video_time"])
        for index, layer in enumerate(self.layers):
            length, raw_length, layer.next_position, layer.time_shift = state[f"{index}.state"].tolist()
            layer.length, layer.raw_length = int(length), int(raw_length)
            self.grow(layer.length)
            for name, alive in _alive(layer).items():
                alive.copy_(state[f"{index}.{name}"])


def _alive(layer: SlabLayer) -> dict[str, Tensor]:
    """Views of the slots in use, by name."""
    return {
        "keys": layer.keys[:, :, : layer.length],
        "values": layer.values[:, :, : layer.length],
        "raw_keys": layer.raw_keys[:, :, : layer.raw_length],
        "positions": layer.positions[:, : layer.length],
        "place": layer.place[:, : layer.length],
        "count": layer.count[: layer.length],
    }


def _whole(capacity: int, device: torch.device) -> int:
    """At least so many slots. On a GPU they come in equal blocks, which attention can read side by side."""
    return -(-capacity // _BLOCK) * _BLOCK if device.type == "cuda" else capacity


def _extended(slab: Tensor, capacity: int, dim: int) -> Tensor:
    """The contents of a slab at the start of a larger one."""
    shape = list(slab.shape)
    old = shape[dim]
    if old >= capacity:  # an earlier attempt that failed came as far as this
        return slab
    shape[dim] = capacity
    larger = slab.new_zeros(shape)
    larger.narrow(dim, 0, old).copy_(slab)
    return larger
