"""What came of a suite of known answers: counts and hashes, never a word of it.

In:   the file that a run folder keeps of it
Out:  SuiteOutcome, and back
Leaves out: asking (suite); whether a canary may answer so (compare_runs)
Read next by: suite, compare_runs, report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RunFolderError
from inference_bench.files import write_whole
from inference_bench.measure.store import read_json_object

SUITE_FILE: Final = "suite.json"
SCHEMA: Final = "inference-bench/suite/1"
_HEX: Final = re.compile(r"[0-9a-f]{8,64}")
_MOST_NAME_CHARS: Final = 120


class SuiteEnd(StrEnum):
    """How one question ended."""

    RIGHT = "right"
    WRONG = "wrong"
    FAILED = "failed"  # no whole answer: an error, a time-out, a broken stream
    NOT_ASKED = "not asked"  # or not answered by the time at which the suite was interrupted


@dataclass(frozen=True, slots=True)
class SuiteAnswer:
    """One question's end; answer_hash stands for what was said, by the suite's own key, None where nothing whole was."""

    end: SuiteEnd
    answer_hash: str | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class SuiteOutcome:
    """What one server made of a suite, question by question, in the file's order.

    Where:    digest tells suites apart: outcomes of one digest are of the same questions with the same limits
    """

    name: str
    digest: str
    model: str | None
    endpoint: str
    answers: tuple[SuiteAnswer, ...]

    @property
    def num_right(self) -> int:
        """Questions answered exactly as expected."""
        return sum(answer.end is SuiteEnd.RIGHT for answer in self.answers)

    @property
    def num_failed(self) -> int:
        """Questions without a whole answer."""
        return sum(answer.end is SuiteEnd.FAILED for answer in self.answers)

    @property
    def num_not_asked(self) -> int:
        """Questions that an interruption left without an end."""
        return sum(answer.end is SuiteEnd.NOT_ASKED for answer in self.answers)

    @property
    def is_interrupted(self) -> bool:
        """Whether it is a part of a suite, which says nothing of the whole."""
        return self.num_not_asked > 0


def write_outcome(folder: Path, outcome: SuiteOutcome) -> Path:
    """Keep an outcome in a run folder, whole or not at all.

    Raises:   StorageError
    """
    path = folder / SUITE_FILE
    write_whole(path, json.dumps(outcome_json(outcome), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def outcome_json(outcome: SuiteOutcome) -> dict[str, Any]:
    """Plain values, from which `read_outcome` gives back the same."""
    return {
        "schema": SCHEMA,
        "suite": outcome.name,
        "suite_sha256": outcome.digest,
        "served_model": outcome.model,
        "endpoint": outcome.endpoint,
        "num_items": len(outcome.answers),
        "num_right": outcome.num_right,
        "num_failed": outcome.num_failed,
        "num_not_asked": outcome.num_not_asked,
        "is_interrupted": outcome.is_interrupted,
        "answers": [asdict(answer) for answer in outcome.answers],
    }


def read_outcome(folder: Path) -> SuiteOutcome | None:
    """The outcome that a run folder keeps; None where it keeps none.

    Raises:   RunFolderError for a file that is none
    """
    path = folder / SUITE_FILE
    if not path.exists():
        return None
    values = read_json_object(path)
    try:
        return _outcome(values)
    except (KeyError, TypeError, ValueError):
        raise RunFolderError(f"{path} is no outcome of a suite; ask the suite again") from None


def _outcome(values: Mapping[str, Any]) -> SuiteOutcome:
    if values["schema"] != SCHEMA or not _is_hex(values["suite_sha256"]):
        raise ValueError("schema")
    model = values["served_model"]
    answers = tuple(_answer(each) for each in values["answers"])
    if not answers:
        raise ValueError("answers")
    name, endpoint = str(values["suite"])[:_MOST_NAME_CHARS], str(values["endpoint"])[:_MOST_NAME_CHARS]
    return SuiteOutcome(name, values["suite_sha256"], None if model is None else str(model), endpoint, answers)


def _answer(values: Mapping[str, Any]) -> SuiteAnswer:
    digest, tokens = values["answer_hash"], values["output_tokens"]
    if (digest is not None and not _is_hex(digest)) or (tokens is not None and type(tokens) is not int):
        raise ValueError("answer")
    return SuiteAnswer(SuiteEnd(values["end"]), digest, tokens)


def _is_hex(value: object) -> bool:
    return isinstance(value, str) and _HEX.fullmatch(value) is not None
