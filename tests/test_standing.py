"""Questions that are asked again and again, and captions."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.errors import UsageError
from hermes.tiny.clip import write_clip
from hermes.tiny.world import RandomSource, make_video
from hermes_cli.app import main
from hermes_cli.standing import StandingQuestion, standing_question

MEMORY = ("-m", "tiny", "--chunk", "4", "--budget", "24")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 seconds of the embedded model's world; the scene changes at 4 s and at 10 s."""
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    write_clip(make_video(16, RandomSource(7)), path, size=96)
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


@given(every=st.floats(0.5, 60), gaps=st.lists(st.floats(0.01, 90), min_size=1, max_size=40))
def test_every_interval_is_asked_about_once_and_never_about_what_comes_later(every: float, gaps: list[float]) -> None:
    question, now_s, asked = StandingQuestion(every, "?"), 0.0, list[float]()
    for gap in gaps:
        moment_s = question.due(now_s, now_s + gap)
        if moment_s is not None:
            assert now_s <= moment_s < now_s + gap
            assert moment_s / every == pytest.approx(round(moment_s / every))
            asked.append(moment_s)
        now_s += gap
    assert asked == sorted(set(asked))


def test_a_question_is_asked_again_and_again_and_colours_nothing(run: Run, film: Path) -> None:
    _, plain, _ = run("watch", film, *MEMORY, "--no-save", "--ask", "end What did you see first?")
    code, out, _ = run("watch", film, *MEMORY, "--every", "5s Describe the scene.", "--ask", "end What did you see first?",
                       "--json")  # fmt: skip
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [record["at"] for record in records] == [5.0, 10.0, 15.0]  # the film has no frame after 15 s
    assert [record["question"] for record in records[:2]] == ["Describe the scene."] * 2
    assert records[-1]["answer"] == plain.strip()


def test_until_change_tells_only_what_is_new(run: Run, film: Path) -> None:
    told = run("watch", film, *MEMORY, "--every", "1s What is on screen now?")[1].splitlines()
    news = run("watch", film, *MEMORY, "--every", "1s What is on screen now?", "--until-change")[1].splitlines()
    assert len(told) == 14
    assert news == [line for number, line in enumerate(told) if number == 0 or line != told[number - 1]]
    assert 2 <= len(news) < len(told)


@pytest.mark.parametrize("suffix", ["srt", "vtt", "jsonl", "txt"])
def test_captions_cover_the_film_without_gaps(run: Run, film: Path, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"film.{suffix}"
    code, out, _ = run("caption", film, *MEMORY, "--every", "6s", "-o", file)
    assert (code, out) == (0, "")
    text = file.read_text(encoding="utf-8")
    expected = {
        "srt": [
            "1\n00:00:00,000 --> 00:00:06,000\n",
            "2\n00:00:06,000 --> 00:00:12,000\n",
            "3\n00:00:12,000 --> 00:00:15,000\n",
        ],
        "vtt": ["WEBVTT\n\n00:00:00.000 --> 00:00:06.000\n", "00:00:12.000 --> 00:00:15.000\n"],
        "jsonl": ['"start": 0.0, "end": 6.0', '"start": 12.0, "end": 15.0'],
        "txt": ["[00:00:00.000] ", "[00:00:12.000] "],
    }
    assert all(part in text for part in expected[suffix])
    code, _, told = run("caption", film, *MEMORY, "-o", file)
    assert (code, file.read_text(encoding="utf-8")) == (2, text)
    assert "--force" in told


@pytest.mark.parametrize("written", ["", "10s", "0s What?", "-5s What?", "often What?", "50% What?", "end What?"])
def test_what_is_no_interval_and_question_is_refused(written: str) -> None:
    with pytest.raises(UsageError) as refused:
        standing_question(written)
    assert '--every "10s ' in refused.value.hint


def test_an_interval_and_a_question_apart_are_told_how_to_be_written(run: Run) -> None:
    code, _, told = run("watch", "nowhere.mp4", "--every", "10s", "Is anyone there?")
    assert (code, '--every "10s QUESTION"' in told) == (2, True)


def test_an_unknown_format_is_refused_before_the_film_is_opened(run: Run, tmp_path: Path) -> None:
    code, _, told = run("caption", "nowhere.mp4", "-o", tmp_path / "film.doc")
    assert code == 2
    assert ".srt" in told
