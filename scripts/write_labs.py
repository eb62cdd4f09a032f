"""Write the figures and the chart of docs/labs/LAB.md: each lab run in full by its public call, and what it found set between two lines.

    python scripts/write_labs.py [LAB ...] [--docs DOCS/labs] [--keep FOLDER] [--threads N] [--quick]

What stands outside those two lines is prose that no run gives, and stays. Needs the extras [bench,labs]; all six take about an hour
on two quiet cores. --keep also writes each result as JSON into a folder; --quick is for trying the script, not for the docs.
Ends with 1 where a check of a lab did not hold; its figures are not written then.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import inference_bench
from inference_bench.charts import WIDE_PX
from inference_bench.cli.lab_options import LABS
from inference_bench.cli.picture import write_chart
from inference_bench.files import write_whole
from inference_bench.labs.checks import missed
from inference_bench.labs.settings import LabSettings
from inference_bench.report.lab_json import lab_json
from inference_bench.report.lab_page import LabPage, first_chart, lab_markdown

DOCS: Final = Path(__file__).parent.parent / "docs" / "labs"
BEGIN: Final = "<!-- figures -->"
END: Final = "<!-- end of figures -->"


def with_figures(text: str, figures: str) -> str:
    """The page with other figures between its two lines.

    Raises:  ValueError for a page without exactly those two lines, in their order
    """
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(f"{END}\n")
    if not (begin and end) or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"the page needs the line {BEGIN} and after it the line {END}, once each")
    return f"{before}{BEGIN}\n{figures.strip()}\n{END}\n{after}"


def run(lab: str, settings: LabSettings) -> Any:
    """The lab's result, by the call that anybody would make."""
    request = getattr(inference_bench, f"{lab.capitalize()}Request")(settings)
    return getattr(inference_bench, f"lab_{lab}")(request, _Told())


def write(lab: str, page: LabPage, docs: Path) -> None:
    """The figures into the page, and the first drawing beside it."""
    path = docs / f"{lab}.md"
    write_whole(path, with_figures(path.read_text(encoding="utf-8"), lab_markdown(page)))
    if (spec := first_chart(page, WIDE_PX)) is not None:
        write_chart(spec, str(docs / f"{lab}.svg"))


def write_lab(lab: str, options: argparse.Namespace) -> bool:
    """Run one lab and write what it found; False where a check did not hold."""
    start_s = time.perf_counter()
    result = run(lab, LabSettings(num_threads=options.threads, is_quick=options.quick))
    page: LabPage = import_module(f"inference_bench.report.lab_{lab}").lab_page(result)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        said = json.dumps(lab_json(lab, result), indent=2, ensure_ascii=False, allow_nan=False)
        write_whole(options.keep / f"{lab}.json", said + "\n")
    print(f"{lab}: {time.perf_counter() - start_s:.0f} s", file=sys.stderr)
    if bad := missed(page.checks):
        for check in bad:
            print(f"{lab}: {check.name}: {check.found}, allowed {check.allowed}", file=sys.stderr)
        return False
    write(lab, page, options.docs)
    return True


class _Told:
    """One line a second at most of what is going on."""

    def __init__(self) -> None:
        self._last_s = 0.0

    def __call__(self, line: str) -> None:
        if time.perf_counter() - self._last_s > 1:
            print(line, file=sys.stderr)
            self._last_s = time.perf_counter()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the labs that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("labs", nargs="*", metavar="LAB", help=f"of {', '.join(LABS)}; default: all")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the pages")
    parser.add_argument("--keep", type=Path, help="a folder for each result as JSON")
    parser.add_argument("--threads", type=int, help="threads that compute")
    parser.add_argument("--quick", action="store_true", help="the quick mode, to try this script")
    options = parser.parse_args(arguments)
    if unknown := [lab for lab in options.labs if lab not in LABS]:
        parser.error(f"there is no lab {unknown[0]!r}; labs: {', '.join(LABS)}")
    held = [write_lab(lab, options) for lab in options.labs or LABS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
