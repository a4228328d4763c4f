"""The memory as a map: how many of each moment's tokens every layer still holds, read off the origins of its slots.

A memory does not say how many tokens a picture had. What is still held does, as far as it goes: a token names its row and
column. So a picture has the size of the largest one that any layer shows anything of, unless its own tokens lie outside of
that. `MemoryMap.counted` says whether this is known to be right: whether some layer, its summary tokens included, stands for
exactly as many tokens. It is so under `full`, and under `hermes` wherever a layer folds what it drops; under `fifo` nothing
tells the size of pictures that are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hermes.cache import SUMMARY_ORIGIN, TEXT_ORIGIN
from hermes.config import MemoryConfig, Role
from hermes.errors import SourceError, UsageError

if TYPE_CHECKING:
    from hermes.engine import EngineState, StreamEngine

_STAYS = 2
"""A frame is on show until the next, but no longer than so many usual distances between frames."""

Integers = NDArray[np.int64]
Slots = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Place (3, slots) and count (slots,) of a layer (`hermes.cache.Origin`)."""


@dataclass(frozen=True, eq=False)
class LayerMap:
    """What one layer holds.

    Attributes:
        place: (3, visual tokens), int64: frame number, row and column of those that still stand for themselves.
        prefix: text tokens in front of the video.
        text_tokens: those that a family writes between its pictures (Qwen3-VL).
        summary_tokens: how many there are.
        folded: visual tokens that these stand for.
    """

    role: Role
    place: Integers
    prefix: int
    text_tokens: int
    summary_tokens: int
    folded: int

    @classmethod
    def read(cls, role: Role, slots: Slots) -> LayerMap:
        """A layer by the origins of its slots."""
        place, count = slots[0].astype(np.int64), slots[1]
        frame, row, _ = place
        summary = frame == SUMMARY_ORIGIN
        own = np.flatnonzero(frame != TEXT_ORIGIN)
        prefix = int(own[0]) if len(own) else len(frame)
        shown = (frame >= 0) & (row >= 0)
        texts = len(frame) - prefix - int(shown.sum()) - int(summary.sum())
        return cls(role, place[:, shown], prefix, texts, int(summary.sum()), int(count[summary].sum()))

    @property
    def tokens(self) -> int:
        """Visual tokens that stand for themselves."""
        return int(self.place.shape[1])


@dataclass(frozen=True, eq=False)
class Pictures:
    """What the vision tower made one picture of: one frame, or in some families several.

    Attributes:
        frames: (pictures,), number of the first frame of each, ascending.
        rows, columns: (pictures,), of its tokens.
    """

    frames: Integers
    rows: Integers
    columns: Integers

    @property
    def tokens(self) -> Integers:
        """(pictures,): tokens that each had."""
        tokens: Integers = self.rows * self.columns
        return tokens

    def indices(self, layer: LayerMap) -> Integers:
        """(visual tokens,): which picture each token of a layer belongs to."""
        found: Integers = np.searchsorted(self.frames, layer.place[0])
        return found


@dataclass(frozen=True, eq=False)
class MemoryMap:
    """What every layer still holds of every picture.

    Attributes:
        frame_times_s: (frames,), float64, of every sampled frame that has become part of the memory.
    """

    layers: tuple[LayerMap, ...]
    pictures: Pictures
    frame_times_s: NDArray[np.float64]

    @property
    def start_s(self) -> float:
        """Time of the first frame."""
        return float(self.frame_times_s[0])

    @property
    def end_s(self) -> float:
        """When the last frame has been on show as long as frames usually are."""
        return float(self.frame_times_s[-1]) + self._step_s

    @property
    def counted(self) -> bool:
        """Whether the number of tokens that the pictures had is known, and not only likely."""
        seen = int(self.pictures.tokens.sum())
        return any(layer.tokens + layer.folded == seen for layer in self.layers)

    @property
    def has_gap(self) -> bool:
        """Whether the stream was away for a while."""
        return bool((np.diff(self.frame_times_s) > _STAYS * self._step_s).any())

    @cached_property
    def held(self) -> Integers:
        """(layers, pictures): tokens of each picture that still stand for themselves."""
        pictures = len(self.pictures.frames)
        return np.stack([np.bincount(self.pictures.indices(layer), minlength=pictures) for layer in self.layers])

    def shares(self, bins: int) -> NDArray[np.float64]:
        """The share of each moment's tokens that every layer still holds.

        Args:
            bins: equal parts of the time from `start_s` to `end_s`. One holds the pictures that begin in it, or else the one
                that is still on show.

        Returns: (layers, bins), in [0, 1]; NaN where the stream has a gap.
        """
        edges_s = np.linspace(self.start_s, self.end_s, bins + 1)
        edges_s -= 1e-6 * self._step_s  # a frame that falls on an edge belongs behind it, however the edge was rounded
        marks = np.searchsorted(self.frame_times_s[self.pictures.frames], edges_s)
        first, last = np.minimum(marks[:-1], marks[1:] - 1), marks[1:]
        held = _sums(self.held)
        shares: NDArray[np.float64] = (held[:, last] - held[:, first]) / (
            _sums(self.pictures.tokens)[last] - _sums(self.pictures.tokens)[first]
        )
        newest_s = self.frame_times_s[np.searchsorted(self.frame_times_s, edges_s[1:]) - 1]
        shares[:, newest_s + _STAYS * self._step_s < edges_s[:-1]] = np.nan
        return shares

    def oldest_s(self, role: Role) -> float | None:
        """The oldest moment of which a layer of that role holds a token; None where there is none."""
        numbers = [int(layer.place[0].min()) for layer in self.layers if layer.role is role and layer.tokens]
        return float(self.frame_times_s[min(numbers)]) if numbers else None

    @property
    def _step_s(self) -> float:
        """Seconds between frames, the median; 1 for a single frame."""
        return float(np.median(np.diff(self.frame_times_s))) if len(self.frame_times_s) > 1 else 1.0


