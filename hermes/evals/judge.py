"""Open answers judged by a language model, through any endpoint that speaks OpenAI's chat completions.

The reply is `{'pred': 'yes' or 'no', 'score': 0 to 5}`, as Video-ChatGPT (arXiv 2306.05424) and RVS have it.
"""

from __future__ import annotations

import ast
import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from hermes.errors import HermesError, UsageError

INSTRUCTION = (
    "You judge answers to questions about a video. You are given a question, the correct answer and a predicted answer. "
    "Decide whether the predicted answer means the same as the correct one; synonyms and paraphrases count. Reply with "
    "nothing but a dictionary of the form {'pred': 'yes', 'score': 4}: pred is 'yes' or 'no', score is an integer from 0 "
    "(no match) to 5 (the same meaning)."
)
_CASE = "Question: {question}\nCorrect answer: {expected}\nPredicted answer: {answer}"

_PASSING = (408, 409, 425, 429, 500, 502, 503, 504)  # statuses that another attempt may not meet


class UnjudgedError(HermesError):
    """The judge gave no verdict this time."""


class _AgainError(UnjudgedError):
    """Worth another attempt."""


@dataclass(frozen=True)
class Verdict:
    """What a judge says of an answer: whether it is right, and how close it is, 0 to 5."""

    right: bool
    score: float


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Following one would show the key to whoever is named there."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


@dataclass(frozen=True)
class Judge:
    """A language model that judges.

    Attributes:
        url: of the endpoint, with or without `/chat/completions`.
        model: its name there.
        key: sent as a bearer token; None sends none. It is in no message and no representation.
        attempts: how often one answer is put to it.
        timeout_s: how long one attempt may take.
        longest_wait_s: between two attempts; the waits double from a sixteenth of it.

    Raises:
        UsageError: the address is not one of HTTP, or has a password in it.
    """

    url: str
    model: str
    key: str | None = None
    attempts: int = 5
    timeout_s: float = 60.0
    longest_wait_s: float = 16.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username or parts.password:
            raise UsageError("--judge-url has a password in it", "give the key in the environment: HERMES_JUDGE_KEY")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--judge-url {self.url!r} is no address", "write it as http://localhost:8000/v1")

    @property
    def name(self) -> str:
        """Who judges, for records."""
        return f"{self.model} at {self.url}"

    def __repr__(self) -> str:
        return f"Judge(url={self.url!r}, model={self.model!r})"

    def verdict(self, question: str, expected: str, answer: str) -> Verdict:
        """Have an answer judged.

        Raises:
            UnjudgedError: no verdict came, after all attempts.
            UsageError: the endpoint refuses, for example because of the key; another answer would fare no better.
        """
        if not answer.strip():
            return Verdict(right=False, score=0.0)
        case = _CASE.format(question=question, expected=expected, answer=answer)
        wait = wait_exponential(multiplier=self.longest_wait_s / 16, max=self.longest_wait_s)
        again = retry_if_exception_type(_AgainError)
        return Retrying(stop=stop_after_attempt(self.attempts), wait=wait, retry=again, reraise=True)(self._once, case)

    def _once(self, case: str) -> Verdict:
        messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": case}]
        content = self._post({"model": self.model, "messages": messages, "temperature": 0, "max_tokens": 64})
        return parse_verdict(content)

    def _post(self, body: dict[str, Any]) -> str:
        address = self.url.rstrip("/")
        address += "" if address.endswith("/chat/completions") else "/chat/completions"
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)  # http or https, see above
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=self.timeout_s) as reply:
                content = json.loads(reply.read(1 << 20))["choices"][0]["message"]["content"]
        except urllib.error.HTTPError as error:
            if error.code in _PASSING:
                raise _AgainError(f"the judge answers {error.code} {error.reason}") from None
            hint = "check --judge-url, --judge-model and HERMES_JUDGE_KEY"
            raise UsageError(f"the judge at {self.url} refuses: {error.code} {error.reason}", hint) from None
        except (OSError, HTTPException) as error:  # a URLError is an OSError
            raise _AgainError(f"the judge cannot be reached: {getattr(error, 'reason', None) or error}") from None
        except (ValueError, LookupError, TypeError):
            raise _AgainError("the judge's reply is no chat completion") from None
        if not isinstance(content, str):
            raise _AgainError("the judge's reply has no text")
        return content


def parse_verdict(reply: str) -> Verdict:
    """The verdict in a reply, as a Python or JSON dictionary; raises `UnjudgedError` where there is none."""
    held = re.search(r"\{[^{}]*\}", reply)
    verdict: Any = None
    for read in (json.loads, ast.literal_eval):
        try:
            verdict = read(held[0]) if held else None
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        break
    if isinstance(verdict, dict):
        pred, score = str(verdict.get("pred")).strip().lower(), verdict.get("score")
        try:
            number = float(score)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = -1.0
        if pred in ("yes", "no") and 0 <= number <= 5:
            return Verdict(pred == "yes", number)
    raise _AgainError("the judge's reply is no verdict")
