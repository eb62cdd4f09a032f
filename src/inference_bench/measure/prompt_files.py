"""Prompts that were written by others: a file of JSON lines, or one JSON array as ShareGPT's is.

In:   a path
Out:  FilePrompts: messages, and how long the answer may be; lengths as a workload wants them
Leaves out: true token counts, which only a server has; what is here is an estimate until it has counted
Read next by: prompts, loadtest.

Of each record the first of these that it has is the prompt: `messages` (OpenAI's), `conversations` (ShareGPT's: up to
the first answer), `prompt`, `text`. The answer's length is `max_tokens`, `max_output_tokens`, `output_tokens` or
`output_len`, else that of the recorded answer: the assistant's message after the prompt, `completion`, `response` or
`answer`. Nothing else in a record is read, and nothing in it is executed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NoReturn

from inference_bench.errors import RequestError
from inference_bench.files import open_regular, shown_name
from inference_bench.measure.target_body import Message, plain_text
from inference_bench.units import KIBI, MEBI
from inference_bench.workload import RequestShape
from inference_bench.workload.trace_source import Record, Shape, TraceSource, open_source

MAX_PROMPTS_BYTES: Final = 1024 * MEBI
MAX_TEXT_BYTES: Final = 256 * MEBI
MAX_PROMPT_CHARS: Final = 4 * MEBI
MAX_OUTPUT_TOKENS: Final = MEBI
DEFAULT_OUTPUT_TOKENS: Final = 128
CHARS_PER_TOKEN: Final = 4.0  # of English, about: a stated guess, replaced by the server's count
LEAST_CHARS_PER_TOKEN: Final = 2.0

_LENGTH_FIELDS: Final = ("max_tokens", "max_output_tokens", "output_tokens", "output_len")
_ANSWER_FIELDS: Final = ("completion", "response", "answer")
_SHAREGPT_ROLES: Final = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "bing": "assistant", "bard": "assistant", "system": "system",
}  # fmt: skip
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class FilePrompt:
    """One prompt of a file: its messages, and how many tokens the answer may have, None where the record does not say."""

    messages: tuple[Message, ...]
    output_tokens: int | None = None

    def shape(self, otherwise: int) -> RequestShape:
        """Its lengths, the prompt's estimated from its characters."""
        num_chars = sum(len(message.content) for message in self.messages)
        return RequestShape(_estimate_tokens(num_chars), self.output_tokens or otherwise)


@dataclass(frozen=True, slots=True)
class FilePrompts(Sequence[FilePrompt]):
    """All prompts of a file, in its order. `num_skipped` conversations had no question that was answered."""

    name: str
    entries: tuple[FilePrompt, ...] = field(repr=False)
    num_skipped: int = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: Any) -> Any:
        return self.entries[index]

    def shapes(self, count: int | None = None, output_tokens: int | None = None) -> tuple[RequestShape, ...]:
        """Lengths of the first `count` prompts, in order; the file begins anew at its end.

        Where:    output_tokens is for prompts whose record does not say
        """
        otherwise = output_tokens or DEFAULT_OUTPUT_TOKENS
        wanted = len(self) if count is None else count
        return tuple(self.entries[number % len(self)].shape(otherwise) for number in range(wanted))

    def shared_tokens(self) -> tuple[int, ...]:
        """For each prompt, at most how many tokens begin another one of the file too; a cache may well hold those.

        Formula:  the longest beginning that it has in common with any other, in characters / 2
        """
        texts = [plain_text(entry.messages) for entry in self.entries]
        order = sorted(range(len(texts)), key=texts.__getitem__)
        shared = [0] * len(texts)
        for first, second in pairwise(order):
            num_chars = _count_alike(texts[first], texts[second])
            for index in (first, second):
                shared[index] = max(shared[index], math.ceil(num_chars / LEAST_CHARS_PER_TOKEN))
        return tuple(shared)


class _Unanswered(Exception):
    """A conversation without a question that was answered."""


def read_prompt_file(path: Path, limit: int | None = None) -> FilePrompts:
    """The prompts of a JSON Lines file or a JSON array, the first `limit` of them.

    Raises:   RequestError, naming the line, for what is not a prompt; for a file without one, or too large a one
    """
    _require_content(path)
    source = open_source(path)
    if source.shape is Shape.CSV:
        raise RequestError(f"{shown_name(path)} is neither JSON Lines nor a JSON array; give one of the two")
    if path.stat().st_size > MAX_PROMPTS_BYTES:
        raise RequestError(f"{shown_name(path)} is larger than {MAX_PROMPTS_BYTES // MEBI} MiB; give a part of it")
    entries: list[FilePrompt] = []
    num_skipped = num_chars = 0
    for record in source.records():
        try:
            entries.append(entry := _Reader(source, record).read())
        except _Unanswered:
            num_skipped += 1
            continue
        num_chars += sum(len(message.content) for message in entry.messages)
        if num_chars > MAX_TEXT_BYTES:
            _refuse(
                source,
                record,
                f"the prompts up to here hold over {MAX_TEXT_BYTES // MEBI} Mi characters; ask for fewer",
            )
        if len(entries) == limit:
            break
    if not entries:
        raise RequestError(
            f"{shown_name(path)} holds no prompt ({num_skipped} conversations without an answered question)"
        )
    return FilePrompts(path.name, tuple(entries), num_skipped)


