"""How long scoring 5,000 rows takes: reading, asking, predicting, summing up.

Method:   the eight rows of examples/measured.csv are repeated to 5,000, each with a batch and lengths of its own, so that no
          two ask the same; the whole call is timed 5 times after one that fills the tables of known models. Beside it,
          in turns, reading the same file with the standard library's csv and turning its numbers into floats: what any
          program has to do. The ratio of the medians is the figure to keep: both sides feel the same machine.
Ignores:  importing the package; cross-validation.
Run:      python benchmarks/score.py [number of rows]
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from inference_bench.score.flow import score_tables
from inference_bench.units import format_count, format_seconds

EXAMPLE = Path(__file__).parents[1] / "examples" / "measured.csv"
DEFAULT_ROWS = 5_000
ROUNDS = 5
LIMIT_S = 10.0


def write_rows(path: Path, count: int) -> None:
    with EXAMPLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        for index in range(count):
            row = dict(rows[index % len(rows)])
            row["batch_or_concurrency"] = str(1 + index % 97)
            row["input_len"] = str(16 + index)
            writer.writerow(row)


def read_plainly(path: Path) -> int:
    with path.open(encoding="utf-8", newline="") as file:
        return sum(float(row["value"]) * int(row["input_len"]) > 0 for row in csv.DictReader(file))


def seconds(function: object, path: Path) -> float:
    started = time.perf_counter()
    function(path)  # type: ignore[operator]
    return time.perf_counter() - started


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write_rows(path, count)

        def score(table: Path) -> None:
            found = score_tables([table])
            if found.overall.predicted != count:
                raise SystemExit(f"only {found.overall.predicted} of {count} rows were predicted; nothing was timed")

        score(path)
        pairs = [(seconds(read_plainly, path), seconds(score, path)) for _ in range(ROUNDS)]
    plain, scored = (median(values) for values in zip(*pairs, strict=True))
    low, high = min(pair[1] for pair in pairs), max(pair[1] for pair in pairs)
    print(
        f"{format_count(count)} rows: read plainly {format_seconds(plain)}, scored {format_seconds(scored)} "
        f"({format_seconds(low)} to {format_seconds(high)}): {scored / plain:.0f} times, "
        f"{format_seconds(scored / count)} a row; {scored / LIMIT_S:.0%} of the {LIMIT_S:.0f} s it may take"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_ROWS)
