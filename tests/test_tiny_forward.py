"""The lean forward of the embedded model's training equals the model's own, prompt and supervision included."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from hermes.config import GLOBAL_PROMPT
from hermes.tiny import checkpoint_folder
from hermes.tiny.architecture import (
    MAX_POSITIONS,
    TOKENS_PER_FRAME,
    Architecture,
    build_config,
    build_model,
    load_tokenizer,
)
from hermes.tiny.export import build_processor
from hermes.tiny.render import draw_scenes, render, video_frames
from hermes.tiny.training.batches import QuestionBatch, make_batch
from hermes.tiny.training.blocks import PREFIX_TOKENS, BlockEncoder
from hermes.tiny.training.curriculum import BatchShape
from hermes.tiny.training.disturbance import UNDISTURBED, Disturbance, place_tokens
from hermes.tiny.training.evaluation import clean_features
from hermes.tiny.training.forward import Prepared, prepare, run_layers, vocabulary_logits
from hermes.tiny.training.lean_decoder import LeanDecoder
from hermes.tiny.training.lean_vision import encode_frames, to_pixels
from hermes.tiny.training.readouts import Readouts
from hermes.tiny.training.supervision import FIRST_DEEP_LAYER, InnerSupervision, Weights
from hermes.tiny.world import COLORS, SHAPES, RandomSource

CPU = torch.device("cpu")
FRAMES, VIDEOS, ROWS = 12, 2, 2


@pytest.fixture(scope="module")
def tiny() -> Any:
    """A model with random weights, large enough ones for attention to differ between tokens."""
    torch.manual_seed(0)
    model = build_model(Architecture(), load_tokenizer()).eval()
    with torch.no_grad():
        for layer in model.model.language_model.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                projection.weight.mul_(3)
                projection.bias.normal_(0, 0.5)
    return model


@pytest.fixture(scope="module")
def encoder() -> BlockEncoder:
    return BlockEncoder(load_tokenizer())


@pytest.fixture(scope="module")
def batch(encoder: BlockEncoder) -> QuestionBatch:
    return make_batch(RandomSource("test"), BatchShape(FRAMES, VIDEOS, ROWS), encoder, training=False)


@pytest.fixture(scope="module")
def features(tiny: Any, batch: QuestionBatch) -> Tensor:
    with torch.no_grad():
        return clean_features(tiny, batch, CPU)


def relative_error(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


def blocks_of(batch: QuestionBatch) -> list[tuple[int, Tensor]]:
    """For every block its video and the flat places of its tokens, in the order of `batch.questions`."""
    places = torch.arange(batch.tokens.numel()).view_as(batch.tokens)
    found: list[tuple[int, Tensor]] = []
    for video in range(batch.tokens.shape[0]):
        for row in range(batch.tokens.shape[1]):
            blocks = batch.block[video, row]
            found += [(video, places[video, row][blocks == number]) for number in range(int(blocks.max()) + 1)]
    order = {int(batch.targets.at[batch.targets.question == q][0]): q for q in range(len(batch.questions))}

    def question_of(entry: tuple[int, Tensor]) -> int:
        return next(order[int(place)] for place in entry[1] if int(place) in order)

    return sorted(found, key=question_of)


def plain_forward(model: Any, batch: QuestionBatch, prepared: Prepared, video: int, places: Tensor, **options: Any) -> Any:
    """The text model's own forward over prefix, the visual tokens the block may see, and the block."""
    first = int(places[0])
    seen = prepared.visual.frame[video] < batch.frames_seen.flatten()[first]
    table, newline = model.model.language_model.embed_tokens, model.model.image_newline
    tokens = batch.tokens.flatten()[places]
    asked = torch.where((tokens == model.config.video_token_id)[:, None], newline, table(tokens))
    sequence = torch.cat((table(batch.prefix), prepared.visual.features[video][seen], asked))[None]
    context = prepared.layout.context
    positions = torch.cat(
        (
            prepared.positions[video * context :][: PREFIX_TOKENS + int(seen.sum())],
            prepared.positions[prepared.layout.context_tokens :][places],
        )
    )
    assert (positions.diff() > 0).all()
    assert int(positions[-1]) < MAX_POSITIONS
    return model.model.language_model(inputs_embeds=sequence, position_ids=positions[None], **options)


