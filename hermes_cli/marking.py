"""The answers of a benchmark: asked, scored by every rule, and kept as they come."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from hermes.config import MemoryConfig
from hermes.errors import UsageError
from hermes.evals.datasets import Benchmark
from hermes.evals.judge import Judge, UnjudgedError
from hermes.evals.multiple_choice import chosen, means_right
from hermes.evals.question import LETTERS, Question
from hermes_cli.terminal import clean

if TYPE_CHECKING:
    from hermes.evals.benchmark import Asking, Reply, Unasked
    from hermes.evals.journal import Journal
    from hermes.models import VideoModel


FAILURES = 5
"""Answers in a row without a verdict after which a judge is not waited for any longer."""


class Marking:
    """Scores what is answered, and keeps it.

    Attributes:
        counts: by name, questions that could not be asked, and open answers that the judge said nothing about.
    """

    def __init__(self, benchmark: Benchmark, asking: Asking, judge: Judge | None, journal: Journal) -> None:
        self._benchmark, self._asking, self._judge, self._journal = benchmark, asking, judge, journal
        self._failures = 0  # of the judge, in a row
        judges = {str(record["judge"]) for record in journal.done.values() if record.get("judge")}
        if judge is not None and judges - {judge.name}:
            raise UsageError(f"the results hold verdicts of {' and '.join(judges)}", "use the same judge, or another file")
        self.counts = {"not_asked": 0, "unjudged": 0}

    def records(self, policies: Sequence[str], videos: Sequence[Sequence[Question]]) -> list[dict[str, Any]]:
        """The records of these questions, as far as there are some; a resumed file may hold others."""
        from hermes.evals.benchmark import sample_id  # noqa: PLC0415 - loads torch

        wanted = [sample_id(policy, question) for policy in policies for video in videos for question in video]
        return [self._journal.done[name] for name in wanted if name in self._journal.done]

    def judge_again(self) -> None:
        """Have answers judged that an earlier run kept without a verdict."""
        if self._judge is None:
            return
        for record in list(self._journal.done.values()):
            if record.get("open") and record.get("judged") is None:
                self._keep(dict(record))

    def over(
        self, model: VideoModel, config: MemoryConfig, policies: Sequence[str], videos: Sequence[Sequence[Question]]
    ) -> None:
        """Ask all questions that have no answer yet."""
        from hermes.evals.benchmark import Reply, Unasked, run_benchmark, sample_id  # noqa: PLC0415 - loads torch

        done = set(self._journal.done)
        total = sum(sample_id(policy, q) not in done for policy in policies for video in videos for q in video)
        console = Console(file=sys.stderr)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            asked = bar.add_task("questions", total=total)
            for event in run_benchmark(model, config, policies, videos, self._asking, done):
                match event:
                    case Reply():
                        self._keep(self._record(event))
                        bar.advance(asked)
                    case Unasked():
                        self._lost(event)
                        bar.advance(asked, len(event.questions))
                    case trouble:
                        warn(f"{trouble.clip.path}: {trouble.notice}")

    def _lost(self, event: Unasked) -> None:
        self.counts["not_asked"] += len(event.questions)
        warn(f"{event.reason}; {event.policy}: {len(event.questions)} questions not asked")

    def _record(self, reply: Reply) -> dict[str, Any]:
        question, answer = reply.question, reply.answer
        is_open = self._asking.is_open(question)
        named = None if is_open or question.choices is None else chosen(answer.text, question.choices)
        return {
            "id": f"{reply.policy}/{question.id}",
            "policy": reply.policy,
            "task": question.task,
            "group": question.group,
            "video": str(question.video.path),
            "clip": [question.video.start_s, question.video.end_s],
            "at_s": question.at_s,
            "asked_at_s": answer.at_s,
            "frames": reply.frames,
            "question": question.question,
            "choices": None if is_open else question.choices,
            "expected": question.answer,
            "letter": None if is_open else question.letter,
            "answer": answer.text,
            "chosen": None if named is None else LETTERS[named],
            "open": is_open,
            "official": None if is_open else self._benchmark.official(answer.text, question),
            "right": None if is_open else means_right(answer.text, question),
            "judged": None,
            "judge_score": None,
            "judge": None,
            "finish_reason": answer.finish_reason,
            "ttft_ms": answer.ttft_ms,
            "note": reply.note or None,
        }

    def _keep(self, record: dict[str, Any]) -> None:
        """Keep a record; an answer is kept before a refusing judge ends the run."""
        try:
            if record["open"] and self._judge is not None:
                self._consult(self._judge, record)
        finally:
            self._journal.add(record)

    def _consult(self, judge: Judge, record: dict[str, Any]) -> None:
        """Add a judge's verdict to a record."""
        self.counts["unjudged"] += 1
        if self._failures == FAILURES:
            return
        try:
            verdict = judge.verdict(record["question"], record["expected"], record["answer"])
        except UnjudgedError as error:
            self._failures += 1
            given_up = "; it is not asked again in this run" if self._failures == FAILURES else ""
            warn(f"{record['id']}: {error.message}{given_up}")
            return
        self._failures = 0
        self.counts["unjudged"] -= 1
        record |= {"judged": verdict.right, "judge_score": verdict.score, "judge": judge.name}


def warn(text: str) -> None:
    """A warning on standard error."""
    sys.stderr.write(f"warning: {clean(text)}\n")


def note(text: str) -> None:
    """Something worth knowing, on standard error."""
    sys.stderr.write(f"note: {clean(text)}\n")
