"""What can a reader of the page say? The fields of its forms: their names, defaults, and the options that say the same.

In:   texts as a form or an address holds them
Out:  View and Field descriptions; Values, which reads numbers and says which field is wrong
Leaves out: how a field looks (page.forms); what an answer is (the views)
Read next by: the views, command, page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from inference_bench.errors import QuantityError, RequestError
from inference_bench.units import MEBI, parse_bytes, parse_count, parse_seconds, parse_tokens

Json = dict[str, Any]
Parsed = TypeVar("Parsed")
MAX_FIELD_CHARS: Final = 4096
MAX_CONFIG_CHARS: Final = 4_000_000
MAX_TOKENS: Final = 1 << 40
_MOST_NUMBER_CHARS: Final = 60


class FieldError(Exception):
    """A field whose value cannot be used, with a sentence that says what to do."""

    def __init__(self, name: str | None, message: str) -> None:
        super().__init__(message)
        self.field = name


@dataclass(frozen=True, slots=True)
class Field:
    """One input of a form.

    Where:  implied is what the command line takes when its option is not given; options are the values of a choice with
            what they are called; listed names a list of suggestions; when is "field=value": shown only then;
            power is the largest power of two of a slider, None for other inputs; is_example says that the default belongs
            to the default model and machine, and is emptied when another is chosen
    """

    name: str
    label: str
    default: str = ""
    hint: str = ""
    option: str | None = None
    implied: str = ""
    options: tuple[tuple[str, str], ...] = ()
    listed: str | None = None
    when: str | None = None
    is_text_area: bool = False
    power: int | None = None
    is_example: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Fields under one heading; is_folded ones are shown when asked for."""

    title: str
    fields: tuple[Field, ...]
    is_folded: bool = False


Answer = Callable[["Values", "Width"], Iterator[Json]]
Width = str | None  # "wide", "narrow", or None for both


@dataclass(frozen=True, slots=True)
class View:
    """One question of the page, its form, and what answers it.

    Where:  answer yields progress, answers that are not complete yet, and the answer last (see steps); is_live says that
            it is quick enough to follow every input; command is the subcommand that answers the same; is_shown_first says
            that the page holds its default answer before any script has run
    """

    name: str
    title: str
    question: str
    groups: tuple[Group, ...]
    answer: Answer
    command: str | None = None
    is_live: bool = True
    run_label: str = ""
    is_shown_first: bool = False

    @property
    def fields(self) -> tuple[Field, ...]:
        """All of them."""
        return tuple(each for group in self.groups for each in group.fields)

    @property
    def defaults(self) -> dict[str, str]:
        """What each field holds at first."""
        return {each.name: each.default for each in self.fields}


@dataclass(frozen=True, slots=True)
class Values:
    """What the fields of a view hold: every field, with its default where nothing was said.

    Where:  file is the path of a model file or folder that was handed over, None without one
    """

    view: View
    texts: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None

    @staticmethod
    def read(view: View, said: object, file: object = None) -> Values:
        """The values in a request.

        Raises:  FieldError for a field that is not known or not a text
        """
        if not isinstance(said, Mapping):
            raise FieldError(None, "the fields of a question are needed as an object of texts")
        defaults = view.defaults
        for name, text in said.items():
            if name not in defaults:
                raise FieldError(None, f"this view has no field {str(name)[:40]!r}; it has: {', '.join(defaults)}")
            most = MAX_CONFIG_CHARS if name == "config" else MAX_FIELD_CHARS
            if not isinstance(text, str) or len(text) > most:
                raise FieldError(name, f"give a text of at most {most:,} characters")
        return Values(view, {**defaults, **said}, file if isinstance(file, str) else None)

    def text(self, name: str) -> str:
        """What a field holds, without the space around it."""
        return self.texts[name].strip()

    def optional(self, name: str) -> str | None:
        """The same; None where it holds nothing."""
        return self.text(name) or None

    def tokens(self, name: str) -> int:
        """A length in tokens.

        Raises:  FieldError for one that is none, or longer than anything
        """
        found = self._parsed(name, parse_tokens)
        if found > MAX_TOKENS:
            raise FieldError(
                name, f"{self.text(name)[:40]} tokens are more than can be counted; at most {MAX_TOKENS:,}"
            )
        return found

    def count(self, name: str) -> int:
        """A whole number."""
        return self._parsed(name, parse_count)

    def seconds(self, name: str) -> float:
        """A time."""
        return self._parsed(name, parse_seconds)

    def optional_bytes(self, name: str) -> int | None:
        """An amount of memory; None where nothing was said."""
        return self._parsed(name, memory_bytes) if self.text(name) else None

    def optional_tokens(self, name: str) -> int | None:
        """A length in tokens; None where nothing was said."""
        return self.tokens(name) if self.text(name) else None

    def choice(self, name: str) -> str:
        """One of a field's options.

        Raises:  FieldError
        """
        text, allowed = self.text(name), [value for value, _ in self._field(name).options]
        if text not in allowed:
            raise FieldError(name, f"{text[:40]!r} is none of the choices; choose one of: {', '.join(allowed)}")
        return text

    def _parsed(self, name: str, parse: Callable[[str, str], Parsed]) -> Parsed:
        text, what = self.text(name), self._field(name).label.lower()
        if not text:
            raise FieldError(name, f"the {what} is empty; {self._field(name).hint or 'give a number'}")
        if len(text) > _MOST_NUMBER_CHARS:
            raise FieldError(name, f"the {what} is longer than any number; {self._field(name).hint or 'give a number'}")
        with at(name):
            return parse(text, what)

    def _field(self, name: str) -> Field:
        return next(each for each in self.view.fields if each.name == name)


@contextmanager
def at_what_is_said(fields: Mapping[str, str]) -> Iterator[None]:
    """Whatever is wrong in here is wrong with the field of the first of these words that the message holds.

    Raises:  FieldError
    """
    try:
        yield
    except RequestError as error:
        message = str(error)
        raise FieldError(next((fields[words] for words in fields if words in message), None), message) from None


def memory_bytes(text: str, what: str) -> int:
    """An amount of memory with its unit: a few bytes without one are a unit forgotten.

    Raises:  QuantityError
    """
    if text.isdecimal() and 0 < int(text) < MEBI:
        raise QuantityError(f"{what} {text!r} has no unit; write for example 24GB or 24GiB")
    return parse_bytes(text, what)


@contextmanager
def at(name: str | None) -> Iterator[None]:
    """Whatever is wrong with the request in here is wrong with this field.

    Raises:  FieldError
    """
    try:
        yield
    except RequestError as error:
        raise FieldError(name, str(error)) from None