def map_of_engine(engine: StreamEngine) -> MemoryMap:
    """The map of a live memory; frames that wait for their chunk are not in it yet.

    Raises:
        UsageError: there is nothing in the memory yet.
    """
    slots = [
        (layer.place[:, : layer.length].cpu().numpy(), layer.count[: layer.length].cpu().numpy())
        for layer in engine.cache.layers
    ]
    return _map(slots, engine.config, engine.frame_times_s, engine.model.frames_per_patch)


def map_of_state(state: EngineState, config: MemoryConfig) -> MemoryMap:
    """The map of a saved memory, without its model.

    Args:
        config: whose shares of shallow and deep layers give the roles.

    Raises:
        UsageError: there is nothing in the memory yet.
        SourceError: it is damaged.
    """
    layers = sum(name.endswith(".place") for name in state.cache)
    try:
        slots = [(state.cache[f"{n}.place"].numpy(), state.cache[f"{n}.count"].numpy()) for n in range(layers)]
        axes = len(state.cache["0.positions"])
    except KeyError as error:
        raise _damaged() from error
    if any(place.shape != (3, len(count)) for place, count in slots):
        raise _damaged()
    return _map(slots, config, state.frame_times_s, 1 if axes == 1 else None)


def _map(slots: Sequence[Slots], config: MemoryConfig, times_s: Sequence[float], joined: int | None) -> MemoryMap:
    if not times_s:
        raise UsageError("there is nothing in the memory yet", "the first chunk has to be full")
    layers = tuple(LayerMap.read(*layer) for layer in zip(config.roles(len(slots)), slots, strict=True))
    held = np.unique(np.concatenate([layer.place[0] for layer in layers]))
    if len(held) and held[-1] >= len(times_s):
        raise _damaged()
    frames = _first_frames(held, len(times_s), joined or _usual_gap(held))
    return MemoryMap(layers, _sized(frames, layers), np.array(times_s, dtype=np.float64))


def _damaged() -> SourceError:
    return SourceError("the saved memory is damaged", "give an earlier --at: the one that was saved before it is used then")


def _usual_gap(held: Integers) -> int:
    """How many frames a family joins that counts on three axes: the usual distance between pictures that are left."""
    return int(np.bincount(np.diff(held)).argmax()) if len(held) > 1 else 1


def _first_frames(held: Integers, frames: int, joined: int) -> Integers:
    """Where pictures begin: at the frames that are held, and every `joined` frames from one to the next."""
    known = np.unique(np.append(held, 0))
    runs = [np.arange(first, following, joined) for first, following in zip(known, [*known[1:], frames], strict=True)]
    return np.concatenate(runs)


def _sized(frames: Integers, layers: Sequence[LayerMap]) -> Pictures:
    """The pictures with their sizes, as far as the tokens that are left tell them."""
    seen = Pictures(frames, np.zeros_like(frames), np.zeros_like(frames))
    for layer in layers:
        indices = seen.indices(layer)
        np.maximum.at(seen.rows, indices, layer.place[1] + 1)
        np.maximum.at(seen.columns, indices, layer.place[2] + 1)
    largest = int(seen.tokens.argmax())
    rows, columns = max(1, seen.rows[largest]), max(1, seen.columns[largest])
    alike = (seen.rows <= rows) & (seen.columns <= columns)
    return Pictures(frames, np.where(alike, rows, seen.rows), np.where(alike, columns, seen.columns))


def _sums(counts: Integers) -> Integers:
    """Sums of the first 0, 1, ... entries along the last axis."""
    none = np.zeros((*counts.shape[:-1], 1), dtype=np.int64)
    return np.concatenate((none, counts.cumsum(axis=-1)), axis=-1)
