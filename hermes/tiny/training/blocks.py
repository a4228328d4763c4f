"""A question and its answer as the tokens that follow the video in the prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tokenizers import Tokenizer

from hermes.tiny.language import SYSTEM_PREFIX
from hermes.tiny.world import COLORS, SHAPES

PREFIX_TOKENS = 14  # of SYSTEM_PREFIX, before the video
ROW_TOKENS = 98  # blocks are packed into rows of so many tokens


@dataclass(frozen=True, slots=True)
class Block:
    """Tokens from the end of the video to the end of the answer, and where in them the answer begins."""

    tokens: list[int]
    answer_start: int


class BlockEncoder:
    """Builds blocks as the chat template does: end of the video, QUESTION, start of the assistant's turn, ANSWER."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.encode: Callable[[str], tuple[int, ...]] = lru_cache(maxsize=100_000)(
            lambda text: tuple(tokenizer.encode(text).ids)
        )
        self.pad = self.encode("<|endoftext|>")[0]
        self.newline = self.encode("<video>")[0]  # stands for the model's image_newline vector
        self.prefix = list(self.encode(SYSTEM_PREFIX))
        assert len(self.prefix) == PREFIX_TOKENS
        self.then = self.encode(" then")[-1]
        self.naming = {self.encode(" " + word)[-1] for word in COLORS + SHAPES}
        self._end = self.encode("<|im_end|>")[0]
        self._tail = self.encode("<|im_end|>\n<|im_start|>assistant\n")

    def block(self, question: str, answer: str, newline: bool = True, lead: str = "\n") -> Block:
        """Encode a question with its answer.

        Args:
            question: the text typed.
            answer: its answer; "" for a prompt, whose block still ends with `<|im_end|>`.
            newline: whether the token that ends a video in LLaVA-OneVision comes first.
            lead: what the template puts between video and question; guidance prompts come without.
        """
        prompt = [self.newline] * newline + [*self.encode(lead + question), *self._tail]
        return Block([*prompt, *self.encode(answer), self._end], len(prompt))

    def named_at(self, block: Block) -> list[int]:
        """Places in the question of the last token of every colour and shape."""
        return [i for i, token in enumerate(block.tokens[: block.answer_start]) if token in self.naming]
