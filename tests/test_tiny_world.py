"""The world of the embedded model: the same for the same seed, and every answer right by an independent look at it."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations, groupby, pairwise
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from hermes.tiny.clip import write_clip
from hermes.tiny.questions import QUESTION_TYPES, Question, ask, sample_questions
from hermes.tiny.render import Drawing, draw_scenes, render, video_frames
from hermes.tiny.world import (
    BACKGROUNDS,
    COLORS,
    MAX_SCENE_FRAMES,
    MIN_SCENE_FRAMES,
    MOTIONS,
    SHAPES,
    RandomSource,
    Scene,
    Video,
    make_scene,
    make_video,
)

# (start, length, background, sprites), recorded when the shipped weights were trained.
RECORDED: dict[tuple[int | str, int], list[tuple[int, int, str, list[str]]]] = {
    (0, 24): [
        (0, 8, "navy", ["pink square right"]),
        (8, 7, "beige", ["green circle right"]),
        (15, 6, "brown", ["blue cross right"]),
        (21, 3, "navy", ["green cross left", "purple circle right"]),
    ],
    (7, 16): [
        (0, 4, "black", ["red star still"]),
        (4, 6, "beige", ["red triangle up", "pink square still"]),
        (10, 6, "brown", ["purple circle up"]),
    ],
    ("eval/32", 32): [
        (0, 4, "beige", ["red star up"]),
        (4, 6, "navy", ["orange cross left"]),
        (10, 4, "white", ["yellow square up", "pink star left"]),
        (14, 4, "gray", ["cyan star left"]),
        (18, 8, "navy", ["cyan triangle right"]),
        (26, 3, "black", ["cyan cross left"]),
        (29, 3, "gray", ["green square down"]),
    ],
}
RECORDED_QUESTIONS = {
    (7, 16): [
        ("describe", "describe what is happening", "A purple circle is moving up on a brown background.", 16),
        ("now", "What is on screen?", "A purple circle.", 16),
        ("bg_past", "What was the background color behind the pink square?", "It was beige.", 16),
    ],
    ("eval/32", 32): [
        ("color_now", "What colour is the star?", "It is red.", 3),
        ("before", "What did you see before the cyan star?", "A yellow square and a pink star.", 24),
        ("color_past", "What colour was the triangle", "It was cyan.", 32),
    ],
}


def described(video: Video) -> list[tuple[int, int, str, list[str]]]:
    def named(scene: Scene) -> list[str]:
        return [f"{COLORS[s.color]} {SHAPES[s.shape]} {MOTIONS[s.motion]}" for s in scene.sprites]

    return [(scene.start, scene.length, BACKGROUNDS[scene.background], named(scene)) for scene in video.scenes]


@pytest.mark.parametrize(("seed", "frames"), list(RECORDED))
def test_a_seed_gives_the_recorded_video_and_questions(seed: int | str, frames: int) -> None:
    rng = RandomSource(seed)
    video = make_video(frames, rng)
    assert described(video) == RECORDED[seed, frames]
    asked = [(q.type, q.text, q.answer, q.frames_seen) for q in sample_questions(video, rng, 3)]
    assert asked == RECORDED_QUESTIONS.get((seed, frames), asked)


def test_a_seed_gives_the_recorded_numbers() -> None:
    last = make_video(24, RandomSource(0)).scenes[-1].sprites[-1]
    numbers = [last.path.x[2], last.path.y[2], last.path.radius, last.path.rotation, *last.rgb]
    recorded = [0.393825, 0.206552, 0.224601, 0.010943, 0.564458, 0.177356, 0.70074]
    assert np.allclose(numbers, recorded, atol=1e-6)


@pytest.mark.parametrize("frames", [2, 9, 40, 200])
def test_scenes_follow_each_other_without_a_gap(frames: int) -> None:
    for seed in range(20):
        video = make_video(frames, RandomSource(seed))
        assert video.frames == frames
        assert [scene.start for scene in video.scenes] == [0, *(scene.end for scene in video.scenes[:-1])]
        assert all(MIN_SCENE_FRAMES <= scene.length <= MAX_SCENE_FRAMES for scene in video.scenes) or frames < 3
        assert all(before.background != after.background for before, after in pairwise(video.scenes))
        for index, scene in enumerate(video.scenes):
            assert (video.scene_at[scene.start : scene.end] == index).all()


def test_no_object_comes_twice_while_others_are_left() -> None:
    for seed in range(20):
        keys = [sprite.key for scene in make_video(64, RandomSource(seed)).scenes for sprite in scene.sprites]
        assert len(keys) <= 36
        assert len(set(keys)) == len(keys)


def test_sprites_keep_apart_stay_inside_and_move_as_they_say() -> None:
    rng = RandomSource(3)
    pairs = 0
    for scene in (make_scene(rng) for _ in range(400)):
        for one, other in combinations(scene.sprites, 2):
            pairs += 1
            assert one.color != other.color
            assert one.shape != other.shape
            for ax, ay, bx, by in zip(one.path.x, one.path.y, other.path.x, other.path.y, strict=True):
                assert math.dist((ax, ay), (bx, by)) >= 0.9 * (one.path.radius + other.path.radius) - 1e-6
        for sprite in scene.sprites:
            x, y = sprite.path.x, sprite.path.y
            assert 0.19 - 1e-6 <= min(x.min(), y.min())
            assert max(x.max(), y.max()) <= 0.81 + 1e-6
            step = (float(x[1] - x[0]), float(y[1] - y[0]))
            heading = {"still": (0, 0), "left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
            assert (np.sign(step[0]), np.sign(step[1])) == heading[MOTIONS[sprite.motion]]
            assert sprite.motion == 0 or max(map(abs, step)) >= 0.056 - 1e-6
    assert pairs > 50


def test_a_video_from_a_pool_shows_its_scenes() -> None:
    rng = RandomSource(5)
    pool = [make_scene(rng) for _ in range(60)]
    video = make_video(48, RandomSource(1), pool)
    assert all(any(scene.sprites is entry.sprites for entry in pool) for scene in video.scenes)


class Witness:
    """Sees the video frame by frame and answers from that alone: scenes are told apart by their background."""

    def __init__(self, video: Video, frames_seen: int) -> None:
        frames = []
        for scene in video.scenes:
            for age in range(scene.length):
                shown = {
                    (COLORS[s.color], SHAPES[s.shape]): (s.path.x[age], s.path.y[age], MOTIONS[s.motion])
                    for s in scene.sprites
                }
                frames.append((BACKGROUNDS[scene.background], shown))
        runs = [list(run) for _, run in groupby(frames[:frames_seen], key=lambda frame: frame[0])]
        self.backgrounds = [run[0][0] for run in runs]
        self.scenes = [set(run[0][1]) for run in runs]
        self.last = frames[frames_seen - 1][1]

    def all_together(self) -> list[tuple[str, str]]:
        return [thing for scene in self.scenes for thing in scene]

    def scene_of(self, thing: tuple[str, str]) -> int:
        (number,) = (i for i, scene in enumerate(self.scenes) if thing in scene)
        return number

    def answer(self, question: Question) -> str:
        things: list[tuple[str, str]] = re.findall(rf"({'|'.join(COLORS)}) ({'|'.join(SHAPES)})", question.text)
        color = next((word for word in COLORS if re.search(rf"\b{word}\b", question.text)), None)
        shape = next((word for word in SHAPES if re.search(rf"\b{word}\b", question.text)), None)
        answers: dict[str, Callable[[], str]] = {
            "now": lambda: told(self.scenes[-1]),
            "describe": self._describe,
            "color_now": lambda: f"It is {self._only(self.last, None, shape)[0]}.",
            "shape_now": lambda: f"It is a {self._only(self.last, color, None)[1]}.",
            "where_now": lambda: f"It is at the {place(*self.last[self._only(self.last, color, shape)][:2])}.",
            "motion_now": lambda: f"It is {doing(self.last[self._only(self.last, color, shape)][2])}.",
            "bg_now": lambda: f"It is {self.backgrounds[-1]}.",
            "count_now": lambda: {1: "One object.", 2: "Two objects."}[len(self.last)],
            "first": lambda: told(self.scenes[0]),
            "prev": lambda: told(self.scenes[-2]),
            "before": lambda: told(self.scenes[self.scene_of(things[0]) - 1]),
            "after": lambda: told(self.scenes[self.scene_of(things[0]) + 1]),
            "color_past": lambda: f"It was {self._only(self.all_together(), None, shape)[0]}.",
            "shape_past": lambda: f"It was a {self._only(self.all_together(), color, None)[1]}.",
            "bg_past": lambda: f"It was {self.backgrounds[self.scene_of(things[0])]}.",
            "appear": lambda: "Yes." if things[0] in self.all_together() else "No.",
            "order": lambda: f"The {' '.join(sorted(things, key=self.scene_of)[0])}.",
            "narrative": self._narrate,
        }
        return answers[question.type]()

    def _only(self, among: object, color: str | None, shape: str | None) -> tuple[str, str]:
        assert isinstance(among, (dict, list))
        (found,) = (thing for thing in among if color in (None, thing[0]) and shape in (None, thing[1]))
        assert isinstance(found, tuple)
        return found

    def _describe(self) -> str:
        parts = [f"{article(thing)} is {doing(self.last[thing][2])}" for thing in in_order(set(self.last))]
        return capital(" and ".join(parts)) + f" on a {self.backgrounds[-1]} background."

    def _narrate(self) -> str:
        return capital(", then ".join(told(scene)[:-1].replace("A", "a", 1) for scene in self.scenes[-4:])) + "."


def in_order(things: set[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(things, key=lambda thing: COLORS.index(thing[0]))


def article(thing: tuple[str, str]) -> str:
    return ("an " if thing[0][0] in "aeiou" else "a ") + " ".join(thing)


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def told(things: set[tuple[str, str]]) -> str:
    return capital(" and ".join(article(thing) for thing in in_order(things))) + "."


def doing(motion: str) -> str:
    return "staying still" if motion == "still" else f"moving {motion}"


def place(x: float, y: float) -> str:
    assert all(abs(value - edge) >= 0.03 - 1e-6 for value in (x, y) for edge in (0.39, 0.61))
    row = "top" if y < 0.39 else "bottom" if y > 0.61 else ""
    column = "left" if x < 0.39 else "right" if x > 0.61 else ""
    return f"{row} {column}".strip() or "center"


@pytest.mark.parametrize("type_name", list(QUESTION_TYPES))
def test_answers_are_what_a_witness_says(type_name: str) -> None:
    answers = set()
    for seed in range(25):
        rng = RandomSource(f"witness/{seed}")
        video = make_video((12, 20, 40)[seed % 3], rng)
        questions = sample_questions(video, rng, 8, [type_name], vary=False)
        assert questions
        for question in questions:
            assert question.answer == Witness(video, question.frames_seen).answer(question), question
            answers.add(question.answer)
    assert len(answers) >= 2


@pytest.mark.parametrize("type_name", list(QUESTION_TYPES))
def test_evidence_is_where_the_answer_is_seen(type_name: str) -> None:
    """A scene's frames also tell what came just before it, so "before" and "prev" point at the scene after."""
    before = 1 if type_name in ("prev", "before") else 0
    for seed in range(8):
        rng = RandomSource(f"evidence/{seed}")
        video = make_video(40, rng)
        for question in sample_questions(video, rng, 10, [type_name], vary=False):
            numbers = [int(video.scene_at[start]) for start, _ in question.evidence]
            assert [(video.scenes[n].start, video.scenes[n].end) for n in numbers] == list(question.evidence)
            assert all(video.scenes[number].start < question.frames_seen for number in numbers)
            if question.group == "realtime" or question.answer == "No.":
                assert not question.evidence
                continue
            shown = [sprite.key for n in numbers for sprite in video.scenes[n - before].sprites]
            in_answer = re.findall(rf"({'|'.join(COLORS)}) ({'|'.join(SHAPES)})", question.answer)
            if in_answer:
                assert {(COLORS[c], SHAPES[s]) for c, s in shown} >= set(in_answer)
            else:
                words = {word for c, s in shown for word in (COLORS[c], SHAPES[s])}
                words |= {BACKGROUNDS[video.scenes[n].background] for n in numbers} | {"Yes"}
                assert any(word in question.answer for word in words)


