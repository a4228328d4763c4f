"""Benchmarks end to end with the embedded model: what a question sees, what is kept, and how a run ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hermes.config import MemoryConfig, Sampling
from hermes.engine import StreamEngine
from hermes.errors import UsageError
from hermes.evals.benchmark import Asking, Reply, by_video, run_benchmark
from hermes.evals.judge import Judge, UnjudgedError, Verdict, parse_verdict
from hermes.evals.multiple_choice import Wording
from hermes.evals.question import Clip, Question
from hermes.frames import Frame
from hermes.models import VideoModel, load_model
from hermes.tiny import checkpoint_folder
from hermes_cli.app import main
from tests import clips, datasets

SMALL = ["--budget", "16", "--chunk", "4", "-m", "tiny", "--device", "cpu"]
SHORT = Sampling(max_new_tokens=16, evidence=False)


@pytest.fixture(scope="module")
def tiny() -> VideoModel:
    return load_model(checkpoint_folder(), device="cpu")


def open_question(clip: Clip, at_s: float | None, text: str = "What did you see first?") -> Question:
    return Question(f"{clip.path.name}/{at_s}/{text}", clip, at_s, text, None, "A ring.", None, "all")


def replies(model: VideoModel, questions: list[Question], fps: float = 1.0) -> list[Reply]:
    config, asking = MemoryConfig(budget=16, chunk_frames=4), Asking(fps, Wording(), SHORT, SHORT)
    events = list(run_benchmark(model, config, ["hermes"], by_video(questions), asking))
    assert all(isinstance(event, Reply) for event in events)
    return [event for event in events if isinstance(event, Reply)]


def test_an_answer_is_that_of_a_video_cut_at_its_moment(tiny: VideoModel, tmp_path: Path) -> None:
    texts = ["What is on screen now?", "What was there before this scene?", "What did you see first?"]
    whole = Clip(datasets.film(tmp_path / "whole.mp4", 24))
    # Out of order, so that sorting is seen too.
    asked = [open_question(whole, at_s, text) for at_s in (17.0, 9.0, 20.6, 3.0) for text in texts]
    streamed = {reply.question.id: reply for reply in replies(tiny, asked)}
    for question in asked:
        assert question.at_s is not None
        cut = Clip(whole.path, end_s=int(question.at_s) + 0.5)  # after the last frame that may be seen, before the next one
        (alone,) = replies(tiny, [open_question(cut, None, question.question)])
        with_others = streamed[question.id]
        assert (with_others.answer.text, with_others.frames) == (alone.answer.text, int(question.at_s) + 1)
        assert with_others.answer.at_s == int(question.at_s)
    assert len({reply.answer.text for reply in streamed.values()}) > 3  # or the comparison would say nothing


def test_no_question_colours_what_is_remembered_after_it(
    tiny: VideoModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, push, colours = Clip(datasets.film(tmp_path / "a.mp4")), StreamEngine.push, []

    def watched(engine: StreamEngine, frame: Frame) -> Any:
        colours.append(engine.last_exchange)
        return push(engine, frame)

    monkeypatch.setattr(StreamEngine, "push", watched)
    replies(tiny, [open_question(clip, 2.0), open_question(clip, None)])
    assert colours == [None] * 8


def test_a_clip_begins_and_ends_where_it_should(tiny: VideoModel, tmp_path: Path) -> None:
    path = clips.clip(tmp_path / "numbered.mp4", clips.steady(80))
    clip = Clip(path, start_s=2.0, end_s=5.0)
    early, within, end, late = replies(tiny, [open_question(clip, at_s) for at_s in (1.0, 3.5, None, 60.0)])[:4]
    assert (early.frames, early.answer.at_s, early.note) == (0, None, "asked before the first frame")
    assert (within.frames, within.answer.at_s, within.note) == (2, 3.0, "")
    at_end = {reply.question.at_s: reply for reply in (end, late)}
    assert (at_end[None].frames, at_end[None].answer.at_s, at_end[None].note) == (3, 4.0, "")
    assert "after the end of the video; asked at 4 s" in at_end[60.0].note


def records(path: Path) -> list[dict[str, Any]]:
    return [record for line in path.read_text().splitlines() if (record := json.loads(line))["type"] == "sample"]


def evaluate(name: str, folder: Path, *more: str) -> int:
    return main(["eval", name, "--data", str(folder), *SMALL, *more])


@pytest.mark.parametrize(
    ("name", "asked"),
    [("streamingbench", 4), ("ovobench", 3), ("unified", 4), ("videomme", 1), ("mvbench", 2), ("egoschema", 1)],
)
def test_every_format_runs(name: str, asked: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make: Callable[[Path], Path] = getattr(datasets, name)
    (tmp_path / "data").mkdir()
    out = tmp_path / "results.jsonl"
    assert evaluate(name, make(tmp_path / "data"), "--policy", "full,fifo", "-o", str(out)) == 0
    table = capsys.readouterr().out
    kept = records(out)
    assert [record["policy"] for record in kept].count("full") == asked and len(kept) == 2 * asked
    assert all({"official", "right", "answer", "at_s", "letter"} <= record.keys() for record in kept)
    assert f"Answers: {2 * asked}" in table and "all questions alike" in table
    assert f"n = {sum(r['right'] is not None for r in kept) // 2})" in table


def test_the_summary_as_json_says_what_every_average_is_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate("ovobench", datasets.ovobench(tmp_path), "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert [average["average"] for average in summary["averages"]] == [
        "mean of 3 tasks",
        "mean of the tasks of backward",
        "mean of the tasks of real-time",
        "mean of the means of backward and real-time",
    ]
    assert summary["settings"]["left_out"] == {"forward task REC": 3}
    assert summary["settings"]["memory"]["budget"] == 16


def test_a_run_goes_on_where_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = datasets.streamingbench(tmp_path), tmp_path / "results.jsonl"
    evaluate("streamingbench", folder, "-o", str(tmp_path / "whole.jsonl"))
    whole = capsys.readouterr().out
    with monkeypatch.context() as patch:
        ask, asked = StreamEngine.ask, []

        def interrupted(self: StreamEngine, *args: Any, **kwargs: Any) -> Any:
            asked.append(args)
            if len(asked) == 3:
                raise KeyboardInterrupt
            return ask(self, *args, **kwargs)

        patch.setattr(StreamEngine, "ask", interrupted)
        assert evaluate("streamingbench", folder, "-o", str(out)) == 130
    assert len(records(out)) == 2
    assert "Answers: 2;" in capsys.readouterr().out
    assert evaluate("streamingbench", folder, "-o", str(out)) == 2
    assert "is there already" in capsys.readouterr().err
    assert evaluate("streamingbench", folder, "-o", str(out), "--resume", "--fps", "2") == 2
    assert "other settings (asking)" in capsys.readouterr().err
    assert evaluate("streamingbench", folder, "-o", str(out), "--resume") == 0
    assert capsys.readouterr().out == whole
    assert [r["id"] for r in records(out)] == [r["id"] for r in records(tmp_path / "whole.jsonl")]


def test_a_broken_video_costs_its_own_questions_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = datasets.streamingbench(tmp_path), tmp_path / "results.jsonl"
    broken = folder / "real/sample_1/video.mp4"
    good = broken.read_bytes()
    broken.write_bytes(good[:100])
    assert evaluate("streamingbench", folder, "-o", str(out)) == 6
    shown = capsys.readouterr()
    assert [line for line in shown.err.splitlines() if "sample_1/video.mp4" in line] == [
        f"warning: {broken}: MP4 index (moov) missing, the file is incomplete; hermes: 2 questions not asked"
    ]
    assert "Answers: 2;" in shown.out and "not asked: 2;" in shown.out
    broken.write_bytes(good)
    assert evaluate("streamingbench", folder, "-o", str(out), "--resume") == 0
    assert len(records(out)) == 4


def test_questions_about_what_is_missing_of_a_video_are_not_asked(tmp_path: Path) -> None:
    film = clips.clip(tmp_path / "a.mkv", clips.steady(60), gop=10)
    clips.cut(film, 0.5)
    rows = [{"question": "What?", "answer": "x", **({} if at is None else {"end_time": at})} for at in (1.0, 5.5, None)]
    datasets.write_json(tmp_path / "annotations.json", [{"video_id": "a", "video_path": "a.mkv", "conversations": rows}])
    out = tmp_path / "results.jsonl"
    assert evaluate("unified", tmp_path, "-o", str(out)) == 6
    assert [record["at_s"] for record in records(out)] == [1.0]


def test_what_is_missing_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate("egoschema", tmp_path / "nowhere") == 2
    assert evaluate("egoschema", tmp_path) == 3
    assert f"looked for {tmp_path}/questions.json" in capsys.readouterr().err
    datasets.egoschema(tmp_path)
    (tmp_path / "videos/u-1.mp4").unlink()
    assert evaluate("egoschema", tmp_path) == 3
    captured = capsys.readouterr()
    assert "none of the 1 videos is there: looked for" in captured.err and captured.out == ""


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "a/b", "/"])
def test_a_shard_that_is_none_is_refused(shard: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate("unified", tmp_path, "--shard", shard) == 2
    assert "is no part of the videos" in capsys.readouterr().err


def test_parts_together_are_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = datasets.streamingbench(tmp_path), tmp_path / "results.jsonl"
    evaluate("streamingbench", folder)
    whole = capsys.readouterr().out
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        assert evaluate("streamingbench", folder, "-o", str(out)) == 0
        assert capsys.readouterr().out == ""
    assert evaluate("streamingbench", folder) == 2  # nowhere to put results
    parts = [str(tmp_path / f"results.rank{rank}.jsonl") for rank in (0, 1)]
    assert [len(records(Path(part))) for part in parts] == [2, 2]
    capsys.readouterr()
    assert main(["eval", "merge", *parts]) == 0
    merged = capsys.readouterr()
    assert (merged.out, merged.err) == (whole, "")
    assert main(["eval", "merge", parts[0]]) == 0
    assert "2 of 4 questions have no answer" in capsys.readouterr().err
    monkeypatch.delenv("WORLD_SIZE")
    assert evaluate("streamingbench", folder, "--fps", "2", "-o", str(out)) == 0
    assert main(["eval", "merge", parts[0], str(out)]) == 2
    assert "other settings" in capsys.readouterr().err
    assert main(["eval", "merge", str(folder / "questions_real.json")]) == 2


class Endpoint:
    """A chat endpoint on this machine that gives its replies in order, the last one for ever; remembers what it was sent."""

    def __init__(self, *replies: str | int) -> None:
        self.replies, self.bodies, self.keys = list(replies), list[dict[str, Any]](), list[str | None]()

    def next(self) -> str | int:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def serving(endpoint: Endpoint) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            endpoint.keys.append(self.headers["Authorization"])
            endpoint.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            reply = endpoint.next() if self.path == "/v1/chat/completions" else 404
            self.send_response(reply if isinstance(reply, int) else 200)
            if reply == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            if isinstance(reply, str):
                self.wfile.write(json.dumps({"choices": [{"message": {"content": reply}}]}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_judge_is_asked_again_until_it_gives_a_verdict() -> None:
    endpoint = Endpoint(503, 429, "I would say yes.", "{'pred': 'yes', 'score': 4}")
    with serving(endpoint) as url:
        judge = Judge(url, "judge-1", "secret", longest_wait_s=0.0)
        assert judge.verdict("What?", "A ring.", "A green ring.") == Verdict(right=True, score=4.0)
        assert endpoint.keys == ["Bearer secret"] * 4 and "secret" not in repr(judge)
        assert endpoint.bodies[0]["model"] == "judge-1"
        assert "A green ring." in endpoint.bodies[0]["messages"][1]["content"]
        assert judge.verdict("What?", "A ring.", "  ") == Verdict(right=False, score=0.0)  # nothing to judge
        assert len(endpoint.keys) == 4
        endpoint.replies = ["perhaps"]
        with pytest.raises(UnjudgedError, match="no verdict"):
            judge.verdict("What?", "A ring.", "A ring.")
        for refusal in (401, 302):  # a redirect would take the key elsewhere
            endpoint.replies, before = [refusal], len(endpoint.keys)
            with pytest.raises(UsageError, match=f"refuses: {refusal}"):
                judge.verdict("What?", "A ring.", "A ring.")
            assert len(endpoint.keys) == before + 1
    with pytest.raises(UnjudgedError, match="cannot be reached"):
        Judge(url, "judge-1", attempts=2, longest_wait_s=0.0).verdict("What?", "A ring.", "A ring.")


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ('{"pred": "no", "score": 1}', Verdict(False, 1.0)),
        ("Here it is: {'pred': 'Yes', 'score': '5'}.", Verdict(True, 5.0)),
        ("{'pred': 'yes', 'score': 9}", None),
        ("{'pred': 'maybe', 'score': 2}", None),
        ("{'pred': 'yes'}", None),
        ("{'pred': __import__('os').getcwd(), 'score': 1}", None),
        ("{'pred': 'yes', 'score': nan}", None),
        ("yes", None),
        ("[1]", None),
    ],
)
def test_a_verdict_is_read_and_never_run(reply: str, verdict: Verdict | None) -> None:
    if verdict is None:
        with pytest.raises(UnjudgedError):
            parse_verdict(reply)
    else:
        assert parse_verdict(reply) == verdict


@pytest.mark.parametrize("url", ["ftp://x/v1", "file:///etc/passwd", "localhost", "http://user:pass@host/v1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        Judge(url, "judge-1")
    assert "pass@" not in refused.value.message


def test_open_answers_are_judged_and_an_unjudged_one_is_judged_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = datasets.unified(tmp_path, "ego4d_oe.json"), tmp_path / "results.jsonl"
    monkeypatch.setenv("HERMES_JUDGE_KEY", "secret-key")
    endpoint = Endpoint("{'pred': 'yes', 'score': 5}", 401)
    with serving(endpoint) as url:
        judged = ["-o", str(out), "--judge-url", url, "--judge-model", "judge-1"]
        assert evaluate("rvs-ego", folder, *judged) == 2
        assert "refuses: 401" in capsys.readouterr().err
        assert [record["judged"] for record in records(out) if record["open"]] == [True, None]  # the answer is kept
        endpoint.replies = ["{'pred': 'no', 'score': 2}"]
        assert evaluate("rvs-ego", folder, *judged, "--resume") == 0
        other = [*judged[:-1], "judge-2"]
        assert evaluate("rvs-ego", folder, *other, "--resume") == 2
    shown = capsys.readouterr()
    assert "33.3 %" in shown.out and "3.00 of 5" in shown.out  # yes 5, no 2, no 2
    assert f"the results hold verdicts of judge-1 at {url}" in shown.err
    latest = {record["id"]: record for record in records(out)}
    assert sorted((r["judged"] is None, r["judge_score"]) for r in latest.values() if r["open"]) == [
        (False, 2.0),
        (False, 2.0),
        (False, 5.0),
    ]
    assert "secret-key" not in out.read_text() + shown.out + shown.err
    assert len({record["answer"] for record in latest.values()}) > 1


def test_a_judge_that_is_gone_is_not_waited_for_again_and_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = datasets.ovobench(tmp_path), tmp_path / "results.jsonl"
    endpoint = Endpoint("no verdict")
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    monkeypatch.setattr("hermes_cli.marking.FAILURES", 2)
    with serving(endpoint) as url:
        assert evaluate("ovobench", folder, "--open", "-o", str(out), "--judge-url", url, "--judge-model", "x") == 6
    assert len(endpoint.bodies) == 2 * Judge.attempts
    assert len(records(out)) == 3
    assert "3 answers not judged" in capsys.readouterr().err


def test_without_a_judge_open_answers_are_kept_and_can_be_judged_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = datasets.ovobench(tmp_path), tmp_path / "results.jsonl"
    assert evaluate("ovobench", folder, "--open", "-o", str(out)) == 0
    shown = capsys.readouterr()
    assert "recorded without a score" in shown.err and "open answers without a score: 3" in shown.out
    assert all(record["open"] and record["choices"] is None and record["right"] is None for record in records(out))
    assert evaluate("ovobench", folder, "--judge-model", "x") == 2
    endpoint = Endpoint("{'pred': 'no', 'score': 0}")
    with serving(endpoint) as url:
        judged = ["--judge-url", url, "--judge-model", "judge-1"]
        assert evaluate("ovobench", folder, "--open", "-o", str(out), "--resume", *judged) == 0
    assert "0.0 % (0.0 to 56.1, n = 3) | 0.00 of 5 |" in capsys.readouterr().out
    assert [record["judged"] for record in records(out)] == [None] * 3 + [False] * 3