# ---------------------------------------------------------------- the model and its prompt


def test_shipped_configuration_is_the_architecture() -> None:
    shipped = json.loads((checkpoint_folder() / "config.json").read_text())
    ours = json.loads(build_config(Architecture(), load_tokenizer()).to_json_string())
    ignored = {"architectures", "dtype", "transformers_version"}
    for name in shipped.keys() - ignored:
        for field, value in shipped[name].items() if isinstance(shipped[name], dict) else [(None, shipped[name])]:
            assert (ours[name][field] if field else ours[name]) == value, (name, field)


def test_lean_vision_equals_the_models_own(tiny: Any) -> None:
    pixels = torch.rand(5, 3, 48, 48) * 2 - 1
    with torch.no_grad():
        tokens, _ = encode_frames(tiny, pixels)
        own = tiny.get_video_features(pixels[None])
    own = getattr(own, "pooler_output", own)
    own = torch.cat(list(own)) if isinstance(own, (list, tuple)) else own
    own = own.reshape(-1, tokens.shape[-1])[: 5 * TOKENS_PER_FRAME]  # some versions append the newline token
    assert relative_error(tokens.flatten(0, 1), own) < 1e-5


def test_blocks_are_the_prompt_of_the_processor(tiny: Any, encoder: BlockEncoder, batch: QuestionBatch) -> None:
    """Logits of the first answer token in the packed batch are those of the public way: template, processor, model."""
    processor = build_processor(load_tokenizer())
    shown = [video_frames(video, 48) for video in batch.videos]
    with torch.no_grad():
        pixels = processor.video_processor(videos=shown, return_tensors="pt")["pixel_values_videos"]
        drawn = torch.stack([to_pixels(render(draw_scenes(video.scenes), 48)) for video in batch.videos])
        assert (pixels - drawn).abs().max() <= 1.001 / 255  # [-1, 1] in 256 steps, rounded
        features = torch.stack([encode_frames(tiny, video)[0] for video in pixels])
        prepared = prepare(tiny, batch, features, UNDISTURBED)
        packed = vocabulary_logits(tiny, run_layers(tiny, prepared)[0])
    compared = 0
    for question, (video, places) in zip(batch.questions, blocks_of(batch), strict=True):
        if batch.tokens.flatten()[places[0]] != encoder.newline:
            continue
        message = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": question.text}]}]
        prompt = processor.apply_chat_template(message, add_generation_prompt=True)
        inputs = processor(text=prompt, videos=[shown[video][: question.frames_seen]], return_tensors="pt")
        answer = processor.tokenizer(question.answer).input_ids
        block = batch.tokens.flatten()[places].tolist()
        visual = [encoder.newline] * (question.frames_seen * TOKENS_PER_FRAME)
        assert inputs["input_ids"][0].tolist() == encoder.prefix + visual + block[: -len(answer) - 1]
        assert block[-len(answer) - 1 : -1] == answer
        with torch.no_grad():
            public = tiny(**inputs).logits[0, -1]
        assert relative_error(packed[places[-len(answer) - 2]], public) < 1e-5
        compared += 1
    assert compared >= 3


# ---------------------------------------------------------------- packed blocks


def test_packed_rows_hold_every_question_once(encoder: BlockEncoder, batch: QuestionBatch) -> None:
    assert len(blocks_of(batch)) == len(batch.questions) >= 6
    for question, (_, places) in zip(batch.questions, blocks_of(batch), strict=True):
        text = encoder.tokenizer.decode(batch.tokens.flatten()[places].tolist(), skip_special_tokens=True)
        assert text.strip() == f"{question.text}\nassistant\n{question.answer}"
        assert (batch.frames_seen.flatten()[places] == question.frames_seen).all()
        assert batch.place.flatten()[places].tolist() == list(range(len(places)))
        assert batch.tokens.flatten()[places[-1]] == encoder.tokenizer.token_to_id("<|im_end|>")


