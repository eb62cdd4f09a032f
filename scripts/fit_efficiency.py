"""Fit the efficiency model on a folder of measurement tables, and write the parameters that ship.

    python scripts/fit_efficiency.py FOLDER [--out FILE] [--check]

FOLDER holds the CSV tables docs/measurements.md describes. The same tables give the same numbers; --check compares with
the file that ships instead of writing it. Needs the extras [bench] (NumPy). Takes about two minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from inference_bench.cli.output import ProgressLine
from inference_bench.facts.source import Source
from inference_bench.predict.efficiency.parameters import Calibration, Fitted, to_mapping
from inference_bench.score.cross_validation import cross_validate, fit_all, with_widths
from inference_bench.score.query import case
from inference_bench.score.rows import read_rows
from inference_bench.score.scoring import ask_each

TOLERANCE = 0.02  # of a logarithm
SHIPPED = Path(__file__).parents[1] / "src/inference_bench/predict/efficiency/fitted.json"


def fit_folder(folder: Path, progress: ProgressLine) -> Fitted:
    """The parameters and the interval widths from every table of a folder."""
    tables = sorted(folder.glob("*.csv"))
    if not tables:
        sys.exit(f"{folder}: no CSV tables in this folder")
    asked, _ = ask_each(case(row) for table in tables for row in read_rows(table))
    as_of = max(item.row.date[:10] for item, _ in asked)
    sure = [item for item, _ in asked if not item.row.is_suspect]
    title = f"{len(tables)} tables of published measurements, {len(sure)} rows, fitted by scripts/fit_efficiency.py"
    known = fit_all(asked, Source(title, as_of))
    unseen = cross_validate(asked, "device", tuple(Calibration), progress)
    seen = cross_validate(asked, "model", tuple(Calibration), progress)
    return with_widths(known, *({mode: rows for mode, (rows, _) in found.items()} for found in (unseen, seen)))


def text_of(known: Fitted) -> str:
    """The file: one line a table, one line a parameter."""
    return json.dumps(to_mapping(known), indent=0, ensure_ascii=True, separators=(",", ":")) + "\n"


def is_same(new: object, old: object) -> bool:
    """Whether two files say the same: numbers within what another linear algebra library rounds."""
    if isinstance(new, dict) and isinstance(old, dict):
        small = {name for name in new.keys() ^ old.keys() if abs((new | old)[name]) < 2 * TOLERANCE}
        return (
            all(is_same(new[name], old[name]) for name in new.keys() & old.keys()) and small == new.keys() ^ old.keys()
        )
    if isinstance(new, float | int) and isinstance(old, float | int):
        return abs(new - old) <= TOLERANCE
    return new == old


def main() -> None:
    """Fit and write, or fit and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--check", action="store_true", help="compare with what ships; exit 1 where it differs")
    options = parser.parse_args()
    started = time.monotonic()
    progress = ProgressLine()
    text = text_of(fit_folder(options.folder, progress))
    progress.done()
    if options.check:
        sys.exit(0 if is_same(json.loads(text), json.loads(options.out.read_text(encoding="utf-8"))) else 1)
    options.out.write_text(text, encoding="utf-8")
    print(f"{options.out}: {len(text)} bytes, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
