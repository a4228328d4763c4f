"""Training of the embedded model: schedule, simulated eviction, and a short run that learns and exports."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from hermes.tiny.architecture import (
    TOKENS_PER_FRAME,
    Architecture,
    build_model,
    load_tokenizer,
)
from hermes.tiny.render import video_frames
from hermes.tiny.training import vision_stage
from hermes.tiny.training.__main__ import parse
from hermes.tiny.training.batches import make_batch
from hermes.tiny.training.blocks import PREFIX_TOKENS, ROW_TOKENS, BlockEncoder
from hermes.tiny.training.curriculum import BatchShape, batch_shape, readout_weight, text_rate
from hermes.tiny.training.disturbance import UNDISTURBED, Disturbance, VisualTokens, draw_disturbance
from hermes.tiny.training.evaluation import clean_features
from hermes.tiny.training.eviction import (
    alive_for_questions,
    alive_for_tokens,
    draw_lives,
    life_scale,
    recency_of,
)
from hermes.tiny.training.lean_vision import encode_frames
from hermes.tiny.training.learner import Clock, Learner
from hermes.tiny.training.optimizer import LayerOptimizer
from hermes.tiny.training.processes import Processes
from hermes.tiny.training.random_frames import random_frames
from hermes.tiny.training.readouts import Readouts
from hermes.tiny.training.recipe import Recipe
from hermes.tiny.training.run import Run, train
from hermes.tiny.training.scene_pool import make_pool, pool_features
from hermes.tiny.world import MAX_SCENE_FRAMES, RandomSource

CPU = torch.device("cpu")
LAYERS = Architecture().layers


@pytest.fixture(scope="module")
def encoder() -> BlockEncoder:
    return BlockEncoder(load_tokenizer())


# ---------------------------------------------------------------- simulated eviction


def visual_tokens(videos: int, frames: int) -> VisualTokens:
    index = torch.arange(frames * TOKENS_PER_FRAME).expand(videos, -1)
    return VisualTokens(torch.zeros(videos, index.shape[1], 1), index // TOKENS_PER_FRAME, index, index)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_eviction_keeps_the_budget(share: float) -> None:
    """At the end of a long video: exactly in a sliding window, in the mean elsewhere. Deep layers keep more, since
    anchors draw long lives beside the others'."""
    tokens = visual_tokens(40, 64)
    budget = share * tokens.count
    lives = draw_lives(tokens, LAYERS, Disturbance(evict_to=share))
    seen = torch.full((40, 1), tokens.count)
    for layer, life in enumerate(lives):
        alive = alive_for_questions(life, seen, 8).float().sum(-1)
        if recency_of(layer, LAYERS) == 1:
            assert (alive - budget).abs().max() <= 1
        elif recency_of(layer, LAYERS) > 0:
            assert float(alive.mean()) == pytest.approx(budget, rel=0.05)
        else:
            assert budget <= float(alive.mean()) < 1.6 * budget


def test_what_is_evicted_stays_evicted_and_the_own_chunk_is_whole() -> None:
    tokens = visual_tokens(2, 32)
    life = draw_lives(tokens, LAYERS, Disturbance(evict_to=0.3, chunk_frames=4))[5]
    alive = alive_for_tokens(life, 4)
    chunk = 4 * TOKENS_PER_FRAME
    for token in range(tokens.count):
        start = token // chunk * chunk
        assert alive[:, token, start : token + 1].all()
        assert not alive[:, token, token + 1 :].any()
        if start:
            assert (alive[:, start - 1, :start] | ~alive[:, token, :start]).all()
    ends = torch.tensor([[8 * chunk]]).expand(2, 1) - 4 * chunk
    after_four = alive_for_questions(life, ends, 4)[:, 0]
    assert torch.equal(after_four[:, : 4 * chunk], alive[:, 4 * chunk, : 4 * chunk])
    assert not after_four[:, 4 * chunk :].any()