def test_the_two_objects_of_an_order_question_are_mentioned_in_its_order() -> None:
    rng = RandomSource("mentions")
    video = make_video(48, rng)
    for question in sample_questions(video, rng, 20, ["order"], vary=False):
        things = re.findall(rf"({'|'.join(COLORS)}) ({'|'.join(SHAPES)})", question.text)
        for (color, shape), (start, _) in zip(things, question.mentions, strict=True):
            keys = [sprite.key for sprite in video.scenes[video.scene_at[start]].sprites]
            assert (COLORS.index(color), SHAPES.index(shape)) in keys


def test_nothing_after_the_question_changes_it() -> None:
    long = make_video(60, RandomSource(11))
    cut = next(scene.start for scene in long.scenes if scene.start > 20)
    short = Video(tuple(scene for scene in long.scenes if scene.start < cut))
    for type_name in QUESTION_TYPES:
        asked = [ask(type_name, video, cut, RandomSource(type_name)) for video in (long, short)]
        assert asked[0] == asked[1]


def test_careless_typing_only_drops_capitals_and_punctuation() -> None:
    video = make_video(32, RandomSource("typing"))
    careless = 0
    for seed in range(400):
        type_name = list(QUESTION_TYPES)[seed % len(QUESTION_TYPES)]
        typed, plain = (ask(type_name, video, 32, RandomSource(seed), vary) for vary in (True, False))
        if typed is None or plain is None:
            assert typed is plain
            continue
        text = plain.text
        assert typed.text in {text, text.lower(), text.rstrip("?."), text.lower().rstrip("?.")}
        assert typed.answer == plain.answer
        if len(text) > 90:  # a guidance prompt is typed by nobody
            assert typed.text == text
        careless += typed.text != text
    assert 0.25 < careless / 400 < 0.45