@pytest.fixture(scope="module")
def many(encoder: BlockEncoder) -> QuestionBatch:
    """A batch with every kind of question."""
    return make_batch(RandomSource("many"), BatchShape(24, 6, 4), encoder)


def test_targets_are_the_answers_and_know_where_they_are_read(encoder: BlockEncoder, many: QuestionBatch) -> None:
    targets = many.targets
    told = 0
    assert torch.equal(many.tokens.flatten()[targets.at + 1], targets.token)
    for number, question in enumerate(many.questions):
        own = targets.question == number
        assert encoder.tokenizer.decode(targets.token[own].tolist()) == question.answer
        spans = [tuple(span) for span in targets.evidence[own].tolist()]
        if question.type == "narrative":  # moves on to the next scene with every "then"
            told += len(question.evidence) > 1
            assert sorted(set(spans)) == sorted(set(question.evidence))
            assert spans == sorted(spans)
        else:
            assert set(spans) == {question.evidence[0] if question.evidence else (0, 0)}
    assert told


def test_mentions_follow_a_name_and_point_at_its_scene(encoder: BlockEncoder, many: QuestionBatch) -> None:
    """The last word before a mention names a colour or shape of its scene, or of the scene before for "after"."""
    blocks = list(zip(many.questions, blocks_of(many), strict=True))
    types = set()
    for at, (start, end) in zip(many.mentions.at.tolist(), many.mentions.evidence.tolist(), strict=True):
        question, (video, places) = next(entry for entry in blocks if at in entry[1][1].tolist())
        so_far = places[: places.tolist().index(at) + 1]
        word = encoder.tokenizer.decode(many.tokens.flatten()[so_far].tolist()).split()[-1]
        scenes = many.videos[video].scenes
        scene = next(number for number, scene in enumerate(scenes) if (scene.start, scene.end) == (start, end))
        shown = scenes[scene - (question.type == "after")].sprites
        assert word in [name for sprite in shown for name in (COLORS[sprite.color], SHAPES[sprite.shape])]
        types.add(question.type)
    assert types == {"before", "after", "color_past", "shape_past", "bg_past", "appear", "order"}


# ---------------------------------------------------------------- lean forward

DISTURBANCES = {
    "undisturbed": UNDISTURBED,
    "offset": Disturbance(max_offset=6000),
    "dropped": Disturbance(drop=0.5),
    "dropped and closed up": Disturbance(drop=0.5, compact=True),
    "dropped by frames, offset": Disturbance(drop=0.6, together=True, max_offset=3000),
    "eviction without a limit": Disturbance(evict_to=1e6),
}


@pytest.mark.parametrize("name", list(DISTURBANCES))
def test_packed_blocks_equal_the_plain_forward(name: str, tiny: Any, batch: QuestionBatch, features: Tensor) -> None:
    with torch.no_grad():
        prepared = prepare(tiny, batch, features, DISTURBANCES[name])
        packed, _ = run_layers(tiny, prepared)
        packed = tiny.model.language_model.norm(packed)
        for video, places in blocks_of(batch):
            plain = plain_forward(tiny, batch, prepared, video, places).last_hidden_state[0]
            assert relative_error(packed[places], plain[-len(places) :]) <= 1e-5


