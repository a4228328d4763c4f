"""The live panel: its exact text, that it never leaves its room, that it stays small, and the facts it is given."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from hermes.cache import SUMMARY_ORIGIN, SlabLayer
from hermes.compaction import KeepPlan
from hermes.config import MemoryConfig, Role, Sampling
from hermes.engine import StreamEngine
from hermes.events import Answer, AnswerDelta, ChunkEncoded, Compression
from hermes.models import VideoModel, wrap_model
from hermes.policies import Fifo, MemoryView, make_policy
from hermes.sources import Pulse
from hermes_cli.choosing import embedded
from hermes_cli.film import Film
from hermes_cli.panel import ASCII, UNICODE, Color, Glyphs, Mode, PanelState, Setting, Vitals, panel, render
from hermes_cli.panel.timing import WINDOW, Timing
from hermes_cli.player import Asking, Ended, Player, Seen
from hermes_cli.progress import Goal
from tests import make_tiny
from tests.conftest import noise_frames
from tests.panel_picture import picture

SHOWN = Path(__file__).parent / "panel"
VIDEO = Path(__file__).parent.parent / "assets" / "demo.mp4"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def with_fixed_times(event: ChunkEncoded) -> ChunkEncoded:
    """The same facts, as if the chunk had taken 200 ms and each compression somewhat longer than the one before."""
    guidance_ms = 10.0 + event.first_frame
    forgetting = event.compression and replace(event.compression, guidance_ms=guidance_ms, score_ms=1.25, compact_ms=2.5)
    return replace(event, vision_ms=50.0, prefill_ms=150.0, compression=forgetting)


def watched(engine: StreamEngine, state: PanelState, frames: int) -> PanelState:
    for frame in noise_frames(frames):
        event = engine.push(frame)
        state = state.after(Seen(frame.time_s))
        state = state.after(with_fixed_times(event)) if event else state
    return state


@pytest.fixture
def run(small_model: Callable[..., VideoModel]) -> PanelState:
    """42 frames of a film of 100 s, played into a memory of 64 tokens by a model of ten layers."""
    model = small_model(layers=10)
    config = MemoryConfig.preset("paper", budget=64, chunk_frames=4, reindex="eager")
    goal = Goal(0.0, 100.0, config.budget)
    setting = Setting("door.mp4", model.name, "hermes", config.roles(model.layers), model.max_positions, goal)
    return watched(StreamEngine(model, config), PanelState(setting), 42)


def pulse(**changes: Any) -> Pulse:
    """That of a camera which is doing well."""
    facts = {
        "state": "live", "source_fps": 25.0, "sampled_fps": 1.0, "dropped": 1204, "lag_s": 0.32, "silent_s": None,
        "reconnects": 0, "attempt": 0, "attempts": 5,
    }  # fmt: skip
    return Pulse(**{**facts, **changes})


def live(state: PanelState) -> PanelState:
    vitals = Vitals(speed=1.0, elapsed_s=42.0, gpu_used_bytes=19 * 2**30, gpu_total_bytes=24 * 2**30)
    return replace(state.after(pulse()), vitals=vitals)


@pytest.mark.parametrize("size", ["120x40", "80x24", "40x10", "20x5"])
def test_the_text_at_each_size(run: PanelState, size: str) -> None:
    width, height = map(int, size.split("x"))
    text = (SHOWN / f"{size}.txt").read_text(encoding="utf-8")
    assert f"{render(live(run), width, height)}\n" == text


def test_what_is_unknown_is_a_dash_and_a_film_of_unknown_length_has_no_percent(run: PanelState) -> None:
    endless = replace(run, setting=replace(run.setting, goal=Goal(0.0, None, None)))
    text = render(endless, 80, 24, "full")
    assert text.splitlines()[1].split() == ["00:00:41", "playing"]
    assert [line.split()[-1] for line in text.splitlines()[-4:]] == ["—"] * 4
    assert text.count("%") == 1  # of the positions
    assert "tokens held per layer    " in text
    assert render(endless, 20, 1) == "00:00:41 · playing"


def test_before_the_first_frame_there_is_as_much_of_it_as_later(run: PanelState) -> None:
    fresh = PanelState(run.setting)
    assert render(fresh, 80, 24).startswith("00:00:00 / 00:01:40  ")
    assert "waiting for the first frame" in render(fresh, 80, 24)
    for size in ((120, 40), (80, 24), (40, 10)):
        assert render(fresh, *size).count("\n") == render(run, *size).count("\n")


def test_sizes_are_chosen_by_the_room_and_by_the_user(run: PanelState) -> None:
    def lines(width: int, height: int, mode: Mode = "auto") -> int:
        text = render(run, width, height, mode)
        return text.count("\n") + 1 if text else 0

    assert [lines(100, 30), lines(99, 30), lines(100, 29)] == [27, 11, 11]
    assert [lines(60, 12), lines(59, 12), lines(60, 11), lines(20, 1), lines(19, 40)] == [11, 1, 1, 1, 0]
    assert [lines(80, height, "full") for height in (27, 26, 21, 20, 18, 17, 11, 10)] == [27, 21, 21, 18, 18, 11, 11, 1]
    assert "…" not in render(run, 80, 27, "full")
    assert [lines(79, 40, "full"), lines(120, 40, "compact"), lines(120, 40, "off")] == [11, 11, 0]


@pytest.mark.parametrize("layers", [28, 36, 64, 80])
def test_every_layer_has_a_cell_of_its_own_on_80_columns(layers: int) -> None:
    state = PanelState(setting(layers)).after(chunk(layers, tokens=100, position=700.0, time_s=60.0))
    strip, letters = render(state, 80, 24).splitlines()[2:4]
    shallow, deep = MemoryConfig().boundaries(layers)
    assert strip.split() == ["█"] * layers or strip == "█" * layers
    assert letters.replace(" ", "") == "s" * shallow + "m" * (deep - shallow) + "◆" * (layers - deep)


def test_colours_are_written_only_where_they_are_wanted(run: PanelState) -> None:
    coloured = render(run, 120, 40, color="standard")
    assert ESCAPE.sub("", coloured) == render(run, 120, 40)
    assert {"\x1b[36m", "\x1b[32m", "\x1b[35m"} <= set(ESCAPE.findall(coloured))  # the roles
    assert panel(run, 120, 40).plain == render(run, 120, 40)


def test_the_picture_is_whole_and_fetches_nothing(run: PanelState) -> None:
    svg = picture(run)
    words = " ".join(ElementTree.fromstring(svg).itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert "tokens held per layer" in words
    assert 'url("' not in svg
    assert len(svg) < 60_000


def test_ascii_is_ascii(run: PanelState) -> None:
    named = replace(run.setting, source="Tür — 門.mp4")
    for size in ((120, 40), (80, 24), (40, 10)):
        assert render(replace(live(run), setting=named, answering=True), *size, glyphs=ASCII).isascii()
    assert "T?r ? ?.mp4" in render(replace(run, setting=named), 120, 40, glyphs=ASCII)


def test_the_source_says_how_it_is_and_an_answer_shows_while_it_comes(run: PanelState) -> None:
    asking = run.after(Asking("What?", 41.0, 41.0, 42, (64,) * 10, 80.0)).after(AnswerDelta("A"))
    assert "playing · answering" in render(asking, 80, 24)
    assert "answering" not in render(asking.after(Seen(42.0)), 80, 24)  # it was cancelled
    answered = asking.after(Answer("What?", "A door.", 41.0, "stop", 5, 3, 20.0, 5.0))
    assert "answering" not in render(answered, 80, 24)
    assert "9 compressions, 1 answer\n" in render(answered, 120, 40)
    assert "live · answering" in render(asking.after(pulse()), 80, 24)
    assert condition(run.after(pulse(state="stalled", silent_s=4.2))) == "stalled 4 s"
    assert condition(run.after(pulse(state="reconnecting", attempt=2))) == "reconnecting 2/5"
    assert condition(run.after(pulse(state="reconnecting", attempt=9, attempts=None))) == "reconnecting 9"
    assert condition(run.after(pulse(state="playing"))) == "playing"
    assert condition(replace(run, vitals=Vitals(condition="paused"))) == "paused"
    assert condition(run.after(Ended())) == "ended"


def condition(state: PanelState) -> str:
    return render(state, 80, 24).splitlines()[0].split("  ")[-1]


def setting(layers: int, source: str = "door.mp4", model: str = "a model") -> Setting:
    return Setting(source, model, "hermes", MemoryConfig().roles(layers), 32768, Goal(0.0, None, 100))


def chunk(layers: int, tokens: int, position: float, time_s: float) -> ChunkEncoded:
    deep = [role is Role.DEEP for role in MemoryConfig().roles(layers)]
    return ChunkEncoded(
        first_frame=0, frames=16, tokens=64, start_s=0.0, end_s=time_s, vision_ms=100.0, hidden_ms=0.0, prefill_ms=900.0,
        compression=Compression((64,) * layers, False, 12.0, 1.0, 2.0), visual_tokens=(tokens,) * layers,
        top_position=position, renumbered_from=position, summary_tokens=tuple(map(int, deep)),
        positions=((0.0, position),) * layers, oldest_s=(0.0,) * layers, median_s=(time_s / 2,) * layers,
    )  # fmt: skip


large = st.integers(0, 10**15)
shown_names = st.text(max_size=300) | st.sampled_from(
    ["門" * 200, "\x1b[2J\x1b]0;x\x07", "[/bold][red]", "a\nb\r\tc", "\u202e\ud800"]
)


@given(
    st.integers(1, 200), st.integers(1, 60), st.sampled_from(["auto", "full", "compact"]), st.sampled_from([UNICODE, ASCII]),
    st.sampled_from([None, "standard", "truecolor"]), shown_names, shown_names, st.integers(1, 130), large, large, large,
)  # fmt: skip
def test_it_never_leaves_its_room_whatever_it_shows(
    width: int, height: int, mode: Mode, glyphs: Glyphs, color: Color | None, source: str, model: str,
    layers: int, tokens: int, position: int, time_s: int,
) -> None:  # fmt: skip
    vitals = Vitals(model or None, float(tokens), float(time_s), tokens, position)
    beat = pulse(state="stalled", source_fps=float(position), dropped=tokens, lag_s=float(time_s), silent_s=float(time_s))
    state = PanelState(setting(layers, source, model), vitals).after(Seen(float(time_s))).after(beat)
    state = state.after(chunk(layers, tokens, float(position), float(time_s)))
    text = render(state, width, height, mode, glyphs, color)
    lines = ESCAPE.sub("", text).split("\n")
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert all(line.replace(UNICODE.thousands, "").isprintable() for line in lines)
    assert bool(text) == (width >= 20)


def test_a_name_is_shown_as_it_is_written_but_for_what_steers_a_terminal(run: PanelState) -> None:
    named = replace(run.setting, source="[red]門[/red]\x1b[2J\n:smile: \u202eb", model="[bold]x[/]")
    title = render(replace(run, setting=named), 100, 40).splitlines()[0]
    assert title.endswith("[red]門[/red][2J :smile: b")
    assert title.startswith("[bold]x[/], hermes memory")


def test_a_long_run_takes_no_more_memory_than_a_short_one(run: PanelState) -> None:
    state, sizes = run, []
    encoded = run.chunk
    assert encoded
    for count in range(10_000):
        state = state.after(Seen(float(count))).after(replace(encoded, first_frame=16 * count))
        if count in (100, 9_999):
            sizes.append(len(pickle.dumps(state)))
    assert sizes[1] - sizes[0] < 100  # longer numbers
    assert state.tally.frames == run.tally.frames + 10_000


def test_timings_are_of_the_newest_times_and_the_total_of_all() -> None:
    timing = Timing()
    assert (timing.last, timing.mean, timing.p95) == (None, None, None)
    for ms in range(1, 201):
        timing = timing.after(float(ms))
    newest = range(201 - WINDOW, 201)
    assert timing.recent == tuple(map(float, newest))
    assert (timing.last, timing.mean, timing.total_ms) == (200.0, sum(newest) / WINDOW, 20100.0)
    assert timing.p95 == 197.0  # 61 of 64 are no larger
    assert Timing((5.0,), 5.0).p95 == 5.0


@pytest.mark.parametrize(("policy", "budget"), [("hermes", 48), ("full", None)])
def test_the_setting_is_read_off_the_player(model: VideoModel, policy: str, budget: int | None) -> None:
    config = MemoryConfig(budget=48)
    engine = StreamEngine(model, config, make_policy(policy, config))
    film = Film.open(str(VIDEO), 1.0, "10", "end")
    read = Setting.of(Player(film, engine, Sampling(), policy, embedded()), 30.0)
    roles = (*(Role.MIDDLE,) * 2, *(Role.DEEP,) * 2)
    assert read == Setting(film.source.info.name, "tiny random", policy, roles, 2048, Goal(10.0, 30.0, budget))


def slots(layer: SlabLayer, prefix: int) -> tuple[list[int], list[list[float]]]:
    """The frame numbers and the positions behind the prefix."""
    numbers = layer.place[0, prefix : layer.length].tolist()
    positions = layer.positions[:, prefix : layer.length].tolist()
    return numbers, positions


@pytest.mark.parametrize("family", make_tiny.FAMILIES)
def test_the_engine_says_what_each_layer_holds(family: str) -> None:
    model = wrap_model(*make_tiny.FAMILIES[family](), family)
    engine = StreamEngine(model, MemoryConfig(budget=64, chunk_frames=4))
    for frame in noise_frames(40, width=40, height=32):
        event = engine.push(replace(frame, time_s=2 * frame.time_s))
        if event is None:
            continue
        for index, layer in enumerate(engine.cache.layers):
            numbers, positions = slots(layer, engine.prefix)
            frames = sorted(number for number in numbers if number >= 0)
            assert event.summary_tokens[index] == numbers.count(SUMMARY_ORIGIN)
            assert event.positions[index] == (min(map(min, positions)), max(map(max, positions)))
            assert event.oldest_s[index] == 2 * frames[0]
            assert event.median_s[index] == 2 * frames[(len(frames) - 1) // 2]


@dataclass(frozen=True)
class Forgetful(Fifo):
    """Keeps nothing in the first layer."""

    def plan(self, view: MemoryView) -> KeepPlan:
        _, *others = super().plan(view).keep
        return KeepPlan((torch.arange(view.prefix), *others), (0,) * len(view.places))


def test_a_layer_that_kept_nothing_has_no_moments(model: VideoModel) -> None:
    config = MemoryConfig(budget=30, chunk_frames=4)
    engine = StreamEngine(model, config, Forgetful(config))
    event = [engine.push(frame) for frame in noise_frames(4)][-1]
    assert event is not None
    assert event.oldest_s == (None, 0.0, 0.0, 0.0)
    assert event.median_s[0] is None
    assert event.summary_tokens == (0,) * 4


@pytest.mark.parametrize("reindex", ["eager", "lazy"])
def test_the_engine_says_when_positions_were_renumbered(small_model: Callable[..., VideoModel], reindex: Any) -> None:
    """Lazily, before a chunk would have no positions left; the margin is so small that no compression does it first."""
    model = small_model(max_positions=800)
    config = MemoryConfig(budget=64, chunk_frames=4, reindex=reindex, reindex_margin=0, position_room=300)
    engine = StreamEngine(model, config)
    events = [event for frame in noise_frames(80) if (event := engine.push(frame))]
    chunk_tokens = events[0].tokens
    times = [event for event in events if event.renumbered_from is not None]
    assert times
    for before, event in pairwise(events):
        if event.renumbered_from is None:
            assert event.top_position > before.top_position
        elif reindex == "eager":
            assert event.renumbered_from == before.top_position + chunk_tokens
        else:
            assert event.renumbered_from == before.top_position
            assert event.top_position < before.top_position
