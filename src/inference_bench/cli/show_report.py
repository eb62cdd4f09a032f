"""`report RUN`: look again at a run folder."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inference_bench.cli.output import print_json
from inference_bench.measure.store import read_records
from inference_bench.metrics import summarise
from inference_bench.report.load_report import metrics_json, metrics_text
from inference_bench.report.text import printable, wrap
from inference_bench.verify.saved import REPORT_FILE, RESULT_FILE, read_result


def run(options: argparse.Namespace) -> int:
    """A finished verification prints its result; a run that was cut short prints what its raw samples say."""
    folder = Path(options.run)
    if (folder / RESULT_FILE).is_file():
        result = read_result(folder)
        if options.json:
            print_json(result)
        else:
            print(_shown(result, folder))
        return 0
    stored = read_records(folder)
    metrics = summarise(stored.records)
    dropped = stored.num_dropped_lines
    if options.json:
        print_json(
            {
                "schema": "inference-bench/load/1",
                **metrics_json(metrics),
                "dropped_lines": dropped,
                "run_dir": str(folder),
            }
        )
    else:
        print(metrics_text(metrics))
        print(f"\n{folder}: {dropped} line(s) cut short were left out" if dropped else f"\n{folder}")
    return 0


def _shown(result: Mapping[str, Any], folder: Path) -> str:
    """A verification's reading and where its page is; a load run's metrics again, from its raw samples."""
    if (folder / REPORT_FILE).is_file():
        reading = result.get("reading")
        lines = [wrap(printable(str(line))) for line in (reading if isinstance(reading, list) else ())]
        return "\n".join([*lines, "", f"report: {folder / REPORT_FILE}"])
    return metrics_text(summarise(read_records(folder).records))