def test_positions_of_disturbed_tokens(features: Tensor) -> None:
    count = FRAMES * TOKENS_PER_FRAME
    plain = place_tokens(features, UNDISTURBED)
    assert plain.position.tolist() == [list(range(PREFIX_TOKENS, PREFIX_TOKENS + count))] * VIDEOS
    shifted = place_tokens(features, Disturbance(max_offset=6000))
    shift = shifted.position - plain.position
    assert (shift == shift[:, :1]).all()
    assert shift[0, 0] != shift[1, 0]
    dropped = place_tokens(features, Disturbance(drop=0.5))
    assert dropped.count == 16  # half of 48, in steps of 16
    assert torch.equal(dropped.position, dropped.index + PREFIX_TOKENS)
    assert torch.equal(dropped.features[1], features.flatten(1, 2)[1][dropped.index[1]])
    assert torch.equal(dropped.frame, dropped.index // TOKENS_PER_FRAME)
    closed = place_tokens(features, Disturbance(drop=0.5, compact=True))
    assert closed.position.tolist() == [list(range(PREFIX_TOKENS, PREFIX_TOKENS + 16))] * VIDEOS


def test_evicting_oldest_first_equals_a_streamed_window(tiny: Any, batch: QuestionBatch, features: Tensor) -> None:
    """Every layer alike, so the model's own forward can be given the mask that a streaming memory would have made."""
    chunk = 4 * TOKENS_PER_FRAME
    disturbance = Disturbance(evict_to=20 / (FRAMES * TOKENS_PER_FRAME), chunk_frames=4, oldest_first=True)
    with torch.no_grad():
        prepared = prepare(tiny, batch, features, disturbance)
        packed, _ = run_layers(tiny, prepared)
        packed = tiny.model.language_model.norm(packed)
        for video, places in blocks_of(batch):
            seen = int(batch.frames_seen.flatten()[places[0]]) * TOKENS_PER_FRAME
            mask = streamed_window(seen, len(places), chunk, budget=20)
            output = plain_forward(tiny, batch, prepared, video, places, attention_mask=mask[None, None])
            plain = output.last_hidden_state[0]
            assert relative_error(packed[places], plain[-len(places) :]) <= 1e-5


def streamed_window(seen: int, question: int, chunk: int, budget: int) -> Tensor:
    """Feed chunks, after each keep the tokens fewer than `budget` tokens old, then ask: who sees whom, bool."""
    length = PREFIX_TOKENS + seen + question
    mask = torch.zeros(length, length, dtype=torch.bool)
    mask[:, :PREFIX_TOKENS] = True
    kept: list[int] = []
    for start in range(0, seen, chunk):
        end = min(start + chunk, FRAMES * TOKENS_PER_FRAME)
        fed = [token for token in range(start, end) if token < seen]
        for token in fed:
            mask[PREFIX_TOKENS + token, [PREFIX_TOKENS + k for k in [*kept, *range(start, token + 1)]]] = True
        kept = [token for token in [*kept, *fed] if end - token < budget]
    mask[PREFIX_TOKENS + seen :, [PREFIX_TOKENS + token for token in kept]] = True
    own = slice(PREFIX_TOKENS + seen, length)
    mask[own, own] = True
    return mask.tril()


# ---------------------------------------------------------------- supervision


def eager_attention(model: Any, batch: QuestionBatch, prepared: Prepared, video: int, places: Tensor) -> list[Tensor]:
    """The model's own attention from the block's tokens to the visual tokens, per layer (heads, block, visual)."""
    text = model.model.language_model
    before = text.config._attn_implementation
    text.config._attn_implementation = "eager"
    try:
        weights = plain_forward(model, batch, prepared, video, places, output_attentions=True).attentions
    finally:
        text.config._attn_implementation = before
    return [layer[0, :, -len(places) :, PREFIX_TOKENS : -len(places)] for layer in weights]


@pytest.fixture(scope="module")
def watched(tiny: Any, encoder: BlockEncoder) -> tuple[QuestionBatch, Prepared, list[list[Tensor]]]:
    """A batch with a global guidance prompt, and the attention of each of its blocks."""
    for seed in range(20):
        found = make_batch(RandomSource(f"watched/{seed}"), BatchShape(16, 1, 2), encoder, training=False)
        if len(found.guidance.at) and len(found.mentions.at) > 2:
            break
    with torch.no_grad():
        prepared = prepare(tiny, found, clean_features(tiny, found, CPU), UNDISTURBED)
        attention = [eager_attention(tiny, found, prepared, video, places) for video, places in blocks_of(found)]
    return found, prepared, attention


def supervised_loss(model: Any, batch: QuestionBatch, prepared: Prepared, weights: Weights) -> float:
    readouts = Readouts(Architecture())
    supervision = InnerSupervision(LeanDecoder(model.model.language_model), readouts.text, batch, weights)
    with torch.no_grad():
        return float(run_layers(model, prepared, supervision)[1])


def test_look_loss_is_the_share_of_attention_on_the_right_anchors(
    tiny: Any, watched: tuple[QuestionBatch, Prepared, list[list[Tensor]]]
) -> None:
    batch, prepared, attention = watched
    wanted: list[tuple[int, list[int], float]] = []  # flat place, span, weight
    for at, span in zip(batch.mentions.at.tolist(), batch.mentions.evidence.tolist(), strict=True):
        wanted.append((at, span, 2.0))
    targets = batch.targets
    for at, span, weight in zip(targets.at.tolist(), targets.evidence.tolist(), targets.weight.tolist(), strict=True):
        if span != [0, 0]:
            wanted.append((at, span, weight))
    lost = spent = 0.0
    for at, (start, end), weight in wanted:
        block, (_, places) = next(
            (number, entry) for number, entry in enumerate(blocks_of(batch)) if at in entry[1].tolist()
        )
        shares = attention[block][FIRST_DEEP_LAYER][:2, places.tolist().index(at)]  # (2, visual)
        anchors = list(range(start * 4 + 3, min(end * 4, shares.shape[1]), 4))
        for head in range(2):
            lost -= weight * math.log(float(shares[head, anchors].sum()))
            spent += weight
    assert supervised_loss(tiny, batch, prepared, Weights(0, 1, 0)) == pytest.approx(lost / spent, rel=1e-4)


def test_guidance_loss_spreads_attention_over_one_anchor_of_each_scene(
    tiny: Any, watched: tuple[QuestionBatch, Prepared, list[list[Tensor]]]
) -> None:
    batch, prepared, attention = watched
    lost = []
    for question, (_, places), layers in zip(batch.questions, blocks_of(batch), attention, strict=True):
        if question.text != GLOBAL_PROMPT:
            continue
        wanted = torch.zeros(question.frames_seen * TOKENS_PER_FRAME)
        for scene in batch.videos[0].scenes:
            for frame in range(scene.start, min(scene.end, question.frames_seen)):
                wanted[frame * TOKENS_PER_FRAME + 3] = 1.0 if frame == scene.start + 2 else 0.08
        wanted /= wanted.sum()
        for place in range(len(places)):
            if int(places[place]) in batch.guidance.at.tolist():
                deep = [layer[:, place].mean(0) for layer in layers[FIRST_DEEP_LAYER:]]
                lost.append(-sum(float((wanted * (share + 1e-6).log()).sum()) for share in deep) / len(deep))
    assert len(lost) == len(batch.guidance.at)
    assert supervised_loss(tiny, batch, prepared, Weights(0, 0, 1)) == pytest.approx(sum(lost) / len(lost), rel=1e-4)


def test_readouts_learn_what_the_middle_of_the_model_knows(tiny: Any, batch: QuestionBatch, features: Tensor) -> None:
    """Only read-outs are trained here, so what they learn is in the hidden states."""
    readouts = Readouts(Architecture())
    supervision = InnerSupervision(LeanDecoder(tiny.model.language_model), readouts.text, batch, Weights(1, 0, 0))
    prepared = prepare(tiny, batch, features, UNDISTURBED)
    optimizer = torch.optim.AdamW(readouts.text.parameters(), lr=0.03)
    losses = []
    for _ in range(12):
        loss = run_layers(tiny, prepared, supervision)[1]
        losses.append(loss.item())
        optimizer.zero_grad()
        torch.autograd.backward(loss, inputs=list(readouts.text.parameters()))
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    dropped = prepare(tiny, batch, features, Disturbance(drop=0.5))
    assert float(run_layers(tiny, dropped, supervision)[1]) == 0  # frames have lost tokens: nothing to read


def test_tracks_are_true_of_every_frame(batch: QuestionBatch) -> None:
    tracks = batch.tracks
    for number, video in enumerate(batch.videos):
        for frame in range(video.frames):
            index = int(video.scene_at[frame])
            for track, scene in ((tracks.current, index), (tracks.previous, index - 1)):
                shown = {s.color: 1 + s.shape for s in video.scenes[scene].sprites} if scene >= 0 else {}
                assert track[number, frame].tolist() == [shown.get(color, 0) for color in range(8)]
            assert tracks.age[number, frame] == frame - video.scenes[index].start
            assert tracks.background[number, frame] == video.scenes[index].background
            assert tracks.scene_number[number, frame] == index