def test_sampling_keeps_to_the_types_and_moments_asked_for() -> None:
    video = make_video(30, RandomSource(2))
    questions = sample_questions(video, RandomSource(3), 40, ["now", "before"], at_end=0.0)
    assert len(questions) == 40
    assert {question.type for question in questions} == {"now", "before"}
    moments = {question.frames_seen for question in questions}
    assert len(moments) > 10
    assert min(moments) >= 2
    at_end = sample_questions(video, RandomSource(3), 40, at_end=1.0)
    assert {question.frames_seen for question in at_end} == {30}


def test_pixels_have_the_colours_of_the_scene() -> None:
    size, shapes_seen = 120, set()
    for seed in range(25):
        video = make_video(8, RandomSource(seed))
        frames = video_frames(video, size)
        assert frames.shape == (8, size, size, 3)
        assert frames.dtype == np.uint8
        for scene in video.scenes:
            for age in range(scene.length):
                picture = frames[scene.start + age].astype(float) / 255
                background = scene.background_rgb
                assert np.allclose(picture[0, 0], background, atol=1 / 255)
                for sprite in scene.sprites:
                    row, column = (int(value[age] * size) for value in (sprite.path.y, sprite.path.x))
                    expected = background if SHAPES[sprite.shape] == "ring" else sprite.rgb
                    assert np.allclose(picture[row, column], expected, atol=1 / 255)
                    shapes_seen.add(sprite.shape)
    assert len(shapes_seen) == len(SHAPES)


