"""The memory map: its numbers against counts by hand, and every form that it is drawn in."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from hermes.cache import SUMMARY_ORIGIN, TEXT_ORIGIN
from hermes.config import MemoryConfig, Role, Sampling
from hermes.engine import StreamEngine
from hermes.errors import SourceError, UsageError
from hermes.events import Moment
from hermes.memory_map import LayerMap, MemoryMap, Pictures, map_of_engine, map_of_state
from hermes.models import VideoModel
from hermes.policies import make_policy
from hermes.sessions import SessionStore, SourceIdentity
from hermes.tiny.clip import write_clip
from hermes.tiny.world import RandomSource, make_video
from hermes_cli.app import main
from hermes_cli.choosing import Choice
from hermes_cli.drawing.colours import SHADES, colour, in_hex, shade
from hermes_cli.drawing.figure import LEFT, MAP_WIDTH, TOP, Figure, svg
from hermes_cli.drawing.page import page
from hermes_cli.drawing.sheet import Answered, Sheet, grouped_layers, ticks
from hermes_cli.drawing.text import MapText
from hermes_cli.film import Film
from hermes_cli.mapping import sheet_of_player
from hermes_cli.player import Player
from tests.conftest import noise_frames
from tests.test_families import QWEN, engine_for, tiny
from tests.test_sessions import state

Run = Callable[..., tuple[int, str, str]]

MEMORY = ("-m", "tiny", "--chunk", "4", "--budget", "24")
QUESTION = "What did you see first?"


@pytest.fixture(scope="module")
def watched_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """16 seconds of the embedded model's world, and the state folder with the session `door` of them."""
    film, state_folder = tmp_path_factory.mktemp("film") / "film.mp4", tmp_path_factory.mktemp("state")
    write_clip(make_video(16, RandomSource(7)), film, size=96)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("HERMES_STATE_DIR", str(state_folder))
        monkeypatch.setattr(sys, "stdin", None)
        assert main(["watch", str(film), *MEMORY, "--name", "door", "--ask", f"00:13 {QUESTION}"]) == 0
    return film, state_folder