def _require_content(path: Path) -> None:
    try:
        with open_regular(path) as file:
            is_empty = not file.read(KIBI).strip()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RequestError(f"the prompt file {shown_name(path)!r} cannot be read: {reason}") from None
    except ValueError:  # a null character
        raise RequestError(f"the prompt file {shown_name(path)!r} is not the path of a file") from None
    if is_empty:
        raise RequestError(f"the prompt file {shown_name(path)!r} is empty or begins with nothing but space")


def _refuse(source: TraceSource, record: Record, detail: str) -> NoReturn:
    raise RequestError(f"{source.place(record.number)}: {detail}")


def _estimate_tokens(num_chars: int) -> int:
    return max(1, math.ceil(num_chars / CHARS_PER_TOKEN))


def _count_alike(first: str, second: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))


class _Reader:
    """One record; what it holds is never repeated in a message."""

    def __init__(self, source: TraceSource, record: Record) -> None:
        self._source, self._record = source, record
        self._values: Mapping[str, Any] = record.values

    def read(self) -> FilePrompt:
        if self._values.get("messages") is not None:
            messages, answer = self._split(self._messages("messages", "role", "content"))
        elif self._values.get("conversations") is not None:
            messages, answer = self._first_exchange(self._messages("conversations", "from", "value"))
        else:
            messages, answer = (Message("user", self._prompt_text()),), None
        if not messages or messages[-1].role not in ("user", "tool"):
            self._refuse("the messages hold no question: the last before the answer must be the user's")
        if sum(len(message.content) for message in messages) > MAX_PROMPT_CHARS:
            self._refuse(f"the prompt has more than {MAX_PROMPT_CHARS} characters")
        return FilePrompt(messages, self._output_tokens(answer))

    def _prompt_text(self) -> str:
        for name in ("prompt", "text"):
            if self._values.get(name) is not None:
                return self._text(self._values[name], name)
        self._refuse("no prompt in it; a record has one of messages, conversations, prompt, text")

    def _messages(self, name: str, role_name: str, text_name: str) -> list[Message]:
        value = self._values[name]
        if not isinstance(value, list):
            self._refuse(f"{name!r} must be a list")
        messages = []
        for entry in value:
            if not isinstance(entry, dict):
                self._refuse(f"{name!r} must be a list of objects")
            role = self._role(entry.get(role_name), f"{role_name!r} in {name!r}", name)
            messages.append(
                Message(role, self._text(entry.get(text_name), text_name, may_be_empty=role == "assistant"))
            )
        return messages

    def _role(self, value: object, what: str, form: str) -> str:
        known: Mapping[str, str] = (
            _SHAREGPT_ROLES if form == "conversations" else dict(zip(_ROLES, _ROLES, strict=True))
        )
        if not isinstance(value, str) or value not in known:
            self._refuse(f"{what} must be one of {', '.join(known)}")
        return known[value]

    def _split(self, messages: list[Message]) -> tuple[tuple[Message, ...], str | None]:
        """The messages before the last answer, and that answer where the conversation ends with one."""
        if messages and messages[-1].role == "assistant":
            return tuple(messages[:-1]), messages[-1].content
        return tuple(messages), None

    def _first_exchange(self, messages: list[Message]) -> tuple[tuple[Message, ...], str]:
        """The first question with what stands before it, and its answer; answers to nothing in front are passed over."""
        kept: list[Message] = []
        for message in messages:
            if message.role != "assistant":
                kept.append(message)
            elif kept and kept[-1].role == "user":
                return tuple(kept), message.content
        raise _Unanswered

    def _output_tokens(self, answer: str | None) -> int | None:
        for name in _LENGTH_FIELDS:
            if (value := self._values.get(name)) is not None:
                if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_OUTPUT_TOKENS:
                    self._refuse(f"{name!r} must be a whole number from 1 to {MAX_OUTPUT_TOKENS}")
                return value
        if answer is None:
            texts = (self._values.get(name) for name in _ANSWER_FIELDS)
            answer = next((text for text in texts if isinstance(text, str)), None)
        return min(MAX_OUTPUT_TOKENS, _estimate_tokens(len(answer))) if answer else None

    def _text(self, value: object, name: str, may_be_empty: bool = False) -> str:
        if not isinstance(value, str):
            self._refuse(f"{name!r} must be text")
        if not (value.strip() or may_be_empty):
            self._refuse(f"{name!r} is empty")
        try:
            value.encode()
        except UnicodeEncodeError:
            self._refuse(f"{name!r} holds half a character, which no server can be sent")
        return value

    def _refuse(self, detail: str) -> NoReturn:
        _refuse(self._source, self._record, detail)
