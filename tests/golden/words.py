"""The word tokenizer that the end-to-end recordings were made with."""

from __future__ import annotations

import re
from typing import Any


class WordTokenizer:
    """Words and punctuation marks from a recorded vocabulary; the word `t17` is token 17; anything else is dropped."""

    all_special_tokens = ("<|im_start|>", "<|im_end|>")

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._ids = vocabulary

    def get_added_vocab(self) -> dict[str, int]:
        """The control tokens."""
        return {token: self._ids[token] for token in self.all_special_tokens}

    def encode(self, text: str, **kwargs: Any) -> list[int]:
        """Text to ids."""
        words = re.findall(r"<\|\w+\|>|\w+|[^\w\s]", text)
        return [self._ids[word] if word in self._ids else int(word[1:]) for word in words]

    def decode(self, ids: list[int], **kwargs: Any) -> str:
        """Ids to text."""
        return " ".join(f"t{token}" for token in ids)
