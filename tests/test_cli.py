"""The command line as a user meets it: what goes to which stream, at which moment a question is answered, how it ends."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from rich.console import Console

import hermes_cli
from hermes import engine
from hermes.config import MemoryConfig
from hermes.engine import StreamEngine
from hermes.errors import ModelError
from hermes.events import Answer, AnswerDelta
from hermes.models import DTYPES, VideoModel, load_model
from hermes.models.llava_onevision import LlavaOnevision
from hermes.models.prompts import STYLES
from hermes.policies import POLICIES
from hermes.sources import open_source
from hermes.tiny import checkpoint_folder
from hermes.tiny.clip import write_clip
from hermes.tiny.world import RandomSource, make_video
from hermes_cli import options, terminal
from hermes_cli.__main__ import main as entry_point
from hermes_cli.answers import Answers, StreamedAnswers
from hermes_cli.app import main
from hermes_cli.player import Asking
from hermes_cli.progress import Goal, PlainProgress
from hermes_cli.tally import Tally
from tests import clips

ROOT = Path(__file__).parent.parent
PROGRAM = [sys.executable, "-m", "hermes_cli"]
TOO_LONG = "why " * 5000
QUESTION = "What happened in the video?"
SMALL_MEMORY = ["--budget", "24", "--chunk", "4"]
NO_MODELS = {"HF_HUB_CACHE": "/nonexistent"}  # so that without -m it is the embedded model, whatever is downloaded here


@dataclass(frozen=True)
class Done:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the program in this process, with `stdin` as a pipe that holds it, or closed."""
    monkeypatch.delenv("HERMES_MODEL", raising=False)
    for name, value in NO_MODELS.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str | Path, stdin: str | None = None) -> Done:
        monkeypatch.setattr(sys, "stdin", None if stdin is None else io.StringIO(stdin))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 seconds of the embedded model's world at 25 pictures a second; the scene changes at 4 s and at 10 s."""
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    write_clip(make_video(16, RandomSource(7)), path, size=96)
    return path


@pytest.fixture(scope="module")
def embedded() -> VideoModel:
    return load_model(checkpoint_folder())


def answer_directly(model: VideoModel, film: Path, asked: list[tuple[float, str]]) -> list[str]:
    """The answers of an engine that has been given the frames up to each time, and nothing else."""
    engine = StreamEngine(model, MemoryConfig(budget=24, chunk_frames=4))
    frames = list(open_source(film).frames(1.0))
    texts = []
    for time_s, question in asked:
        newest = -1.0 if engine.now_s is None else engine.now_s
        for frame in frames:
            if newest < frame.time_s <= time_s:
                engine.push(frame)
        *_, answer = engine.ask(question)
        assert isinstance(answer, Answer)
        texts.append(answer.text)
    return texts


def test_timed_questions_see_the_frames_up_to_their_time_and_no_later_one(
    run: Run, film: Path, embedded: VideoModel
) -> None:
    asks = ["end Describe the scene.", "3.9 What is on screen?", f"75% {QUESTION}", "4 What is on screen?", "75% And?"]
    done = run("watch", film, *SMALL_MEMORY, "--json", *(part for ask in asks for part in ("--ask", ask)))
    expected = [
        (3.9, 3.0, "What is on screen?"),
        (4.0, 4.0, "What is on screen?"),
        (12.0, 12.0, QUESTION),
        (12.0, 12.0, "And?"),
        (15.0, 15.0, "Describe the scene."),
    ]
    assert done.code == 0
    assert [(record["at"], record["frame_pts"], record["question"]) for record in done.records] == expected
    assert done.records[0]["at_text"] == "00:00:03.900"
    direct = answer_directly(embedded, film, [(at, question) for at, _, question in expected])
    assert [record["answer"] for record in done.records] == direct
    assert direct[0] != direct[1]  # the scene changes there, so the frame at 4 s makes a difference


