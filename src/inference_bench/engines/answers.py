"""What does a running server answer about itself, read without believing it?

In:   a Target: the address of a server, and a key if it asks for one
Out:  JSON and pages of text within limits of size and time; figures picked out of them, each with its place
Leaves out: which engine has which figure where (llama_cpp_report, vllm_report, sglang_report)
Read next by: attach, startup, and the three reports.

Whatever a server answers is somebody else's text: a wrong type, half an answer or none gives no figure, and never an error
beyond the one question that makes it a model server at all: which models it lists.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from inference_bench.engines.base import EngineFigures, EngineIdentity
from inference_bench.errors import ServerError
from inference_bench.measure.blocking_http import AFTER_SILENCE
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.sender import get_json, post_json
from inference_bench.measure.server_metrics_watch import PageFetcher
from inference_bench.measure.target import Target

Got = TypeVar("Got")

_LONGEST_TEXT: Final = 4096  # more than any path or name; only a server that means harm says more
_LARGEST_COUNT: Final = 1 << 62  # more than any memory, and a number that every file format can hold
_LEAST_WAIT_S: Final = 0.05
_ALL_QUESTIONS: Final = 6  # a server that is slow with every answer is waited for as long as for so many
_NEARLY_ALL: Final = 0.9


def ask_server(target: Target, path: str, timeout_s: float, body: object = None) -> Any:
    """The JSON a server answers to a GET, or to a POST if there is a body.

    Raises:   ServerError
    """
    limits = Timeouts(connect_s=timeout_s, idle_s=timeout_s, total_s=timeout_s)
    return get_json(target, path, limits) if body is None else post_json(target, path, body, limits)


def inside(value: Any, *keys: str) -> Any:
    """What stands in nested JSON objects under these keys, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def whole_number(value: Any) -> int | None:
    """A JSON value if it is a count above zero, else None."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_COUNT
    return value if is_count else None


def whole_number_in(value: Any) -> int | None:
    """The same of a count, or of a text that holds nothing but one."""
    if isinstance(value, str):
        return whole_number(int(value)) if value.isascii() and value.isdigit() and len(value) < 20 else None
    return whole_number(value)


def fraction_in(value: Any) -> float | None:
    """A number above 0 and not above 1, or a text that holds nothing but one."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0.0
    except (ValueError, OverflowError):
        return None
    return number if 0 < number <= 1 else None


def switch_in(value: Any) -> bool | None:
    """Whether something is on, from JSON or from the way Python prints it."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return value if isinstance(value, bool) else None


def text_in(value: Any) -> str | None:
    """A JSON value if it is text, short and such as a file can hold, else None."""
    if not isinstance(value, str) or not value:
        return None
    cut = value[:_LONGEST_TEXT].encode("utf-8", "replace").decode()
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in cut)


@dataclass(slots=True)
class Asker:
    """Asks one server several things, each page once, with a time for each and one for all of them together.

    Where:    answers are those that are known, by path; None for a path that gave none. Once one question was not answered in
              its whole time, others have a tenth of it, so that a server that is silent costs little more than one time limit
    """

    target: Target
    timeout_s: float
    answers: dict[str, Any] = field(default_factory=dict)
    deadline_s: float = field(init=False)
    _was_silent: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.deadline_s = time.monotonic() + _ALL_QUESTIONS * self.timeout_s

    def required(self, path: str) -> Any:
        """The JSON at a path.

        Raises:   ServerError where none is given in time
        """
        known = self.answers.get(path)
        if known is not None:
            return known
        found = self.answers[path] = self._in_time(lambda wait_s: ask_server(self.target, path, wait_s))
        return found

    def json(self, path: str) -> Any:
        """The JSON at a path, or None where none is given in time."""
        if path in self.answers:
            return self.answers[path]
        try:
            return self.required(path)
        except ServerError:
            self.answers[path] = None
            return None

    def post(self, path: str, body: object) -> Any:
        """The JSON answer to a body, or None where none is given in time."""
        try:
            return self._in_time(lambda wait_s: ask_server(self.target, path, wait_s, body))
        except ServerError:
            return None

    def first_json(self, *paths: str) -> tuple[str, Any]:
        """The first of these paths that answers with a JSON object, and its answer; the last one and None otherwise."""
        for path in paths:
            answer = self.json(path)
            if isinstance(answer, dict):
                return path, answer
        return paths[-1], None

    def page(self, path: str) -> str | None:
        """The text at a path, or None where none is given in time."""
        try:
            return self._in_time(lambda wait_s: PageFetcher(self.target, path, wait_s)())
        except (ServerError, OSError, ValueError, http.client.HTTPException):
            return None

    def _in_time(self, ask: Callable[[float], Got]) -> Got:
        """What comes of a question within the time that there is for it; remembers one that had all of it for nothing."""
        began_s = time.monotonic()
        patience_s = self.timeout_s * (AFTER_SILENCE if self._was_silent else 1.0)
        wait_s = min(max(patience_s, _LEAST_WAIT_S), self.deadline_s - began_s)
        if wait_s < _LEAST_WAIT_S:
            raise ServerError(f"{self.target.address} used up the time for all questions")
        try:
            return ask(wait_s)
        except Exception:
            self._was_silent = self._was_silent or time.monotonic() - began_s >= _NEARLY_ALL * wait_s
            raise


class Listed(NamedTuple):
    """The first model that a server lists: what every model server has."""

    entry: dict[str, Any]

    @classmethod
    def read(cls, ask: Asker) -> Listed:
        """Ask which models there are.

        Raises:   ServerError if none is listed
        """
        target = ask.target
        answer = ask.required(target.models_path)
        entries = inside(answer, "data")
        first = entries[0] if isinstance(entries, list) and entries else None
        if not isinstance(first, dict) or text_in(first.get("id")) is None:
            raise ServerError(
                f"{target.address}{target.models_path} lists no model; is this a model server, and is a model loaded?"
            )
        return cls(first)

    @property
    def name(self) -> str | None:
        """What the model is called in requests."""
        return text_in(self.entry.get("id"))

    @property
    def owner(self) -> str | None:
        """Who the server says owns it, which tells many engines apart."""
        return text_in(self.entry.get("owned_by"))

    def limits(self) -> Iterator[Candidate]:
        """The longest request that the list states, as the figures that it stands for."""
        limit = whole_number(self.entry.get("max_model_len"))
        for name in ("max_model_len", "context_tokens_per_slot"):
            yield Candidate(name, limit, "/v1/models max_model_len")


class Report(NamedTuple):
    """Who a server says it is, and its own figures."""

    identity: EngineIdentity
    figures: EngineFigures


class Candidate(NamedTuple):
    """A figure that may stand in an answer: its field, what was found there, and where."""

    name: str
    value: Any
    where: str


def pick_figures(candidates: Iterable[Candidate]) -> EngineFigures:
    """The figures among these, the first that is known of each field."""
    values: dict[str, Any] = {}
    read_from: dict[str, str] = {}
    for name, value, where in candidates:
        if name not in values and value is not None:
            values[name], read_from[name] = value, where
    return EngineFigures(**values, read_from=read_from)
