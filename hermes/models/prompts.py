"""How a system prefix, the video and a question become one token stream.

The default splits the checkpoint's own chat template at its video placeholder, so that a streamed video reads exactly as
in a plain call of the model. `released` gives the literals of the authors' code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hermes.errors import ModelError

STYLES = ("template", "released")

_QUESTION = "\N{OBJECT REPLACEMENT CHARACTER}question\N{OBJECT REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Prompt:
    """A prompt around a stream of video.

    Attributes:
        tokenizer: the checkpoint's tokenizer.
        prefix: text before the video; read once and never forgotten.
        before: text between the video and the question.
        after: text between the question and the answer.
        ends_video: whether the model's end-of-video embedding goes between the video and `before`.
    """

    tokenizer: Any
    prefix: str
    before: str
    after: str
    ends_video: bool

    def prefix_ids(self) -> list[int]:
        """Token ids before the video."""
        return self._with_controls(self.prefix)

    def question_ids(self, question: str) -> list[int]:
        """Token ids from the end of the video to the start of the answer.

        Control tokens spelled out in the question stay text. The question is tokenized together with the plain text that
        touches it, as the tokenizer would do in one piece.
        """
        head, touching_before = _cut_after_last(self.before, self._control_tokens())
        touching_after, tail = _cut_before_first(self.after, self._control_tokens())
        plain = touching_before + question + touching_after
        ids: list[int] = self.tokenizer.encode(plain, add_special_tokens=False, split_special_tokens=True)
        return self._with_controls(head) + ids + self._with_controls(tail)

    def _with_controls(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False) if text else []
        return ids

    def _control_tokens(self) -> list[str]:
        added = self.tokenizer.get_added_vocab()
        return list(added) or list(self.tokenizer.all_special_tokens)


def from_template(processor: Any, video_token: str) -> Prompt:
    """The checkpoint's chat template, split at the video placeholder; raises `ModelError` when it cannot be split."""
    content = [{"type": "video"}, {"type": "text", "text": _QUESTION}]
    hint = "try --prompt-style released"
    try:
        text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    except Exception as error:  # a template is a program that comes with the checkpoint
        raise ModelError(f"the checkpoint's chat template is missing or broken: {error}", hint) from error
    prefix, video, rest = text.partition(video_token)
    before, marker, after = rest.partition(_QUESTION)
    if not (video and marker):
        raise ModelError("the checkpoint's chat template has no place for a video and a question", hint)
    return Prompt(processor.tokenizer, prefix, before, after, ends_video=True)


RELEASED_LLAVA = "<|im_start|>system \nYou are a helpful assistant.<|im_end|><|im_start|>user "
RELEASED_QWEN = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
"""What the two paths of the authors' code put before the video."""


def released(tokenizer: Any, prefix: str) -> Prompt:
    """The literals of the authors' code, with the prefix of one of its paths."""
    return Prompt(
        tokenizer,
        prefix=prefix,
        before="\n",
        after="<|im_end|><|im_start|>assistant\n",
        ends_video=False,
    )


def _cut_after_last(text: str, tokens: Sequence[str]) -> tuple[str, str]:
    """Split behind the last control token."""
    cut = max((text.rfind(token) + len(token) for token in tokens if token in text), default=0)
    return text[:cut], text[cut:]


def _cut_before_first(text: str, tokens: Sequence[str]) -> tuple[str, str]:
    """Split in front of the first control token."""
    cut = min((text.find(token) for token in tokens if token in text), default=len(text))
    return text[:cut], text[cut:]
