"""Measuring: figures, rows that say what went wrong, random weights, and the stock transformers beside it."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hermes.bench.arms import PolicyArm, StockArm, Task, question_of
from hermes.bench.bound import Speed, Work
from hermes.bench.pictures import Foreseen, looped, noise
from hermes.bench.ranges import numbers
from hermes.bench.spread import Spread
from hermes.config import MemoryConfig
from hermes.engine import StreamEngine
from hermes.errors import UsageError
from hermes.frames import Frame
from hermes.machine import cpus
from hermes.models import VideoModel
from hermes.models.random_weights import architecture, from_architecture
from hermes.models.stock import StockDecoder
from hermes.sources.base import FrameList
from hermes_cli.app import main
from hermes_cli.measurements import soak_record
from tests.conftest import noise_frames

SHORT = ["bench", "-m", "tiny", "--frames", "16,32", "--budget", "96", "-r", "2", "-q"]
BUDGET = 96


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("16,64,256", (16, 64, 256)),
        ("64, 16,64", (16, 64)),
        ("1-3", (1, 2, 3)),
        ("16-64+16", (16, 32, 48, 64)),
        ("16-256*2", (16, 32, 64, 128, 256)),
        ("16-100*2,7", (7, 16, 32, 64)),
        ("5-5", (5,)),
    ],
)
def test_numbers_are_written_as_for_llama_bench(written: str, expected: tuple[int, ...]) -> None:
    assert numbers(written) == expected


@pytest.mark.parametrize("written", ["", "x", "16,", "3-1", "1-9*1", "0-9*2", "1-9+0", "-4", "1.5", "16-64/2"])
def test_what_is_no_list_of_numbers_is_refused(written: str) -> None:
    with pytest.raises(UsageError):
        numbers(written)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("99999999", "99999999 is too large"),
        ("16-" + "9" * 5000, "is too large"),  # more digits than `int` takes
        ("16-64+99999999", "99999999 is too large"),
        ("1-1001", "more than 1000 numbers"),
        ("1-1000,16-9999999+16", "more than 1000 numbers"),
    ],
)
def test_numbers_without_measure_are_refused_as_such(written: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        numbers(written)


def test_leading_zeros_make_no_number_large() -> None:
    assert numbers("000000000016") == (16,)
    assert len(numbers("1-1000")) == 1000


def test_statistics_are_those_computed_by_hand() -> None:
    spread = Spread((1.0, 6.0, 2.0, 3.0))
    record = spread.record()
    assert record.pop("samples") == [1.0, 6.0, 2.0, 3.0]
    assert record == pytest.approx({"mean": 3.0, "std": math.sqrt(14 / 3), "p50": 2.5, "p99": 3 + 0.97 * 3})
    assert Spread((5.0,)).std == 0
    assert Spread.of([None, 4.0]) == Spread((4.0,))
    assert Spread.of([None]) is None


def test_the_bound_is_that_of_the_published_shapes() -> None:
    """LLaVA-OneVision 7B on one H200: 3.5 ms a token and 65 ms for a chunk of 3136 tokens behind 4000."""
    layers = 28 * (3584 * 18944 * 3 + 3584 * 3584 * 2 + 3584 * 512 * 2)
    work = Work(2 * (layers + 3584 * 152128), layers, 2 * 28 * 4 * 128 * 2, 28 * 3584)
    speed = Speed(copy_gb_s=4040, matrix_tflop_s=741)
    assert work.least_tpot_ms(speed, 4000) == pytest.approx(3.5, abs=0.1)
    assert work.least_ttft_ms(speed, 4000, 40) == pytest.approx(3.5, abs=0.1)
    assert work.least_prefill_ms(speed, 4000, 3136) == pytest.approx(65, abs=2)


def test_the_work_of_a_model_is_that_of_its_weights(model: VideoModel) -> None:
    work, config = Work.of(model), model.text_config
    attention = 2 * 64 * 64 + 2 * 64 * 32 + 64 + 2 * 32  # with the biases of queries, keys and values
    layer = attention + 3 * 64 * 128 + 2 * 64  # MLP and norms
    assert work.weight_count == model.layers * layer
    assert work.weight_bytes == 4 * (model.layers * layer + 64 * config.vocab_size)
    assert (work.kv_bytes, work.attention_width) == (2 * model.layers * 32 * 4, model.layers * 64)


def measured(capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> list[dict[str, Any]]:
    """The rows that `hermes bench` gives as JSON."""
    assert main([*SHORT, "-o", "json", *more]) == code
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["results"]
    return rows


def test_rows_say_what_was_measured_and_on_what(capsys: pytest.CaptureFixture[str]) -> None:
    rows = measured(capsys, "--policy", "hermes,full", "--reference")
    arms = ["hermes", "full", "stock", "stock-cut"]
    assert [(row["arm"], row["frames"]) for row in rows] == [(arm, frames) for arm in arms for frames in (16, 32)]
    prefix = rows[0]["kv_tokens"] - 64
    held = [row["kv_tokens"] - prefix for row in rows]
    assert held == [64, BUDGET, 64, 128, 64, 128, 64, BUDGET]
    for row in rows:
        assert (row["status"], row["question_tokens"], row["answer_tokens"], row["chunk_tokens"]) == ("ok", 40, 32, 64)
        assert row["kv_mib"] == pytest.approx(row["kv_tokens"] * 10 * 2 * 2 * 32 * 4 / 2**20, abs=1e-5)
        assert row["peak_rss_mib"] > row["kv_mib"]
        for figure in ("encode_fps", "encode_ms", "vision_ms", "prefill_ms", "ttft_ms", "ttft_plus_step_ms", "tpot_ms"):
            assert len(row[figure]["samples"]) == 2, figure
            assert min(row[figure]["samples"]) > 0, figure
        for fps, ms in zip(row["encode_fps"]["samples"], row["encode_ms"]["samples"], strict=True):
            assert fps == pytest.approx(16000 / ms, rel=1e-3)
        whole = (first + step for first, step in zip(row["ttft_ms"]["samples"], row["tpot_ms"]["samples"], strict=True))
        assert row["ttft_plus_step_ms"]["samples"] == pytest.approx(list(whole), abs=1e-5)
        assert row["least"].keys() == {"prefill_ms", "ttft_ms", "tpot_ms"}
        assert row["device"].keys() == {"copy_gb_s", "matrix_tflop_s"}
        assert row["settings"]["memory"]["budget"] == BUDGET
        assert row["settings"]["plan"] == {"marks": [16, 32], "repetitions": 2, "warmup": 1, "soak": False}
        assert row["versions"]["torch"] == torch.__version__.split("+")[0] or row["versions"]["torch"] == torch.__version__
        assert row["machine"]["threads"] == torch.get_num_threads()
        assert row["settings"]["looks_ahead"] == (cpus() > 1)
    forgot = [row["arm"] for row in rows if row["compress_ms"]]
    assert forgot == ["hermes"]
    parts = ("guidance_ms", "score_ms", "compact_ms")
    whole = sum(rows[1][part]["mean"] for part in parts)
    assert rows[1]["compress_ms"]["mean"] == pytest.approx(whole, rel=1e-3)
    assert 0 < rows[1]["compress_share"]["mean"] < 1


def test_a_table_and_csv_have_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, "--policy", "fifo"]) == 0
    table = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [cells[1] for cells in table[2:]] == ["16", "32"]
    assert "±" in table[2][-1]
    assert "≥" in table[2][-1]
    assert main([*SHORT, "--policy", "fifo", "-o", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["arm"], row["frames"]) for row in rows] == [("fifo", "16"), ("fifo", "32")]
    assert float(rows[0]["ttft_ms.mean"]) > 0
    assert rows[0]["settings.memory.budget"] == str(BUDGET)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. More.")],
    ids=["host", "GPU"],
)
def test_what_runs_out_of_memory_is_a_row_and_the_others_go_on(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    push = StreamEngine.push

    def fail(engine: StreamEngine, frame: Frame, *coming: Any) -> Any:
        if not engine.policy.bounded and engine.frames_seen == 30:
            raise error
        return push(engine, frame, *coming)

    monkeypatch.setattr(StreamEngine, "push", fail)
    rows = measured(capsys, "--policy", "full,fifo", code=6)
    states = [(row["arm"], row["frames"], row["status"]) for row in rows]
    assert states == [("full", 16, "ok"), ("full", 32, "out of memory"), ("fifo", 16, "ok"), ("fifo", 32, "ok")]
    assert len(rows[0]["ttft_ms"]["samples"]) == 2
    assert main([*SHORT, "--policy", "full"]) == 6
    shown = capsys.readouterr()
    assert "| full | 32 | out of memory |" in shown.out
    assert "1 of 2 rows could not be measured" in shown.err


def test_an_arm_that_fails_in_every_place_ends(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    ask = PolicyArm.ask

    def fail_later(arm: PolicyArm) -> Any:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise MemoryError
        return ask(arm)

    monkeypatch.setattr(PolicyArm, "ask", fail_later)
    rows = measured(capsys, "--policy", "fifo", code=6)
    assert [row["status"] for row in rows] == ["out of memory", "out of memory"]


def test_ctrl_c_keeps_the_rows_that_are_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ask = PolicyArm.ask
    asked = {"fifo": 0, "hermes": 0}

    def interrupt(arm: PolicyArm) -> Any:
        asked[arm.name] += 1
        if arm.name == "fifo" and asked[arm.name] == 6:  # the last question of its last pass
            raise KeyboardInterrupt
        return ask(arm)

    monkeypatch.setattr(PolicyArm, "ask", interrupt)
    saved = tmp_path / "rows.jsonl"
    assert main([*SHORT, "--policy", "hermes,fifo", "--save", str(saved)]) == 130
    table = [line.split(" | ")[:2] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    expected = [["| hermes", "16"], ["| hermes", "32"], ["| fifo", "16"], ["| fifo", "32"]]
    assert table == expected
    rows = [json.loads(line) for line in saved.read_text(encoding="utf-8").splitlines()]
    assert [len(row["ttft_ms"]["samples"]) for row in rows] == [2, 2, 2, 1]


def test_a_row_is_written_as_soon_as_it_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    restart = PolicyArm.restart

    def note(arm: PolicyArm) -> None:
        if arm.name == "fifo":
            written.append(capsys.readouterr().out)
        restart(arm)

    monkeypatch.setattr(PolicyArm, "restart", note)
    assert main([*SHORT, "--policy", "hermes,fifo", "-o", "jsonl"]) == 0
    assert [json.loads(line)["arm"] for line in written[0].splitlines()] == ["hermes", "hermes"]
    assert [json.loads(line)["arm"] for line in capsys.readouterr().out.splitlines()] == ["fifo", "fifo"]


def test_question_and_answer_may_take_all_the_room_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    room = ["--question-tokens", "40", "--answer-tokens", "472", "-r", "1", "--warmup", "0"]
    rows = measured(capsys, "--policy", "fifo", *room)
    assert {(row["question_tokens"], row["answer_tokens"]) for row in rows} == {(40, 472)}


def test_rows_that_all_fail_leave_no_good_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, "--policy", "hermes", "--budget", "999999999"]) == 6
    assert "the others are good" not in capsys.readouterr().err
    assert main([*SHORT, "--policy", "hermes,full", "--frames", "16", "--budget", "999999999"]) == 6
    assert "hint: the others are good" in capsys.readouterr().err


def test_a_soak_is_one_pass_measured_at_ten_places(capsys: pytest.CaptureFixture[str]) -> None:
    soak = ["bench", "-m", "tiny", "--soak", "43", "--chunk", "4", "--budget", "16", "-r", "2", "-q", "-o", "json"]
    assert main(soak) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["frames"] for row in found["results"]] == [4 * place for place in range(1, 11)]
    assert {len(row["ttft_ms"]["samples"]) for row in found["results"]} == {2}
    assert found["soak"]["frames"] == [4, 40]
    ratio = found["results"][-1]["tpot_ms"]["mean"] / found["results"][0]["tpot_ms"]["mean"]
    assert found["soak"]["last_over_first"]["tpot_ms"] == pytest.approx(ratio, rel=1e-3)
    assert main([*soak, "--soak", "39"]) == 2


def test_the_ratio_of_a_soak_is_last_over_first() -> None:
    def row(frames: int, ttft_ms: float, compress_ms: float | None, peak: float) -> dict[str, Any]:
        forgot = None if compress_ms is None else {"mean": compress_ms}
        figures = {"ttft_ms": {"mean": ttft_ms}, "tpot_ms": {"mean": 2.0}, "compress_ms": forgot, "peak_cuda_mib": peak}
        return {"arm": "hermes", "frames": frames, "status": "ok", **figures}

    assert soak_record([row(1, 4, 2, 10)], "peak_cuda_mib") is None
    both = soak_record([row(1, 4, None, 10), row(2, 9, 9, 9), row(3, 6, 2, 11)], "peak_cuda_mib")
    assert both is not None
    assert both["last_over_first"] == {"ttft_ms": 1.5, "tpot_ms": 1.0, "compress_ms": None, "peak_cuda_mib": 1.1}


def test_a_trace_takes_the_place_of_no_device(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    device = tmp_path / "device"
    os.mkfifo(device)
    assert main([*SHORT, "--profile", str(device), "--force"]) == 2
    assert "is no ordinary file" in capsys.readouterr().err
    assert device.is_fifo()


def test_a_profile_names_stages_and_writes_a_trace(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    assert main([*SHORT, "-o", "json", "--profile", str(trace)]) == 0
    shown = capfd.readouterr()  # what torch's own code writes included
    assert shown.err == f"{trace} is the trace\n"
    found = json.loads(shown.out)
    stages = found["stages_ms"]
    assert list(stages) == [
        "vision", "prefill", "guidance", "score", "compact", "rest of the chunk", "question", "decode",
    ]  # fmt: skip
    assert min(stages[name] for name in ("vision", "prefill", "guidance", "question", "decode")) > 0
    assert found["operators"][0]["self_ms"] >= found["operators"][-1]["self_ms"] > 0
    names = {event.get("name") for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]}
    assert {"chunk", "answer"} <= names


def test_a_picture_shows_every_arm(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "bench.svg"
    assert main([*SHORT, "--policy", "hermes,fifo", "--plot", str(picture)]) == 0
    assert "<svg" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--policy", "hermes,nonsense"], "unknown memory policy 'nonsense'"),
        (["--frames", "20"], "not whole chunks"),
        (["--frames", "many"], "not a list of numbers"),
        (["--random-weights", "ov-7b"], "excludes --model"),
        (["--question-tokens", "3"], "too short"),
        (["--question-tokens", "100000"], "100000 tokens and an answer of 32 do not fit: the memory keeps room for 512"),
        (["--answer-tokens", "473"], "40 tokens and an answer of 473 do not fit"),
        (["--frames", "99999984"], "at most 9999999 frames are played"),
        (["--soak", "99999984"], "less than or equal to 9999999"),
        (["-r", "99999999999999999999"], "less than or equal to 10000"),
        (["--seed", str(2**63)], "seed 9223372036854775808 is out of range"),
        (["--profile", __file__], "is there already"),
    ],
)
def test_mistakes_are_told_in_one_line(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, *options]) == 2
    shown = capsys.readouterr()
    assert said in shown.err.splitlines()[0]
    assert shown.out == ""


def test_answers_of_any_model_are_as_long_as_they_should_be(model: VideoModel) -> None:
    """Also where a token that ends an answer comes first."""
    model.stop_ids = frozenset(range(model.text_config.vocab_size))
    arm = PolicyArm("hermes", model, Task(MemoryConfig(chunk_frames=2, budget=20), question_tokens=30, answer_tokens=5))
    arm.push(noise_frames(1)[0])
    assert (arm.ask().answer_tokens, arm.ask().question_tokens) == (5, 30)
    assert len(model.stop_ids) == model.text_config.vocab_size


def test_a_question_has_the_tokens_that_are_wanted(model: VideoModel) -> None:
    prompt = model.prompt("template")
    assert [len(prompt.question_ids(question_of(prompt, tokens))) for tokens in (20, 33, 40)] == [20, 33, 40]


def test_stock_transformers_does_the_same_work(model: VideoModel) -> None:
    task = Task(MemoryConfig(chunk_frames=4, budget=20), answer_tokens=4)
    full, stock, cut = (
        PolicyArm("full", model, task), StockArm("stock", model, task), StockArm("cut", model, task, keeps=20),
    )  # fmt: skip
    for frame in noise_frames(8):
        costs = full.push(frame), stock.push(frame), cut.push(frame)
    assert [(cost.frames, cost.tokens, cost.behind > 0) for cost in costs if cost] == [(4, 36, True)] * 3
    assert full.kv_tokens == stock.kv_tokens
    assert set(cut.kv_tokens) == {stock.kv_tokens[0] - 72 + 20}
    answers = full.ask(), stock.ask(), cut.ask()
    assert len({(answer.question_tokens, answer.answer_tokens) for answer in answers}) == 1
    assert full.kv_tokens == stock.kv_tokens  # as before the question


def test_stock_transformers_has_the_same_weights_and_gives_the_same_states(model: VideoModel) -> None:
    stock = StockDecoder(model)
    weights = zip(stock.decoder.parameters(), model.decoder.parameters(), strict=True)
    assert all(mine.data_ptr() == other.data_ptr() for mine, other in weights)
    cache = model.new_cache(64)
    for ids in (list(range(10, 40)), list(range(7, 15))):
        with torch.inference_mode():
            ours = model.forward(model.text(ids), cache)
        assert torch.allclose(stock.append(model.text(ids)), ours, atol=1e-4)
    assert stock.length == 38
    stock.cut(30)
    again = stock.append(model.text(list(range(7, 15))))
    assert torch.allclose(again, ours, atol=1e-4)


def small(alias: str) -> Any:
    """The architecture of a model with little in it."""
    config = architecture(alias)
    text, vision = config.text_config, config.vision_config
    text.hidden_size, text.intermediate_size, text.num_hidden_layers, text.vocab_size = 64, 64, 4, 1000
    text.num_attention_heads, text.num_key_value_heads, text.head_dim = 4, 2, 16
    text.layer_types = ["full_attention"] * 4
    vision.hidden_size, vision.intermediate_size = 32, 32
    if config.model_type == "llava_onevision":
        vision.num_hidden_layers, vision.num_attention_heads = 2, 2
        return config
    text.rope_parameters["mrope_section"] = [2, 3, 3]
    vision.depth, vision.num_heads, vision.out_hidden_size = 2, 2, 64
    if config.model_type == "qwen3_vl":
        vision.deepstack_visual_indexes = [0, 1]
    else:
        vision.fullatt_block_indexes = [1]
    return config


@pytest.mark.parametrize("alias", ["ov-0.5b", "qwen2.5vl-3b", "qwen3vl-4b"])
def test_random_weights_play_and_answer_in_every_family(alias: str) -> None:
    made = from_architecture(small(alias), alias, "cpu")
    task = Task(MemoryConfig(chunk_frames=2, budget=100), answer_tokens=4)
    for arm in (PolicyArm("hermes", made, task), StockArm("stock", made, task)):
        costs = [arm.push(frame) for frame in islice(noise(0), 2)]
        assert costs[-1] is not None
        assert 300 < costs[-1].tokens <= 420
        assert arm.ask().answer_tokens == 4
    ids = made.prompt("template").question_ids("What is <|video_pad|>?")
    assert max(ids) < made.text_config.vocab_size


def test_the_same_seed_gives_the_same_random_weights() -> None:
    one, same, other = (from_architecture(small("ov-0.5b"), "x", "cpu", seed=seed) for seed in (1, 1, 2))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    from_architecture(small("ov-0.5b"), "x", "cpu", seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    pairs = zip(one.model.parameters(), same.model.parameters(), strict=True)
    assert all(torch.equal(mine, yours) for mine, yours in pairs)
    assert not torch.equal(one.decoder.layers[0].mlp.up_proj.weight, other.decoder.layers[0].mlp.up_proj.weight)
    assert one.dtype == torch.float32
    assert from_architecture(small("ov-0.5b"), "x", "cpu", "bf16").dtype == torch.bfloat16


def test_random_weights_run_by_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.models.random_weights.architecture", small)
    options = ["--random-weights", "qwen3vl-4b", "--frames", "2", "--chunk", "2", "-r", "1", "-q", "-o", "json"]
    assert main(["bench", *options, "--policy", "hermes", "--device", "cpu"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert row["settings"]["model"] == "qwen3vl-4b with random weights"


def test_frames_to_come_are_known_by_the_end_of_a_chunk() -> None:
    made = list[Frame]()

    def making() -> Iterator[Frame]:
        for frame in noise(0):
            made.append(frame)
            yield frame

    frames = Foreseen(making(), 4)
    taken = [next(frames) for _ in range(4)]
    assert frames.coming(4) == made[4:]
    assert [*taken, *(next(frames) for _ in range(4))] == made[:8]
    assert len(made) == 12
    next(Foreseen(making(), 10**9))
    assert len(made) == 14  # a chunk that never ends does not fill the memory with frames


def test_frames_are_the_same_for_every_pass() -> None:
    first, again, other = (list(islice(noise(seed), 3)) for seed in (0, 0, 1))
    assert [frame.time_s for frame in first] == [0.0, 1.0, 2.0]
    assert all(np.array_equal(one.rgb, two.rgb) for one, two in zip(first, again, strict=True))
    assert not np.array_equal(first[0].rgb, other[0].rgb)
    assert not np.array_equal(first[0].rgb, first[1].rgb)


def test_a_film_begins_again_and_its_time_goes_on() -> None:
    film = FrameList(noise_frames(3))
    frames = list(islice(looped(film), 7))
    assert [frame.time_s for frame in frames] == [float(second) for second in range(7)]
    assert np.array_equal(frames[0].rgb, frames[3].rgb)
    assert not np.array_equal(frames[0].rgb, frames[1].rgb)


def test_a_source_is_played(capsys: pytest.CaptureFixture[str]) -> None:
    rows = measured(capsys, "--policy", "fifo", "--source", "assets/demo.mp4", "-r", "1", "--warmup", "0")
    assert {row["settings"]["frames"] for row in rows} == {"assets/demo.mp4"}