@pytest.fixture
def film(watched_once: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The film, with a copy of its session."""
    film, state_folder = watched_once
    shutil.copytree(state_folder, tmp_path / "state")
    monkeypatch.setenv("HERMES_STATE_DIR", str(tmp_path / "state"))
    return film


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


def engine_with(model: VideoModel, policy: str, frames: int = 20, **changes: Any) -> StreamEngine:
    """A memory of noise, 9 tokens a frame, far over its budget."""
    settings = {"budget": 50, "chunk_frames": 4, "position_room": 128, "history_tokens": 16, **changes}
    config = MemoryConfig.preset("paper", **settings)
    engine = StreamEngine(model, config, make_policy(policy, config))
    for frame in noise_frames(frames):
        engine.push(frame)
    return engine


def by_hand(engine: StreamEngine, layer: int) -> tuple[Counter[int], int, int]:
    """Tokens of each frame number, summary tokens, and what they stand for, slot by slot."""
    slab = engine.cache.layers[layer]
    frames, summaries, folded = Counter[int](), 0, 0
    for slot in range(slab.length):
        number, row, _ = slab.place[:, slot].tolist()
        if number == SUMMARY_ORIGIN:
            summaries, folded = summaries + 1, folded + int(slab.count[slot])
        elif number != TEXT_ORIGIN and row >= 0:
            frames[number] += 1
    return frames, summaries, folded


@pytest.mark.parametrize("policy", ["hermes", "fifo", "full"])
def test_the_numbers_are_those_counted_by_hand(small_model: Callable[..., VideoModel], policy: str) -> None:
    engine = engine_with(small_model(layers=10), policy)
    found = map_of_engine(engine)
    shares = found.shares(20)
    for number, layer in enumerate(found.layers):
        frames, summaries, folded = by_hand(engine, number)
        assert found.held[number].tolist() == [frames[frame] for frame in range(20)]
        assert shares[number].tolist() == [frames[frame] / 9 for frame in range(20)]
        assert (layer.summary_tokens, layer.folded) == (summaries, folded)
        assert (layer.tokens, layer.prefix, layer.text_tokens) == (sum(frames.values()), engine.prefix, 0)
        if policy == "hermes" and layer.role is Role.DEEP:
            assert summaries >= 1
            assert folded == 20 * 9 - layer.tokens
    assert [layer.role for layer in found.layers] == list(engine.config.roles(10))
    for role in Role:
        oldest = min(min(by_hand(engine, n)[0]) for n, layer in enumerate(found.layers) if layer.role is role)
        assert found.oldest_s(role) == float(oldest)
    assert found.counted == (policy != "fifo")  # nothing says how large the pictures were that are gone
    assert (found.start_s, found.end_s, found.has_gap) == (0.0, 20.0, False)


@pytest.mark.parametrize("policy", ["hermes", "fifo", "full"])
def test_a_saved_memory_gives_the_map_of_the_live_one(model: VideoModel, policy: str) -> None:
    engine = engine_with(model, policy, frames=14)  # two of them wait for their chunk
    live, saved = map_of_engine(engine), map_of_state(replace(engine.snapshot(), pending=()), engine.config)
    assert len(live.frame_times_s) == 12
    assert_same(live, saved)


@pytest.mark.parametrize("family", QWEN)
@pytest.mark.parametrize("policy", ["hermes", "fifo", "full"])
def test_pictures_of_two_frames(family: str, policy: str) -> None:
    engine = engine_for(tiny(family), policy, budget=60, chunk_frames=4)
    for frame in noise_frames(24):
        engine.push(frame)
    found = map_of_engine(engine)
    assert found.pictures.frames.tolist() == list(range(0, 24, 2))
    rows, columns = set(found.pictures.rows.tolist()), set(found.pictures.columns.tolist())
    whole = engine.model.chunk_size(2, 40, 30).tokens
    assert (len(rows), len(columns), rows.pop() * columns.pop()) == (1, 1, whole)
    for number, layer in enumerate(found.layers):
        frames, summaries, folded = by_hand(engine, number)
        assert found.shares(12)[number].tolist() == [frames[frame] / whole for frame in range(0, 24, 2)]
        assert (layer.summary_tokens, layer.folded) == (summaries, folded)
        assert layer.tokens + layer.text_tokens + summaries == engine.visual_tokens[number]
    texts = sum(layer.text_tokens for layer in found.layers)
    assert (texts > 0) == (family == "qwen3_vl")
    assert_same(found, map_of_state(engine.snapshot(), engine.config))


def assert_same(one: MemoryMap, other: MemoryMap) -> None:
    assert one.counted == other.counted
    assert one.held.tolist() == other.held.tolist()
    for name in ("frames", "rows", "columns"):
        assert getattr(one.pictures, name).tolist() == getattr(other.pictures, name).tolist()
    for this, that in zip(one.layers, other.layers, strict=True):
        numbers = [(x.role, x.prefix, x.text_tokens, x.summary_tokens, x.folded) for x in (this, that)]
        assert numbers[0] == numbers[1]
        assert this.place.tolist() == that.place.tolist()


def made(shares: list[list[int]], whole: int = 10, times_s: list[float] | None = None, folded: int = 0) -> MemoryMap:
    """A map by hand: tokens held of each frame, in one row of `whole` tokens a frame; the last layer has summaries."""
    frames = np.arange(len(shares[0]))
    config = MemoryConfig()
    layers = []
    for number, (role, held) in enumerate(zip(config.roles(len(shares)), shares, strict=True)):
        place = np.array([(frame, 0, column) for frame, count in enumerate(held) for column in range(count)])
        last = number == len(shares) - 1 and folded > 0
        layers.append(LayerMap(role, place.reshape(-1, 3).T.astype(np.int64), 5, 0, int(last), folded if last else 0))
    pictures = Pictures(frames, np.ones_like(frames), np.full_like(frames, whole))
    return MemoryMap(tuple(layers), pictures, np.array(times_s or frames, dtype=np.float64))


def test_bins_join_pictures_or_show_the_one_that_stays() -> None:
    found = made([[10, 5, 0, 10]])
    assert found.shares(2).tolist() == [[0.75, 0.5]]
    assert found.shares(8).tolist() == [[1, 1, 0.5, 0.5, 0, 0, 1, 1]]
    assert found.shares(1).tolist() == [[0.625]]


def test_edges_hold_however_they_are_rounded() -> None:
    times_s = [n / 10 for n in range(1000)]
    held = [n % 11 for n in range(1000)]
    assert made([held], times_s=times_s).shares(1000)[0].tolist() == [count / 10 for count in held]


def test_a_stream_that_was_away_shows_as_a_gap() -> None:
    found = made([[10, 5, 2, 1]], times_s=[0, 1, 2, 9])
    shares = found.shares(10)[0].tolist()
    assert shares[:5] == [1.0, 0.5, 0.2, 0.2, 0.2]
    assert all(np.isnan(share) for share in shares[5:9])
    assert shares[9] == 0.1
    assert found.has_gap


def test_pictures_larger_than_the_others_keep_their_size(model: VideoModel) -> None:
    engine = engine_for(tiny("qwen2_5_vl"), "full", chunk_frames=4)
    for frame in [*noise_frames(4), *(replace(f, time_s=f.time_s + 4) for f in noise_frames(4, width=16, height=64))]:
        engine.push(frame)
    pictures = map_of_engine(engine).pictures
    assert pictures.rows.tolist()[2:] != pictures.rows.tolist()[:2]
    assert (map_of_engine(engine).held == pictures.tokens).all()


def test_nothing_is_no_map(model: VideoModel) -> None:
    engine = engine_with(model, "hermes", frames=3)
    with pytest.raises(UsageError, match="nothing in the memory"):
        map_of_engine(engine)


def test_a_damaged_memory_is_refused(model: VideoModel) -> None:
    engine = engine_with(model, "full", frames=4)
    whole = engine.snapshot()
    spoiled: list[dict[str, Any]] = [
        {name: tensor for name, tensor in whole.cache.items() if name != "1.place"},
        {name: tensor for name, tensor in whole.cache.items() if name != "0.count"},
        {name: tensor for name, tensor in whole.cache.items() if name != "0.positions"},
        {**whole.cache, "0.place": whole.cache["0.place"][:1]},
        {**whole.cache, "0.place": whole.cache["0.place"] + 1000},
    ]
    for cache in spoiled:
        with pytest.raises(SourceError, match="damaged"):
            map_of_state(replace(whole, cache=cache), engine.config)


# drawing


def test_shades_are_blank_only_for_nothing_and_full_only_for_everything() -> None:
    assert (shade(0.0), shade(1e-9), shade(0.999999), shade(1.0)) == (SHADES[0], SHADES[1], SHADES[-2], SHADES[-1])
    shades = [SHADES.index(shade(n / 1000)) for n in range(1001)]
    assert shades == sorted(shades)
    assert len(set(shades)) == len(SHADES)


def test_colours_rise_in_lightness() -> None:
    light = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in (colour(n / 50) for n in range(51))]
    assert light == sorted(light)


@pytest.mark.parametrize(("layers", "most"), [(28, 12), (28, 28), (80, 12), (64, 3), (64, 1), (4, 100)])
def test_groups_join_neighbours_of_one_role(layers: int, most: int) -> None:
    roles = MemoryConfig().roles(layers)
    groups = grouped_layers(roles, most)
    assert [layer for group in groups for layer in group] == list(range(layers))
    assert all(len({roles[layer] for layer in group}) == 1 for group in groups)
    assert len(groups) <= max(most, len(set(roles)))


def test_ticks_are_round_times() -> None:
    assert ticks(0, 64, 4) == [0, 20, 40, 60]
    assert ticks(7.5, 30, 4) == [10, 20]
    assert ticks(0, 10 * 86400, 3) == [0, 4 * 86400, 8 * 86400]
    assert ticks(0, 1, 0) == [0]


def sheet(memory: MemoryMap, answered: Answered | None = None) -> Sheet:
    return Sheet(memory, "session 1 of film.mp4", "hermes, budget 20; 4 frames, saved at 00:00:03.000", answered)


def printed(sheet: Sheet, width: int, height: int, **options: Any) -> str:
    console = Console(width=width, height=height, file=io.StringIO(), highlight=False, **options)
    console.print(MapText(sheet, options.get("color_system") is None))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_the_map_in_characters() -> None:
    memory = made([[0, 0, 10, 10], [1, 4, 6, 9], [1, 4, 6, 9], [10, 5, 2, 0]], folded=23)
    answered = Answered("What\nis [b]this[/b]?", 3.0, (Moment(0, 1, 0.5), Moment(2, 3, 0.25)))
    assert (
        printed(sheet(memory, answered), 56, 24)
        == """\
session 1 of film.mp4
hermes, budget 20; 4 frames, saved at 00:00:03.000
middle 0 |               @@@@@@@@@@@@@@@@| 20
middle 1 |.......========++++++++%%%%%%%%| 20
  deep 2 |.......========++++++++%%%%%%%%| 20
  deep 3 |@@@@@@@++++++++::::::::        | 17 + 1 for 23
evidence |^^^^^^^^       ^^^^^^^^^       |
          |00:00:00      |00:00:02
share of each moment's tokens still held:
none [ .:-=+*#%@] all
a whole picture has 1 x 10 tokens
middle layers remember back to 00:00:00
deep layers remember back to 00:00:00; summary tokens:
1, for 23 tokens
evidence: "What is [b]this[/b]?" at 00:00:03 drew on
00:00-00:01 (50 %), 00:02-00:03 (25 %)
"""
    )


def test_the_map_in_characters_where_rows_are_joined_and_frames_are_missing() -> None:
    memory = made([[0, 3, 10, layer % 3] for layer in range(10)], times_s=[3600, 3601, 3602, 3620])
    assert (
        printed(sheet(memory), 64, 14)
        == """\
session 1 of film.mp4
hermes, budget 20; 4 frames, saved at 00:00:03.000
 shallow 0 |  --@@@@@@~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~   | 13
middle 1-6 |  --@@@@@@~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~...| 14
  deep 7-9 |  --@@@@@@~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~...| 14
            |01:00:00             |01:00:10
share of each moment's tokens still held:
none [ .:-=+*#%@] all, ~ no frames
a whole picture is taken to have 1 x 10 tokens, like the largest
of which something is left
shallow layers remember back to 01:00:01
middle layers remember back to 01:00:01
deep layers remember back to 01:00:01
a row is the mean of up to 6 neighbouring layers of one role
"""
    )


@pytest.mark.parametrize(("layers", "height"), [(28, 24), (64, 24), (80, 24), (80, 40)])
def test_many_layers_fit_the_terminal(layers: int, height: int) -> None:
    memory = made([[n % 11] * 40 for n in range(layers)], folded=100)
    lines = printed(sheet(memory, Answered(QUESTION, 3.0, (Moment(0, 1, 0.5),))), 80, height).splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= 80
    assert re.search(r"a row is the mean of up to \d+ neighbouring layers of one role", " ".join(lines))


@pytest.mark.parametrize(("system", "held", "cell"), [("truecolor", 10, "48;2;252;230;70"), ("256", 5, "48;5;30")])
def test_the_map_in_colours(system: str, held: int, cell: str) -> None:
    """Of different colours, since rich remembers how it wrote one."""
    drawn = printed(sheet(made([[held] * 4] * 4)), 80, 24, color_system=system, force_terminal=True)
    assert drawn.count(f"\x1b[{cell}m ") > 4 * 40
    assert "@" not in drawn


@pytest.mark.parametrize("options", [{"color_system": "standard"}, {"color_system": "truecolor", "no_color": True}])
def test_without_enough_colours_it_is_characters(options: dict[str, Any]) -> None:
    drawn = printed(sheet(made([[10] * 4] * 4)), 80, 24, force_terminal=True, **options)
    assert "@@@@" in drawn
    assert "\x1b[48" not in drawn


def test_a_figure_shows_the_shares_as_colours() -> None:
    held = [[0, 3, 10, 10], [5, 5, 0, 1]]
    answered = Answered(QUESTION, 3.0, (Moment(1, 2, 0.5),))
    drawn = ElementTree.fromstring(svg(Figure(sheet(made(held), answered))))
    boxes = [box.attrib for box in drawn if box.tag.endswith("rect")]
    step = MAP_WIDTH / 4

    def seen(row: int, column: int) -> str:
        x, y = LEFT + (column + 0.5) * step, TOP + (row + 0.5) * 18
        *_, seen_last = (
            box for box in boxes
            if 0 < x - float(box["x"]) < float(box["width"]) and 0 < y - float(box["y"]) < float(box["height"])
        )  # fmt: skip
        return seen_last["fill"]

    for row, counts in enumerate(held):
        assert [seen(row, column) for column in range(4)] == [in_hex(colour(count / 10)) for count in counts]
    marks = [box for box in boxes if box["height"] == "6"]
    assert [(float(box["x"]), float(box["width"])) for box in marks] == [(LEFT + step, step)]
    texts = [text.text for text in drawn.iter() if text.tag.endswith("text")]
    assert {"session 1 of film.mp4", "middle", "deep", "00:00:02", "evidence"} <= set(texts)


def test_no_paper_shows_between_the_boxes_of_a_map() -> None:
    held = np.random.default_rng(0).integers(0, 11, (36, 64)).tolist()
    figure = Figure(sheet(made(held)))
    paper, *boxes = (
        [float(box.attrib[name]) for name in ("x", "y", "width", "height")]
        for box in ElementTree.fromstring(svg(figure)) if box.tag.endswith("rect")
    )  # fmt: skip
    for scale in np.linspace(0.5, 2, 31):  # as wide as a window, with every edge on a pixel
        seen = np.zeros((round(paper[3] * scale), round(paper[2] * scale)), dtype=bool)
        for x, y, width, height in boxes:
            seen[round(y * scale) : round((y + height) * scale), round(x * scale) : round((x + width) * scale)] = True
        corner, end = (TOP, LEFT), (figure.bottom, LEFT + MAP_WIDTH)
        rows, columns = (slice(math.ceil(a * scale), math.floor(b * scale)) for a, b in zip(corner, end, strict=True))
        assert seen[rows, columns].all(), scale


class Reader(HTMLParser):
    """Tags that are open, whatever an attribute could fetch, and the texts of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "input"):
            self.open.append(tag)
        self.fetched += [
            value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "action", "data")
        ]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def test_a_page_is_whole_and_fetches_nothing() -> None:
    nasty = "</title></script><script>alert(1)</script>&amp;"
    memory = made([[0, 3, 10, 10], [5, 5, 0, 1]])
    text = page(Sheet(memory, nasty, nasty, Answered(f"</script>{nasty}", 3.0, (Moment(0, 1, 0.5),))))
    reader = Reader(text)
    assert (reader.open, reader.fetched, len(reader.scripts)) == ([], [], 2)
    assert not re.search(r"url\(|@import|//(?!www\.w3\.org/2000/svg)", text)
    assert "alert(1)</script>" not in text
    data = json.loads(reader.scripts[0])
    assert [moment["kept"] for moment in data["moments"]] == [
        [[], [0, 1, 2, 3, 4]], [[0, 1, 2], [0, 1, 2, 3, 4]], [list(range(10)), []], [list(range(10)), [0]],
    ]  # fmt: skip
    assert {moment["jpeg"] for moment in data["moments"]} == {None}


# the command


def test_the_map_of_what_was_watched(run: Run, film: Path) -> None:
    session = SessionStore().latest()
    config = MemoryConfig(budget=24, chunk_frames=4)
    wanted = map_of_state(session.load(session.checkpoints[-1]), config)
    code, out, _ = run("memory", "--json")
    record = json.loads(out)
    assert code == 0
    assert {"policy": "hermes", "budget": 24, "saved_at": 15.0, "frames": 16, "session": session.info.id}.items() <= (
        record.items()
    )
    assert record["visual_tokens_seen"] == 16 * 4
    assert record["visual_tokens_counted"]
    assert [layer["shares"] for layer in record["layers"]] == wanted.shares(16).tolist()
    assert [layer["summarised"] for layer in record["layers"]] == [layer.folded for layer in wanted.layers]
    assert all(layer["visual_tokens"] + layer["summary_tokens"] == 24 for layer in record["layers"])
    logged = session.log().answers[-1]
    (drawn_on,) = logged["evidence"]
    assert record["evidence"] == {
        "question": QUESTION, "at": 13.0, "moments": [{**drawn_on, "share": pytest.approx(drawn_on["share"], abs=1e-6)}],
    }  # fmt: skip
    code, out, told = run("memory")
    assert (code, told) == (0, "")
    assert out.startswith(f"session {session.info.id} (door) of {film}\n")
    assert "\nhermes, budget 24; 16 frames, saved at 00:00:15.000\n" in out
    assert out.isascii()


def test_an_earlier_memory(run: Run, film: Path) -> None:
    saved = [checkpoint.time_s for checkpoint in SessionStore().latest().checkpoints]
    for at, time_s in (("00:14.9", saved[-2]), ("50%", max(s for s in saved if s <= 7.5)), (f"{saved[0]}", saved[0])):
        record = json.loads(run("memory", "--session", "door", "--at", at, "--json")[1])
        assert record["saved_at"] == time_s
        assert (record["evidence"] is None) == (at != "00:14.9")  # what was answered later is not laid over it
    code, out, told = run("memory", "--at", "00:01")
    assert (code, out) == (2, "")
    assert "hint: the first was saved at 00:00:03.000" in told
    assert run("memory", "--at", "soon")[0] == 2


def test_pictures_of_every_kind(run: Run, film: Path, tmp_path: Path) -> None:
    for suffix in ("png", "SVG", "html"):
        code, out, told = run("memory", "-o", tmp_path / f"map.{suffix}")
        assert (code, out) == (0, "")
        assert "saved at 00:00:15.000" in told
    with Image.open(tmp_path / "map.png") as image:
        assert image.size[0] == 1760
        middle = round((LEFT + MAP_WIDTH - 5) * 2), round((TOP + 3) * 2)  # a shallow layer holds the newest frame
        assert image.getpixel(middle) == colour(1.0)
    ElementTree.fromstring((tmp_path / "map.SVG").read_text())
    reader = Reader((tmp_path / "map.html").read_text())
    moments = json.loads(reader.scripts[0])["moments"]
    jpegs = [Image.open(io.BytesIO(jpeg_of(moment["jpeg"]))) for moment in moments]
    assert [(jpeg.format, jpeg.size) for jpeg in jpegs] == [("JPEG", (96, 96))] * 16
    assert (reader.open, reader.fetched) == ([], [])


def jpeg_of(link: str) -> bytes:
    kind, _, encoded = link.partition(",")
    assert kind == "data:image/jpeg;base64"
    return base64.b64decode(encoded)


def test_a_page_without_its_video(run: Run, film: Path, tmp_path: Path) -> None:
    info = SessionStore().latest().folder / "session.json"
    info.write_text(info.read_text().replace('"size": ', '"size": 1'))
    code, _, told = run("memory", "-o", tmp_path / "map.html")
    assert code == 0
    assert "the page has no frames" in told
    assert "has changed" in told
    moments = json.loads(Reader((tmp_path / "map.html").read_text()).scripts[0])["moments"]
    assert {moment["jpeg"] for moment in moments} == {None}


def test_no_file_is_overwritten_by_mistake(run: Run, film: Path, tmp_path: Path) -> None:
    there = tmp_path / "map.svg"
    there.write_text("mine")
    code, _, told = run("memory", "-o", there)
    assert (code, there.read_text()) == (2, "mine")
    assert "is there already" in told
    assert run("memory", "-o", there, "--force")[0] == 0
    assert there.read_text().startswith("<svg")
    for bad in ("map.gif", "map", ".svg"):
        assert run("memory", "-o", tmp_path / bad)[0] == 2
        assert not (tmp_path / bad).exists()
    assert run("memory", "-o", tmp_path / "none" / "map.svg")[0] == 2
    assert run("memory", "-o", tmp_path / "other.svg", "--json")[0] == 2


def test_without_a_session_there_is_no_map(run: Run) -> None:
    code, out, told = run("memory")
    assert (code, out) == (2, "")
    assert "there is no session" in told


def test_sessions_that_show_nothing(run: Run, film: Path) -> None:
    with SessionStore().create(SourceIdentity.of(str(film)), "tiny", None, SessionStore().latest().info.settings) as empty:
        code, out, told = run("memory")
        assert (code, out) == (2, "")
        assert "no memory of session" in told
        saved = empty.save(state(3))  # no cache of ours
        code, out, told = run("memory", "--source", film)
        assert (code, out) == (3, "")
        assert "is damaged" in told
        saved.path.write_bytes(saved.path.read_bytes()[:100])
        assert run("memory")[0] == 3
    with SessionStore().create(SourceIdentity.of("film"), "tiny", None, {"fps": 1.0}):
        code, _, told = run("memory")
        assert (code, "lacks its settings" in told) == (3, True)


def test_the_memory_of_a_film_that_is_playing(model: VideoModel, film: Path) -> None:
    engine = engine_with(model, "fifo")
    player = Player(Film.open(str(film), 1.0, "start", "end"), engine, Sampling(), "fifo", Choice("tiny", "tiny", "here"))
    *_, answer = engine.ask("What is it?")
    shown = sheet_of_player(player, answer)  # type: ignore[arg-type]
    assert "fifo, budget 50; 20 frames, up to 00:00:19.000" in printed(shown, 80, 30)
    assert "evidence: " in printed(shown, 80, 30)
    assert "evidence" not in printed(sheet_of_player(player), 80, 30)
