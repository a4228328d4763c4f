"""How a multiple choice is put to a model, and which option its reply means: by each benchmark's own rule, and by ours.

The rules are those of the benchmarks' published evaluation code, restated. They differ: a reply that begins with "The" is
wrong for StreamingBench, and one that names every letter is right for OVO-Bench.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermes.evals.question import LETTERS, Question

_ARTICLE = re.compile(r"\bI\b|\bA\b(?=\s+(?!and\b|or\b)[a-z])")  # words that are no letters of options

Rule = Callable[[str, Question], bool]
"""Whether a reply to a multiple choice is right."""


@dataclass(frozen=True)
class Wording:
    """How a question and its options are written.

    Attributes:
        option: of one option, with `{letter}` and `{text}`.
        ask: what is asked of the model, between the options and the ending; may be empty.
        ending: the last words before the answer.
        between: stands between two options.
    """

    option: str = "{letter}. {text}"
    ask: str = "Respond with only the letter of the correct option."
    ending: str = ""
    between: str = "\n"

    def prompt(self, question: Question) -> str:
        """The text that is put to the model; an open question stays as it is."""
        if question.choices is None:
            return question.question
        listed = zip(LETTERS, question.choices, strict=False)
        lines = self.between.join(self.option.format(letter=letter, text=text) for letter, text in listed)
        parts = (f"Question: {question.question}", "Options:", lines, self.ask, self.ending)
        return "\n".join(part for part in parts if part)


def first_character(reply: str, question: Question) -> bool:
    """StreamingBench: the reply begins with the letter."""
    return reply[:1] == question.letter


def contains_letter(reply: str, question: Question) -> bool:
    """OVO-Bench: the letter is anywhere in the reply."""
    return question.letter is not None and question.letter in reply


def first_capital(reply: str, question: Question) -> bool:
    """Video-MME: the first of the letters A to D in the reply, phrases such as "The best answer is" taken out."""
    for phrase in ("The best answer is", "The correct answer is", "The answer is", "The answer", "Answer:", "Option:"):
        reply = reply.replace(phrase, "")
    found = re.search(r"[ABCD]", reply)
    return found is not None and found[0] == question.letter


def first_word(reply: str, question: Question) -> bool:
    """MVBench: the reply's first word is part of the bracketed letter or holds it; so an empty reply is right."""
    word, bracketed = reply.lower().split(" ")[0], f"({question.letter})".lower()
    return word.replace(".", "") in bracketed or bracketed in word


def before_bracket(reply: str, question: Question) -> bool:
    """ReKV: the character in front of the first closing bracket, or else the first one."""
    reply = reply.strip()
    place = reply.find(")")
    return (reply[place - 1 : place] if place >= 0 else reply[:1]) == question.letter


def means_right(reply: str, question: Question) -> bool:
    """Our rule: the one option that the reply names (`chosen`) is the right one."""
    return question.choices is not None and question.right is not None and chosen(reply, question.choices) == question.right


def chosen(reply: str, choices: Sequence[str]) -> int | None:
    """Which option a reply names; None where it names none, or more than one.

    In this order: the whole reply is an option's text; it begins with a letter that stands alone ("B", "(B) red", "B: red");
    it says what the answer is ("the best option is B"); it holds one letter in brackets; it holds one option's text; it
    holds one capital letter as a word that is no article. A letter is a capital, unless it is all there is.
    """
    texts = [_plain(choice) for choice in choices]
    letters = LETTERS[: len(choices)]
    if texts.count(_plain(reply)) == 1:
        return texts.index(_plain(reply))
    if len(_plain(reply).strip("()[]")) == 1:
        reply = reply.upper()
    patterns = (
        rf"\s*[(\[*\"']*([{letters}])(?:[)\].:,*\"']|\s*$|\s*\n)",
        rf"(?:answer|option|choice)(?:\s+is)?\s*:?\s*[(\[*\"']*([{letters}])(?![A-Za-z])(?!\s+[a-z])",
    )
    begins = re.match(patterns[0], reply)
    says = re.search(patterns[1], reply, re.IGNORECASE)
    if begins or (says and says[1].isupper()):
        found = begins or says
        assert found is not None
        return letters.index(found[1])
    bracketed = _only(letters, re.findall(rf"\(([{letters}])\)", reply))
    return _named(reply, texts, letters) if bracketed is None else bracketed


def _named(reply: str, texts: Sequence[str], letters: str) -> int | None:
    held = [text for text in texts if text and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", _plain(reply))]
    longest = max(held, key=len, default="")
    if held and all(text in longest for text in held) and texts.count(longest) == 1:
        return texts.index(longest)
    return None if held else _only(letters, re.findall(rf"\b([{letters}])\b", _ARTICLE.sub("", reply)))


def _only(letters: str, found: Sequence[str]) -> int | None:
    return letters.index(found[0]) if len(set(found)) == 1 else None


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(" .").casefold()