def test_ask_writes_only_the_answer_and_says_on_the_other_stream_what_it_answered(
    run: Run, film: Path, embedded: VideoModel
) -> None:
    done = run("ask", film, "happened in the video?", "--at", "-5.5s", *SMALL_MEMORY, stdin="What\n")
    [direct] = answer_directly(embedded, film, [(10.5, QUESTION)])
    assert (done.code, done.out) == (0, f"{direct}\n")
    assert f"[00:00:10.500] {QUESTION}\n" in done.err
    assert "11 frames in 2 chunks" in done.err
    quiet = run("ask", film, QUESTION, "--at", "10.5", "-q", *SMALL_MEMORY)
    assert (quiet.out, QUESTION in quiet.err) == (done.out, False)


def test_piped_lines_are_questions_about_the_end_until_bye(run: Run, film: Path, embedded: VideoModel) -> None:
    lines = f"What is on screen?\n\n/nonsense\n{TOO_LONG}\nnot UTF-8: \udcff\nDescribe the scene.\n/bye\nNever asked?\n"
    done = run("watch", film, "--end", "5", *SMALL_MEMORY, "--ask", "end How many are there?", stdin=lines)
    questions = ["How many are there?", "What is on screen?", "Describe the scene."]
    assert done.out.splitlines() == answer_directly(embedded, film, [(4.0, question) for question in questions])
    assert "unknown command '/nonsense'" in done.err
    mistakes = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert ["tokens" in mistakes[0], "not UTF-8" in mistakes[1], len(mistakes)] == [True, True, 2]
    assert (done.code, done.err.count("hint: ")) == (2, 2)


def test_a_timed_question_that_cannot_be_asked_is_found_before_the_film_plays(run: Run, film: Path) -> None:
    done = run("watch", film, "--ask", "1 What is on screen?", "--ask", f"end {TOO_LONG}", "--json-lines")
    assert (done.code, [record["type"] for record in done.records]) == (2, ["start", "error"])


def test_frames_that_wait_for_their_chunk_are_counted(run: Run, film: Path) -> None:
    done = run("ask", film, "what", "--at", "5", *SMALL_MEMORY, "--json-lines")
    [answer] = [record for record in done.records if record["type"] == "answer"]
    assert "6 frames in 1 chunk and 2 waiting, 16 visual tokens held\n" in done.err
    assert (answer["kv"]["tokens"], answer["kv"]["waiting_frames"], done.records[-1]["waiting"]) == (16, 2, 2)


def test_a_time_before_the_first_frame_is_answered_at_it_with_a_warning(run: Run, film: Path) -> None:
    done = run("ask", film, "What is on screen?", "--start", "3.5", "--at", "1", "--json")
    assert (done.records[0]["at"], done.records[0]["frame_pts"]) == (4.0, 4.0)
    assert "warning: 00:00:01.000 is before the first frame played; answered at 00:00:04.000" in done.err


def test_a_film_that_stops_early_is_answered_and_ends_with_code_6(run: Run, tmp_path: Path) -> None:
    short = clips.cut(clips.clip(tmp_path / "short.mkv", clips.steady(120), options={"g": "10"}), 0.5)
    done = run("watch", short, "--json-lines", "--ask", "9 What is on screen?", "--ask", "1 What is on screen?")
    kinds = [record["type"] for record in done.records]
    answers = [record for record in done.records if record["type"] == "answer"]
    assert (done.code, kinds[0], kinds[-1]) == (6, "start", "end")
    assert answers[0]["at"] == 1.0
    assert answers[1]["frame_pts"] <= answers[1]["at"] < 9
    told = [kind for kind in kinds if kind in {"warning", "answer"}]
    assert told == ["answer", "warning", "answer"]  # whoever reads the last one knows that the moment was not reached
    assert any("stream ended at" in record["message"] for record in done.records if record["type"] == "warning")