def test_deep_layers_prefer_anchors_and_fifo_prefers_the_newest() -> None:
    tokens = visual_tokens(20, 64)
    seen = torch.full((20, 1), tokens.count)
    deep = alive_for_questions(draw_lives(tokens, LAYERS, Disturbance(evict_to=0.25))[-1], seen, 8)[:, 0].float()
    assert deep[tokens.is_anchor].mean() > 2 * deep[~tokens.is_anchor].mean()
    oldest_first = Disturbance(evict_to=0.25, oldest_first=True)
    for life in draw_lives(tokens, LAYERS, oldest_first):
        alive = alive_for_questions(life, seen, 8)[:, 0]
        assert (alive.long().diff(dim=1) >= 0).all()


def test_life_scale_spends_the_budget() -> None:
    for budget, count, spread in ((30.0, 200, 0.4), (64.0, 128, 1.0), (100.0, 1000, 0.5), (50.0, 60, 0.0)):
        scale = life_scale(budget, count, spread)
        draws = (torch.arange(100_000) + 0.5) / 100_000
        lives = scale / draws**spread
        alive = sum(float((lives > age + 0.5).float().mean()) for age in range(count))
        assert alive == pytest.approx(budget, rel=0.02)


# ---------------------------------------------------------------- recipe, schedule, optimizer


def test_flags_are_the_recipe() -> None:
    assert parse(["--out", "somewhere"]) == Run(Path("somewhere"))
    run = parse(["--out", "x", "--betas", "0.8", "0.9", "--minutes", "5", "--evict-chunks", "4", "--processes", "2"])
    assert run.recipe == replace(Recipe(), betas=(0.8, 0.9), minutes=5.0, evict_chunks=(4,))
    assert run.processes == 2


