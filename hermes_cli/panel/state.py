"""What the panel shows: a run's events folded into one value of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hermes.config import Role
from hermes.events import AnswerDelta, ChunkEncoded, Compression
from hermes.sources import Pulse
from hermes_cli.panel.timing import Timing
from hermes_cli.player import Asking, Ended, Event, Player, Warned
from hermes_cli.progress import Goal
from hermes_cli.tally import Tally


@dataclass(frozen=True)
class Setting:
    """What stays the same while a film is played.

    Attributes:
        source, model, policy: what they are called.
        roles: of each layer.
        max_positions: how many the model has.
        goal: the part of the film that is played, and the budget.
    """

    source: str
    model: str
    policy: str
    roles: tuple[Role, ...]
    max_positions: int
    goal: Goal

    @classmethod
    def of(cls, player: Player, last_s: float) -> Setting:
        """That of a film which is played up to `last_s` at the most."""
        engine, film = player.engine, player.film
        return cls(
            source=film.source.info.name,
            model=engine.model.name,
            policy=player.policy,
            roles=engine.config.roles(engine.model.layers),
            max_positions=engine.model.max_positions,
            goal=Goal(film.start_s, film.stop_s(last_s), engine.config.budget if engine.policy.bounded else None),
        )


@dataclass(frozen=True)
class Vitals:
    """What only the owner of the panel knows, beside the events; None is unknown.

    Attributes:
        condition: said in place of how the source is doing: `paused`.
        speed: of playing, 1.0 is real time; infinite is as fast as frames can be read.
        elapsed_s: wall time since playing began.
        gpu_used_bytes, gpu_total_bytes: memory of the GPUs that hold the model.
    """

    condition: str | None = None
    speed: float | None = None
    elapsed_s: float | None = None
    gpu_used_bytes: int | None = None
    gpu_total_bytes: int | None = None

    @property
    def gpu_share(self) -> float | None:
        """How full the GPUs are, 0 to 1."""
        used, total = self.gpu_used_bytes, self.gpu_total_bytes
        return None if used is None or not total else used / total


@dataclass(frozen=True)
class Renumbering:
    """Positions were counted anew.

    Attributes:
        at_s: time of the newest frame then.
        before, after: the largest position.
    """

    at_s: float
    before: float
    after: float


@dataclass(frozen=True)
class LayersOfRole:
    """What neighbouring layers of one role hold after the newest chunk; None before the first.

    Attributes:
        role: theirs.
        numbers: of the first and the last of them.
        tokens, summaries: the fewest and the most of a layer.
        positions: the smallest and the largest.
        oldest_s: time of the oldest frame of which one of them holds a token; None too where they hold summary tokens alone.
    """

    role: Role
    numbers: tuple[int, int]
    tokens: tuple[int, int] | None = None
    summaries: tuple[int, int] | None = None
    positions: tuple[float, float] | None = None
    oldest_s: float | None = None


@dataclass(frozen=True)
class PanelState:
    """A run up to now.

    Attributes:
        vitals: as they are now; the owner replaces them.
        tally: the counts.
        pulse: the newest one of the source; None before the first.
        chunk: the newest one; None before the first.
        encoding: whole chunks, forgetting included.
        guidance, scoring, moving, forgetting: the parts of a compression, and all of it.
        renumbering: the newest one.
        answering, ended: an answer is under way; the film is over.
    """

    setting: Setting
    vitals: Vitals = field(default_factory=Vitals)
    tally: Tally = field(default_factory=Tally)
    pulse: Pulse | None = None
    chunk: ChunkEncoded | None = None
    encoding: Timing = field(default_factory=Timing)
    guidance: Timing = field(default_factory=Timing)
    scoring: Timing = field(default_factory=Timing)
    moving: Timing = field(default_factory=Timing)
    forgetting: Timing = field(default_factory=Timing)
    renumbering: Renumbering | None = None
    answering: bool = False
    ended: bool = False

    def after(self, event: Event) -> PanelState:
        """The state once this has happened too."""
        tally = replace(self.tally)
        tally.add(event)
        answering = isinstance(event, Asking) or (self.answering and isinstance(event, AnswerDelta | Warned | Pulse))
        state = replace(self, tally=tally, answering=answering)
        match event:
            case ChunkEncoded():
                return state._with_chunk(event)
            case Pulse():
                return replace(state, pulse=event)
            case Ended():
                return replace(state, ended=True)
        return state

    def _with_chunk(self, chunk: ChunkEncoded) -> PanelState:
        state = self._with_compression(chunk.compression) if chunk.compression else self
        forgetting_ms = _total_ms(chunk.compression) if chunk.compression else 0.0
        if chunk.renumbered_from is not None:
            state = replace(state, renumbering=Renumbering(chunk.end_s, chunk.renumbered_from, chunk.top_position))
        encoding = self.encoding.after(chunk.reading_ms + forgetting_ms)
        return replace(state, chunk=chunk, encoding=encoding)

    def _with_compression(self, compression: Compression) -> PanelState:
        return replace(
            self,
            guidance=self.guidance.after(compression.guidance_ms),
            scoring=self.scoring.after(compression.score_ms),
            moving=self.moving.after(compression.compact_ms),
            forgetting=self.forgetting.after(_total_ms(compression)),
        )

    @property
    def encoded_fps(self) -> float | None:
        """Frames a second that recent chunks were encoded at, forgetting included."""
        mean = self.encoding.mean
        return self.chunk.frames * 1000 / mean if self.chunk and mean else None

    def share_of_time(self, timing: Timing) -> float | None:
        """How much of the wall time a step took, 0 to 1; None while the wall time is unknown."""
        elapsed_s = self.vitals.elapsed_s
        return timing.total_ms / 1000 / elapsed_s if elapsed_s else None

    def layers_by_role(self) -> list[LayersOfRole]:
        """Each role that there are layers of, shallow ones first."""
        roles = self.setting.roles
        return [_layers_of(role, roles, self.chunk) for role in Role if role in roles]


def _layers_of(role: Role, roles: tuple[Role, ...], chunk: ChunkEncoded | None) -> LayersOfRole:
    layers = [layer for layer, own in enumerate(roles) if own is role]
    numbers = (layers[0], layers[-1])
    if chunk is None:
        return LayersOfRole(role, numbers)
    lows, highs = zip(*(chunk.positions[layer] for layer in layers), strict=True)
    return LayersOfRole(
        role=role,
        numbers=numbers,
        tokens=_ends([chunk.visual_tokens[layer] for layer in layers]),
        summaries=_ends([chunk.summary_tokens[layer] for layer in layers]),
        positions=(min(lows), max(highs)),
        oldest_s=min((time_s for layer in layers if (time_s := chunk.oldest_s[layer]) is not None), default=None),
    )


def _ends(counts: Sequence[int]) -> tuple[int, int]:
    return min(counts), max(counts)


def _total_ms(compression: Compression) -> float:
    return compression.guidance_ms + compression.score_ms + compression.compact_ms
