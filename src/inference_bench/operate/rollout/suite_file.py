"""Which questions have known answers? A small file of prompts, each with the exact answer that is expected.

In:   JSON Lines: {"prompt": "2+2=", "expected": "4", "max_tokens": 8}
Out:  Suite: its items, in memory only, and what stands for it in a result
Leaves out: asking (suite)
Read next by: suite.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RequestError
from inference_bench.files import shown_name
from inference_bench.measure.payload_fields import RepeatedKeyError, strict_json
from inference_bench.measure.prompt_sources import read_text
from inference_bench.units import MEBI

_MOST_BYTES: Final = 16 * MEBI
_MOST_ITEMS: Final = 10_000
_MOST_ANSWER_TOKENS: Final = 4096
_USUAL_TOKENS: Final = 64
_FIELDS: Final = ("prompt", "expected", "max_tokens")
_HASH_LETTERS: Final = 16


@dataclass(frozen=True, slots=True)
class SuiteItem:
    """A question and its one right answer. Neither shows in a repr."""

    prompt: str = field(repr=False)
    expected: str = field(repr=False)
    max_tokens: int = _USUAL_TOKENS


@dataclass(frozen=True, slots=True)
class Suite:
    """A file of questions.

    Where:    digest stands for the questions, answers and limits in a result; key makes hashes of answers that mean nothing to
              whoever does not have the file, and is kept nowhere
    """

    name: str
    items: tuple[SuiteItem, ...]
    digest: str
    key: bytes = field(repr=False)

    def hash_of(self, answer: str) -> str:
        """What stands for an answer: equal for equal answers to this suite."""
        return hmac.new(self.key, answer.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:_HASH_LETTERS]


def read_suite(path: Path) -> Suite:
    """The suite in a file.

    Raises:   RequestError naming the line, and never what stands in it
    """
    lines = read_text(path, "suite", _MOST_BYTES).splitlines()
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    where = f"the suite {shown_name(path)!r}"
    if not numbered:
        raise RequestError(
            f'{where} holds no question; write one a line, such as {{"prompt": "2+2=", "expected": "4"}}'
        )
    if len(numbered) > _MOST_ITEMS:
        raise RequestError(f"{where} holds {len(numbered)} questions; a suite has at most {_MOST_ITEMS}")
    items = tuple(_item(line, f"line {number} of {where}") for number, line in numbered)
    plain = json.dumps([[item.prompt, item.expected, item.max_tokens] for item in items], ensure_ascii=False)
    content = plain.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(b"suite\0" + content).hexdigest()
    return Suite(path.name, items, digest, hashlib.sha256(b"answers\0" + content).digest())


def _item(line: str, where: str) -> SuiteItem:
    try:
        found = strict_json(line, has_keys_once=True)
    except RepeatedKeyError as error:
        raise RequestError(f"{where} has the field {error.key[:40]!r} twice; give it once") from None
    except (ValueError, RecursionError):
        raise RequestError(f"{where} is not JSON") from None
    if not isinstance(found, dict):
        raise RequestError(f"{where} is not a JSON object with {', '.join(_FIELDS)}")
    unknown = sorted(set(found) - set(_FIELDS))
    if unknown:
        raise RequestError(f"{where} has a field {unknown[0][:40]!r}; known are {', '.join(_FIELDS)}")
    limit = found.get("max_tokens", _USUAL_TOKENS)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST_ANSWER_TOKENS:
        raise RequestError(f"{where} has max_tokens that is no whole number from 1 to {_MOST_ANSWER_TOKENS}")
    return SuiteItem(_text(found, "prompt", where), _text(found, "expected", where).strip(), limit)


def _text(found: dict[str, Any], name: str, where: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RequestError(f"{where} has no {name}; give it as a text that is not empty")
    return value
