"""The page of a load run, a sweep or a search for the capacity: `load --report FILE.html`, and `report.html` in every run folder.

In:   LoadRun, SweepRun or CapacityRun, Provenance, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: where it is written (cli)
Read next by: cli.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_bench.report.html_pieces import Draw
from inference_bench.report.load_html import load_html
from inference_bench.report.load_html_capacity import capacity_html
from inference_bench.report.load_page_input import gather_run, gather_sweep
from inference_bench.report.report_html import Provenance

if TYPE_CHECKING:
    from inference_bench.loadtest.capacity_run import CapacityRun
    from inference_bench.loadtest.flow import LoadRun
    from inference_bench.loadtest.sweep import SweepRun


def load_page(result: LoadRun, made: Provenance, draw: Draw | None) -> str:
    """The page of one run; without `draw` it has every table and says why there are no charts."""
    return load_html(gather_run(result), made, draw)


def sweep_page(result: SweepRun, made: Provenance, draw: Draw | None) -> str:
    """The page of a sweep; see `load_page`."""
    return load_html(gather_sweep(result), made, draw)


def capacity_page(result: CapacityRun, made: Provenance, draw: Draw | None) -> str:
    """The page of a search for the highest rate within objectives; see `load_page`."""
    return capacity_html(result, made, draw)
