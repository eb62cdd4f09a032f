"""Which client got which case right, as text for a terminal and as JSON with stable keys.

In:   SuiteReport
Out:  text of at most 100 columns; a dict ready for JSON
Leaves out: judging; every row was judged before
Read next by: cli.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from inference_bench.conform.oracle import NEVER_ASKED, answer_json
from inference_bench.conform.suite import Row, SuiteReport
from inference_bench.report.text import table, wrap

_MARKS: Final = {True: "ok", False: "WRONG"}
_UNIT: Final = "_s"


def conform_json(found: SuiteReport) -> dict[str, Any]:
    """The stable keys of `conform --json`."""
    return {
        "schema": "inference-bench/conform/1",
        "cases": [_row_json(row) for row in found.rows],
        "score": {name: dict(zip(("passed", "cases"), found.score(name), strict=True)) for name in found.adapters},
        "not_run": found.absent,
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.case.name,
        "adapter": row.adapter,
        "passed": row.passed,
        "expected": answer_json(row.expected),
        "got": None if row.got is None else asdict(row.got),
        "wrong": list(row.wrong),
        "tries": row.tries,
        "problem": row.problem,
    }


def conform_text(found: SuiteReport) -> str:
    """The matrix, what is wrong in each wrong row, the scores."""
    sections = [_matrix(found) if found.adapters else "", _differences(found), _scores(found)]
    return "\n\n".join(section for section in sections if section)


def _matrix(found: SuiteReport) -> str:
    passed = {(row.case.name, row.adapter): _MARKS[row.passed] for row in found.rows}
    rows = [(case.name, *(passed[case.name, name] for name in found.adapters)) for case in found.cases]
    return table(("case", *found.adapters), rows, "l" * (1 + len(found.adapters)))


def _differences(found: SuiteReport) -> str:
    lines = [wrap(_difference(row), indent="  ") for row in found.rows if not row.passed]
    return "\n".join(["what is wrong", *lines]) if lines else ""


def _difference(row: Row) -> str:
    if row.got is None:
        return f"{row.adapter}, {row.case.name}: {row.problem}"
    if row.wrong == (NEVER_ASKED,):
        return f"{row.adapter}, {row.case.name}: the server was never asked"
    expected, got = answer_json(row.expected), asdict(row.got)
    figures = (
        f"{name.removesuffix(_UNIT)} {_shown(name, got.get(name))} instead of {_shown(name, expected.get(name))}"
        for name in row.wrong
    )
    return f"{row.adapter}, {row.case.name}: {'; '.join(figures)}"


def _shown(name: str, value: object) -> str:
    if value is None:
        return "n/a"
    return f"{value:.4f} s" if name.endswith(_UNIT) and isinstance(value, float) else str(value)


def _scores(found: SuiteReport) -> str:
    rows = [(name, "{} of {}".format(*found.score(name))) for name in found.adapters]
    return table(("client", "right"), [*rows, *found.absent.items()], "ll")
