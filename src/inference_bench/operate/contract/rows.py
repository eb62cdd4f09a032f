"""What is known of a server's contract: a verdict for each question, and what it rests on.

In:   nothing; these are plain immutable values
Out:  Row, Contract, Need
Leaves out: asking (every other module here), drawing (report)
Read next by: flow, report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from inference_bench.errors import UnknownNameError
from inference_bench.operate.contract.catalog import GROUPS, MET_BY_PARTLY, NEEDS, QUESTIONS, group_of

Figure = str | int | float | bool | None


class Verdict(StrEnum):
    """The answer to one question."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Row:
    """One question and its answer.

    Where:    seen holds counts, states and the server's own words about an error, never generated text; action is what
              somebody who moves to this server should do, "" where there is nothing; figures are numbers behind seen
    """

    id: str
    verdict: Verdict
    seen: str
    action: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The subject it belongs to."""
        return group_of(self.id)

    @property
    def asked(self) -> str:
        """The question, put as what a yes affirms."""
        return QUESTIONS[self.id]


@dataclass(frozen=True, slots=True)
class Need:
    """Something without which the server is of no use to whoever asked."""

    name: str
    is_met: bool
    why: str


@dataclass(frozen=True, slots=True)
class Contract:
    """Everything that was found.

    Where:    model is the name that was asked for, route the one that was asked most; lost says when and how the server went
              away, None where it stayed; groups are those that were asked
    """

    base_url: str
    model: str | None
    route: str
    started_at: str
    elapsed_s: float
    num_requests: int
    is_quick: bool
    groups: tuple[str, ...]
    rows: tuple[Row, ...]
    lost: str | None = None
    is_interrupted: bool = False

    def row(self, row_id: str) -> Row | None:
        """The answer to one question, if it was asked."""
        return next((row for row in self.rows if row.id == row_id), None)

    def needs(self, names: Sequence[str]) -> tuple[Need, ...]:
        """Which of these needs are met.

        Raises:   UnknownNameError
        """
        return tuple(self._need(name) for name in names)

    def _need(self, name: str) -> Need:
        enough = {Verdict.YES, Verdict.PARTLY} if name in MET_BY_PARTLY else {Verdict.YES}
        for row_id in rows_needed(name):
            row = self.row(row_id)
            if row is None:
                return Need(name, False, f"{row_id} was not asked")
            if row.verdict not in enough:
                return Need(name, False, f"{row_id}: {row.verdict}, {row.seen}")
        return Need(name, True, "")


def rows_needed(name: str) -> tuple[str, ...]:
    """The rows behind the name of a need, which may also be the name of a row.

    Raises:   UnknownNameError
    """
    if name in QUESTIONS:
        return (name,)
    if name in NEEDS:
        return NEEDS[name]
    raise UnknownNameError(
        f"nothing by the name {name[:60]!r} can be needed; known: {', '.join(NEEDS)}; and the name of any row, such as "
        "structured.pattern"
    )


def groups_named(names: Sequence[str]) -> tuple[str, ...]:
    """These groups in the order in which they are asked; all where none is named.

    Raises:   UnknownNameError
    """
    for name in names:
        if name not in GROUPS:
            raise UnknownNameError(f"there is no group {name[:60]!r} of questions; groups: {', '.join(GROUPS)}")
    return tuple(group for group in GROUPS if not names or group in names)


def yes_or_no(is_so: bool | None) -> Verdict:
    """The verdict on what was seen to be so, or not, or neither."""
    return Verdict.UNKNOWN if is_so is None else Verdict.YES if is_so else Verdict.NO