def test_shapes_have_the_area_geometry_gives_them() -> None:
    size, radius = 400, 0.4
    sprites = torch.zeros(len(SHAPES), 2, 9)
    sprites[:, 0] = torch.tensor([1, 0, 1, 1, 1, 0.5, 0.5, radius, 0.3])
    sprites[:, 0, 1] = torch.arange(len(SHAPES))
    covered = render(Drawing(sprites, torch.zeros(len(SHAPES), 3)), size)[:, 0].sum((1, 2)) / size**2 / radius**2
    expected = {
        "circle": math.pi * 0.75**2,
        "square": 1.28**2,
        "triangle": 3 * math.sqrt(3) / 4 * 0.86**2,
        "star": 10 * 0.5 * 0.88 * 0.36 * math.sin(math.pi / 5),
        "cross": 2 * 1.56 * 0.5 - 0.5**2,
        "ring": math.pi * (0.76**2 - 0.40**2),
    }
    assert covered.tolist() == pytest.approx([expected[shape] for shape in SHAPES], rel=0.01)


def test_rendering_does_not_depend_on_what_is_drawn_with_it() -> None:
    scenes = make_video(16, RandomSource(4)).scenes
    together = render(draw_scenes(scenes), 48)
    alone = torch.cat([render(draw_scenes((scene,)), 48) for scene in scenes])
    assert torch.equal(together, alone)


def test_a_clip_shows_every_frame_for_one_second(tmp_path: Path) -> None:
    video = make_video(5, RandomSource(9))
    write_clip(video, tmp_path / "clip.mp4", fps=5)
    with av.open(str(tmp_path / "clip.mp4")) as container:
        frames = list(container.decode(video=0))
    assert [frame.time for frame in frames] == pytest.approx([index / 5 for index in range(25)])
    expected = video_frames(video, 336).repeat(5, 0).astype(float)
    shown = np.stack([frame.to_ndarray(format="rgb24") for frame in frames]).astype(float)
    error = np.abs(shown - expected).mean((1, 2, 3))
    assert error.max() < 8  # of 255: what compression costs; a wrong scene is off by far more
    write_clip(video, tmp_path / "again.mp4", fps=5)
    assert (tmp_path / "clip.mp4").read_bytes() == (tmp_path / "again.mp4").read_bytes()


def test_the_world_needs_no_torch() -> None:
    code = (
        "import sys, hermes.tiny, hermes.tiny.questions; hermes.tiny.checkpoint_folder(); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