def test_questions_of_a_file_join_those_of_the_command_line(run: Run, film: Path, tmp_path: Path) -> None:
    batch = tmp_path / "questions.txt"
    lines = "0:01\tFirst?\n# what I want to know\n#3\n\n2s  Second?\n#3 Third?\n"
    batch.write_text(lines, encoding="utf-8-sig")  # as some editors do
    done = run("watch", film, "--end", "4", "--ask", "2 Before the file?", "--ask-file", batch, "--json")
    asked = [(record["at"], record["question"]) for record in done.records]
    assert asked == [(1.0, "First?"), (2.0, "Before the file?"), (2.0, "Second?"), (3.0, "Third?")]


NOWHERE = ["-m", "/nonexistent"]  # a model that cannot load: an error about anything else came before it


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["watch", "-dash.mp4"], 2, "./-name"),
        (["ask", "FILM", "what", "--bogus"], 2, "no such option: --bogus"),
        (["ask", "FILM", "what", "--at", "1:75"], 2, "03:20, 1:02:03.5, 50%, -30s or end"),
        (["ask", "FILM", "what", "--at", "50"], 2, "ends at 00:00:16.000"),
        (["ask", "FILM", "what", "--at", "9", "--end", "8"], 2, "9 is after --end 00:00:08.000"),
        (["ask", "FILM"], 2, "there is no question"),
        (["ask", "FILM", "what\udcff"], 2, "not UTF-8"),
        (["ask", "FILM", "what", "--budget", "many"], 2, "'many' is not a number of tokens"),
        (["ask", "FILM", "what", "--policy", "none"], 2, "'hermes', 'fifo', 'full'"),
        (["ask", "FILM", "what", "--guidance", "none"], 2, "forward, embedding"),
        (["ask", "FILM", "what", "--fps", "0"], 2, "not a sampling rate"),
        (["watch", "FILM", "--ask", "00:05"], 2, "not a time and a question"),
        (["watch", "FILM", "--ask", "17 what"], 2, "ends at 00:00:16.000"),
        (["watch", "FILM", "--ask-file", "/nonexistent"], 2, "No such file"),
        (["watch", "FILM", "--start", "8", "--end", "50%"], 2, "nothing lies between"),
        (["watch", "FILM", "--start", "20"], 2, "ends at 00:00:16.000"),
        (["watch", "nowhere.mp4"], 3, "nowhere.mp4"),
        (["ask", "FILM", "what", "--temperature", "-1"], 2, "out of range"),
        (["ask", "FILM", "what"], 4, "/nonexistent"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint_before_the_model_loads(
    run: Run, film: Path, arguments: list[str], code: int, said: str
) -> None:
    command, *rest = [str(film) if argument == "FILM" else argument for argument in arguments]
    done = run(command, *NOWHERE, *rest)
    error, hint = done.err.splitlines()
    assert (done.code, done.out) == (code, "")
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert said in done.err


def test_errors_are_json_for_those_who_asked_for_json(run: Run) -> None:
    for flags, code in ((["--json"], 3), (["--json-lines"], 3), (["--json", "--json-lines"], 2), (["--json", "--bogus"], 2)):
        done = run("watch", "nowhere.mp4", *flags)
        record = json.loads(done.err)
        assert (done.code, record["type"], record["code"]) == (code, "error", code)
        assert done.records == ([record] if "--json-lines" in flags else [])


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


def test_out_of_memory_names_three_settings_that_help(run: Run, film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB.\nMore")
    monkeypatch.setattr("hermes_cli.commands.ask.load_player", failing(error))
    done = run("ask", film, "what")
    assert (done.code, len(done.err.splitlines())) == (5, 2)
    assert all(word in done.err for word in ("Tried 2 GiB.", "--budget", "--chunk", "--quant"))


@pytest.mark.parametrize(("owner", "name", "turn"), [(LlavaOnevision, "embed_frames", 3), (engine, "decode", 1)])
def test_out_of_memory_leaves_what_was_seen_to_be_asked_about(
    run: Run, film: Path, embedded: VideoModel, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, turn: int
) -> None:
    """The third chunk fails, or the first of two questions does."""
    real, calls = getattr(owner, name), itertools.count(1)

    def failing_once(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == turn:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(*args, **kwargs)

    questions = ["What is on screen now?", "What is on screen?"]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing_once)
        done = run("watch", film, "--chunk", "4", "--budget", "24", stdin="\n".join(questions))
    assert done.code == 5
    assert done.err.count("error: out of memory") == 1
    answers = answer_directly(embedded, film, [(10.0 if name == "embed_frames" else 15.0, text) for text in questions])
    assert done.out.splitlines() == (answers if name == "embed_frames" else answers[1:])


def test_a_bug_is_one_line_and_its_traceback_is_for_those_who_ask(
    run: Run, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_cli.commands.ask.load_player", failing(ZeroDivisionError("oh\nno")))
    done = run("ask", film, "what")
    assert (done.code, done.err.splitlines()[0]) == (1, "error: unexpected ZeroDivisionError: oh")
    assert "Traceback" not in done.err
    assert "Traceback" in run("ask", film, "what", "-vv").err
    monkeypatch.setenv("HERMES_DEBUG", "1")
    assert "Traceback" in run("ask", film, "what").err


def test_ctrl_c_leaves_the_answer_as_far_as_it_came(run: Run, film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_off(*_: object, **__: object) -> Iterator[AnswerDelta]:
        yield AnswerDelta(" A red ")
        raise KeyboardInterrupt

    monkeypatch.setattr(StreamEngine, "ask", broken_off)
    done = run("ask", film, "what", "--end", "2")
    assert (done.code, done.out) == (130, "A red\n")
    [record] = run("ask", film, "what", "--end", "2", "--json").records
    assert (record["answer"], record["finish_reason"], record["output_tokens"]) == ("A red", "cancelled", None)


def test_an_answer_that_fails_or_has_not_begun_is_not_written(run: Run, film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_off(error: BaseException, *begun: AnswerDelta) -> Callable[..., Iterator[AnswerDelta]]:
        def ask(*_: object, **__: object) -> Iterator[AnswerDelta]:
            yield from begun
            raise error

        return ask

    failure = ModelError("the model produced NaN")
    endings = {4: broken_off(failure, AnswerDelta("A red ")), 130: broken_off(KeyboardInterrupt())}
    for code, ask in endings.items():
        monkeypatch.setattr(StreamEngine, "ask", ask)
        done = run("ask", film, "what", "--end", "2")
        assert (done.code, done.out) == (code, "")
        assert "answer" not in [record["type"] for record in run("ask", film, "what", "--end", "2", "--json-lines").records]


@pytest.mark.parametrize("form", [Answers, StreamedAnswers])
def test_an_answer_cannot_steer_the_terminal_and_streams_to_the_same_text(
    form: type[Answers], capsys: pytest.CaptureFixture[str]
) -> None:
    answers = form()
    for _ in range(2):
        answers.show(Asking("?", 1.0, 1.0, 2, (4,), 9.0))
        for piece in (" \n", "\x1b", "[31m[b]red", " ", "\x07\r ", "ring\n", "\x9b2Jtwo", "\n "):
            answers.show(AnswerDelta(piece))
        answers.show(Answer("?", "", 1.0, "stop", 1, 1, 1.0, None))
    assert capsys.readouterr().out == "[31m[b]red  ring\n2Jtwo\n" * 2


def test_a_streamed_answer_that_fails_ends_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    answers = StreamedAnswers()
    for text in ("A red", "A blue ring"):
        answers.show(Asking("?", 1.0, 1.0, 2, (4,), 9.0))
        answers.show(AnswerDelta(text))
        answers.abandon()
    assert capsys.readouterr().out == "A red\nA blue ring\n"


def test_text_that_the_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    terminal.prepare()
    terminal.write_out("un café → 🎬\n")
    assert raw.getvalue() == b"un caf\\xe9 \\u2192 \\U0001f3ac\n"


def test_plain_progress_is_a_line_at_most_every_five_seconds() -> None:
    times = iter([0.0, 1.0, 4.9, 5.0, 9.9, 10.0])
    log = io.StringIO()
    progress = PlainProgress(Console(file=log), Goal(0.0, 3720.0, 4000), lambda: next(times))
    for frames in range(1, 6):
        progress.update(Tally(at=frames * 600.0, frames=frames * 600, visual_tokens=96))
    assert log.getvalue().splitlines() == [
        "00:30:00 / 01:02:00 (48%)  96 of 4000 tokens  360.0 frames/s",
        "00:50:00 / 01:02:00 (81%)  96 of 4000 tokens  300.0 frames/s",
    ]


def test_progress_without_a_known_end_has_no_share_and_without_a_length_is_complete() -> None:
    tally = Tally(at=2.0, frames=2, visual_tokens=8)
    assert Goal(0.0, None, None).text(tally, 1.0) == "00:00:02  8 tokens  2.0 frames/s"
    assert Goal(2.0, 2.0, None).text(tally, 0.0) == "00:00:02 / 00:00:02 (100%)  8 tokens  0.0 frames/s"


@pytest.mark.parametrize(("written", "count"), [("4000", 4000), ("16k", 16_000), ("1.5K", 1500), (" 96 ", 96)])
def test_a_number_of_tokens_may_be_written_in_thousands(written: str, count: int) -> None:
    assert options.tokens(written) == count


def test_the_names_offered_are_those_of_the_registries() -> None:
    assert get_args(options.PolicyName) == tuple(POLICIES)
    assert get_args(options.DtypeName) == ("auto", *DTYPES)
    assert get_args(options.PromptStyleName) == STYLES


def test_every_setting_that_is_given_reaches_the_run(run: Run, film: Path) -> None:
    memory = ["--budget", "20", "--chunk", "3", "--guidance", "embedding", "--reindex", "eager", "--policy", "full"]
    decoding = [
        "--max-new-tokens",
        "1",
        "--temperature",
        "0.5",
        "--top-p",
        "0.9",
        "--repetition-penalty",
        "2",
        "--seed",
        "5",
        "--no-evidence",
    ]
    window = [
        "--start",
        "2",
        "--end",
        "10",
        "--fps",
        "2",
        "--dtype",
        "bf16",
        "--device",
        "cpu",
        "--prompt-style",
        "released",
    ]
    start, *rest = run("ask", film, "what", "--json-lines", "--preset", "llava-code", *memory, *decoding, *window).records
    expected = MemoryConfig.preset("llava-code", budget=20, chunk_frames=3, guidance="embedding", reindex="eager")
    assert start["memory"] == json.loads(json.dumps(vars(expected)))
    assert start["sampling"] == {
        "max_new_tokens": 1, "temperature": 0.5, "top_p": 0.9, "repetition_penalty": 2.0, "seed": 5,
        "evidence": False,
    }  # fmt: skip
    assert {key: start[key] for key in ("start", "end", "fps", "dtype", "device", "policy")} == {
        "start": 2.0, "end": 10.0, "fps": 2.0, "dtype": "bfloat16", "device": "cpu", "policy": "full",
    }  # fmt: skip
    answer, end = rest[-2:]
    assert (answer["output_tokens"], answer["finish_reason"], answer["kv"]["budget"]) == (1, "length", None)
    assert (end["frames"], end["chunks"], end["at"]) == (16, 5, 9.48)  # the picture on show at 9.5 s


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "HF_", "TRANSFORMERS_"))}
    return kept | NO_MODELS | changes


def start(*arguments: str | Path, **settings: Any) -> subprocess.Popen[bytes]:
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, **{"stdin": subprocess.PIPE, "env": environment(), **settings})


def test_a_process_without_a_terminal_writes_no_noise_and_a_signal_loses_no_answer(film: Path, tmp_path: Path) -> None:
    with (tmp_path / "err").open("wb") as err:
        ascii_only = environment(PYTHONIOENCODING="ascii", FORCE_COLOR="1")
        process = start(
            "watch", film, "--json-lines", "--end", "6", *SMALL_MEMORY, "--ask", "2 Où ça?",
            stdout=subprocess.PIPE, stderr=err, env=ascii_only,
        )  # fmt: skip
        assert process.stdin
        assert process.stdout
        process.stdin.write("Qué hay?\n".encode())
        process.stdin.flush()
        records = [json.loads(process.stdout.readline()) for _ in range(4)]
        process.terminate()
        assert process.wait(timeout=120) == 143
        assert process.stdout.read() == b""
    kinds = [record["type"] for record in records]
    assert kinds == ["start", "answer", "chunk", "answer"]
    assert [records[1]["question"], records[3]["question"]] == ["Où ça?", "Qué hay?"]
    note, *lines, session = (tmp_path / "err").read_text(encoding="ascii").splitlines()
    assert note.startswith("using the small model of this package, which knows coloured shapes only; for real videos: -m ")
    assert lines == [
        r"[00:00:02.000] O\xf9 \xe7a?",
        "6 frames in 1 chunk and 2 waiting, 16 visual tokens held",
        r"[00:00:05.000] Qu\xe9 hay?",
    ]
    assert session.startswith("session ")


def test_a_signal_that_the_caller_ignores_stays_ignored(film: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    process = start("watch", film, "--json-lines", "--end", "2", **streams, preexec_fn=ignore)
    assert process.stdout
    assert json.loads(process.stdout.readline())["type"] == "start"
    process.send_signal(signal.SIGHUP)
    process.communicate(b"", timeout=120)
    assert process.returncode == 0


def test_trouble_with_standard_error_loses_no_answer(film: Path) -> None:
    reader, closed = os.pipe()
    os.close(reader)
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        arguments = ["ask", str(film), "what", "--end", "2", "--progress", "plain", "-v"]
        processes = [start(*arguments, stdout=subprocess.PIPE, stderr=error) for error in (full, closed)]
        answers = [process.communicate(b"", timeout=120)[0] for process in processes]
    os.close(closed)
    assert [process.returncode for process in processes] == [0, 0]
    assert all(answer.endswith(b".\n") for answer in answers)


def test_a_film_that_cannot_be_opened_is_reported_without_waiting_for_standard_input() -> None:
    process = start("ask", "nowhere.mp4", stderr=subprocess.PIPE)
    try:
        assert process.wait(timeout=60) == 3
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("error", "code", "said"), [(KeyboardInterrupt(), 130, ""), (ImportError("no libavcodec"), 1, "no libavcodec")]
)
def test_what_ends_the_import_of_the_program_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    class Broken:
        def find_spec(self, *_: object) -> None:
            raise error

    monkeypatch.delitem(sys.modules, "hermes_cli.app")
    monkeypatch.delattr(hermes_cli, "app")
    monkeypatch.setattr(sys, "meta_path", [Broken()])
    assert entry_point() == code
    written = capsys.readouterr().err
    assert said in written
    assert len(written.splitlines()) == (2 if said else 0)


def test_streams_that_cannot_be_written_have_their_exit_codes() -> None:
    reader, closed = os.pipe()
    os.close(reader)
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        processes = {
            "no reader": start("--version", stdout=closed, stderr=subprocess.PIPE),
            "full disk": start("--version", stdout=full, stderr=subprocess.PIPE),
            "full disk for errors": start("--bogus", stderr=full),
        }
        said = {name: process.communicate(timeout=120)[1] for name, process in processes.items()}
    os.close(closed)
    codes = {name: process.returncode for name, process in processes.items()}
    assert codes == {"no reader": 0, "full disk": 5, "full disk for errors": 2}
    assert said["no reader"] == b""
    assert said["full disk"].startswith(b"error: cannot write: No space left on device\n")


def test_a_time_in_a_question_about_the_end_is_refused(
    film: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "00:02 What is on screen?\n50% What is on screen?\nWhat is on screen?\n10 circles?\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert main(["watch", str(film), "--chunk", "4"]) == 2
    written = capsys.readouterr()
    assert len(written.out.splitlines()) == 2
    assert written.err.count("error: questions here are about 00:00:15, the newest frame") == 2