@pytest.mark.parametrize(
    "mistake", [["--resume"], ["--init", "nowhere"], ["--fresh-text"], ["--processes", "0"], ["--minutes", "soon"]]
)
def test_mistakes_are_told(mistake: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--out", str(tmp_path), *mistake])
    assert ended.value.code == 2
    assert mistake[0] in capsys.readouterr().err


def test_curriculum_goes_from_short_to_long_within_the_token_budget() -> None:
    recipe, rng = Recipe(), random.Random(0)
    drawn = {progress: [batch_shape(progress, recipe, rng) for _ in range(300)] for progress in (0.0, 0.2, 0.4, 0.9)}
    longest = {progress: max(shape.frames for shape in shapes) for progress, shapes in drawn.items()}
    assert longest == {0.0: 8, 0.2: 16, 0.4: 32, 0.9: 128}
    for shapes in drawn.values():
        for shape in shapes:
            tokens = PREFIX_TOKENS + shape.frames * TOKENS_PER_FRAME + shape.rows * ROW_TOKENS
            assert shape.videos == 1 or shape.videos * tokens < 1.5 * recipe.tokens_per_step


def test_rates_rise_hold_and_fall() -> None:
    recipe = Recipe()
    assert text_rate(0, 0.0, recipe) == pytest.approx(recipe.rate / recipe.warmup)
    assert text_rate(5000, 0.5, recipe) == recipe.rate
    assert text_rate(5000, 0.75, recipe) == pytest.approx(recipe.rate * (0.5 * 0.98 + 0.02))
    assert text_rate(5000, 1.0, recipe) == pytest.approx(recipe.rate * 0.02)
    assert [readout_weight(p, recipe) for p in (0.0, 0.4, 0.9)] == pytest.approx([0.5, 0.25, 0.05])


def test_disturbances_come_as_often_as_the_recipe_says() -> None:
    recipe, rng = Recipe(), random.Random(0)
    assert draw_disturbance(rng, 0.39, recipe) == UNDISTURBED
    drawn = [draw_disturbance(rng, 0.5, recipe) for _ in range(4000)]
    assert sum(d.drop > 0 for d in drawn) / 4000 == pytest.approx(0.25, abs=0.03)
    assert sum(d.evict_to > 0 for d in drawn) / 4000 == pytest.approx(0.25, abs=0.03)
    assert sum(d.oldest_first for d in drawn) / 4000 == pytest.approx(0.25 * 0.15, abs=0.01)
    assert sum(d.max_offset > 0 for d in drawn) / 4000 == pytest.approx(0.35, abs=0.03)
    assert not any(d.drop and d.evict_to for d in drawn)


def test_optimizer_decays_every_matrix_alike_and_steps_as_large_as_asked() -> None:
    """Without a gradient there is only decay; an orthogonal step of an n x m matrix has norm sqrt(min(n, m))."""
    torch.manual_seed(1)
    model = build_model(Architecture(), load_tokenizer()).model.language_model
    recipe = Recipe(clip=1e9)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    matrix, norm = model.layers[3].mlp.up_proj.weight, model.layers[3].input_layernorm.weight
    old_matrix, old_norm, old_table = (p.detach().clone() for p in (matrix, norm, model.embed_tokens.weight))
    optimizer = LayerOptimizer([model], [], recipe)
    optimizer.step(1e-2)
    step = matrix.detach() - old_matrix * (1 - 1e-2 * recipe.weight_decay)
    size = 1e-2 * recipe.matrix_gain * 0.2 * math.sqrt(max(matrix.shape)) * math.sqrt(min(matrix.shape))
    assert float(step.norm()) == pytest.approx(size, rel=0.25)  # five iterations orthogonalise about so well
    assert torch.allclose((norm.detach() - old_norm).abs(), torch.tensor(1e-2), rtol=1e-3)  # Adam's first step
    decayed = old_table * (1 - 1e-2 * recipe.weight_decay)
    assert torch.allclose((model.embed_tokens.weight.detach() - decayed).abs(), torch.tensor(1e-2), rtol=1e-2)


def test_clock_stretches_over_its_minutes() -> None:
    time = iter([0.0, 30.0, 90.0, 1000.0])
    clock = Clock(2.0, start=0.5, spent_s=30.0, now=lambda: next(time))
    assert [clock.progress, clock.progress, clock.progress] == [0.75, 1.0, 1.0]
    assert Clock(0.0).progress == 1.0


# ---------------------------------------------------------------- training


def test_pool_features_are_those_of_its_scenes(encoder: BlockEncoder) -> None:
    model = build_model(Architecture(), load_tokenizer())
    pool = make_pool(5, seed=3)
    assert [scene.pool_index for scene in pool] == list(range(5))
    table = pool_features(model, pool, CPU, Processes())
    assert table.shape == (5 * MAX_SCENE_FRAMES, TOKENS_PER_FRAME, Architecture().hidden)
    drawn = make_batch(RandomSource(1), BatchShape(8, 1, 1), encoder, pool)
    with torch.no_grad():
        clean = clean_features(model, drawn, CPU)[0]
    taken = table[drawn.tracks.pool_frame[0]]
    similarity = torch.nn.functional.cosine_similarity(taken.flatten(1), clean.flatten(1))
    others = torch.nn.functional.cosine_similarity(taken.flatten(1), clean.roll(4, 0).flatten(1))
    assert similarity.min() > others.max()  # grain apart, they are the same frames


def test_the_vision_stage_learns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fifteen steps of small batches, by a clock that counts steps."""

    def counting(minutes: float) -> Clock:
        ticks = iter(range(1000))
        return Clock(15 / 60, now=lambda: float(next(ticks)))

    monkeypatch.setattr(vision_stage, "Clock", counting)
    model = build_model(Architecture(), load_tokenizer())
    recipe = Recipe(vision_batch=48, vision_warmup=5, log_every=16)
    learner = Learner(model, Readouts(Architecture()), recipe, CPU, Processes(), tmp_path)
    pixels, labels = random_frames(64, CPU)
    with torch.no_grad():
        before = learner.readouts.frame.loss(encode_frames(model, pixels)[0], labels)
    vision_stage.train_vision(learner)
    with torch.no_grad():
        tokens, _ = encode_frames(model, pixels)
        after = learner.readouts.frame.loss(tokens, labels)
    assert after < 0.9 * before
    assert float(tokens.pow(2).mean().sqrt()) == pytest.approx(0.5, rel=0.2)  # leaves features of a known size


def test_random_frames_show_what_their_labels_say() -> None:
    pixels, labels = random_frames(50, CPU)
    assert pixels.shape == (50, 3, 48, 48)
    assert pixels.abs().max() <= 1
    assert 1 <= labels.present.sum(1).float().mean() <= 2
    assert ((labels.xy > 0.17) == labels.present[..., None]).all()
    colors = torch.tensor([[0.87, 0.12, 0.13], [0.16, 0.66, 0.24]])  # red, green
    for number, color in ((0, 0), (3, 1)):
        for frame in labels.present[:, number].nonzero()[:, 0].tolist():
            if labels.current[frame, number] != 6:  # a ring is hollow
                x, y = (labels.xy[frame, number] * 48).long().tolist()
                assert ((pixels[frame, :, y, x] + 1) / 2 - colors[color]).abs().max() < 0.3


TOY = Recipe(
    pool_scenes=24,
    vision_minutes=0,
    tokens_per_step=500,
    warmup=5,
    max_steps=20,
    log_every=5,
    evaluation_frames=(8,),
    evaluation_videos=2,
    evaluation_questions=4,
)


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    train(Run(folder, recipe=TOY))
    return folder


def test_a_short_run_learns(toy_run: Path) -> None:
    lines = [json.loads(line) for line in (toy_run / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [5, 10, 15, 20]
    assert lines[-1]["loss"] < 0.7 * lines[0]["loss"]
    measured = json.loads((toy_run / "evaluation.json").read_text())
    assert sum(entry["count"] for entry in measured["right"]["8"].values()) == 8


def test_the_exported_folder_answers_through_the_auto_classes(toy_run: Path, encoder: BlockEncoder) -> None:
    model = AutoModelForImageTextToText.from_pretrained(toy_run / "model", dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(toy_run / "model")
    drawn = make_batch(RandomSource("export"), BatchShape(8, 1, 1), encoder, training=False)
    message = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": "What is on screen now?"}]}]
    prompt = processor.apply_chat_template(message, add_generation_prompt=True)
    inputs = processor(text=prompt, videos=[video_frames(drawn.videos[0], 48)], return_tensors="pt")
    answer = model.generate(**inputs, max_new_tokens=8)[0, inputs["input_ids"].shape[1] :]
    assert 1 <= len(answer) <= 8
    stored = AutoModelForImageTextToText.from_pretrained(toy_run / "model")
    assert stored.dtype == torch.bfloat16
    assert stored.generation_config.eos_token_id == encoder.tokenizer.token_to_id("<|im_end|>")


def test_a_run_goes_on_where_it_stopped(toy_run: Path) -> None:
    saved = torch.load(toy_run / "state.pt", weights_only=True)
    assert saved["step"] == 20
    before = (toy_run / "log.jsonl").read_text().splitlines()
    train(Run(toy_run, resume=True, recipe=replace(TOY, max_steps=25)))
    (line,) = (json.loads(line) for line in (toy_run / "log.jsonl").read_text().splitlines()[len(before) :])
    assert line["step"] == 25
    assert line["loss"] < json.loads(before[0])["loss"]
    assert line["s"] > saved["elapsed_s"]


def test_a_run_can_start_from_an_exported_folder(toy_run: Path, tmp_path: Path) -> None:
    train(Run(tmp_path, init=toy_run / "model", fresh_text=True, recipe=replace(TOY, seed=1, max_steps=1)))
    given, made = (
        AutoModelForImageTextToText.from_pretrained(folder / "model", dtype=torch.float32).state_dict()
        for folder in (toy_run, tmp_path)
    )
    vision = [name for name in given if "vision_tower" in name or "projector" in name]
    assert vision
    assert all(torch.equal(given[name], made[name]) for name in vision)
    text = "model.language_model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(given[text], made[text])
