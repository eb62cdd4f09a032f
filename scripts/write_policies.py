"""Write docs/policies.md and docs/policies.svg: six policies on the reference workload, at every golden rate and at capacity.

    python scripts/write_policies.py [--out DOCS]

The words that no run gives (what each policy does, how to read the figures) are taken from scripts/policies_*.md. The same
code gives the same page. Needs the extra [bench] for the picture; takes about half a minute.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from inference_bench.charts.simulation import rate_chart
from inference_bench.render import svg
from inference_bench.report.picture import picture_svg
from inference_bench.simulate.capacity import Capacity, Limits, SearchSettings, find_capacity
from inference_bench.simulate.processes import Lost, run_in_processes, usable_cpus
from inference_bench.simulate.reference_profiles import reference_profile
from inference_bench.simulate.settings import Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.summary import SimulatedRow
from inference_bench.simulate.sweep import Case, CaseResult, WorkloadRecipe, sweep
from inference_bench.units import NOT_AVAILABLE, format_count, format_number, format_seconds
from inference_bench.workload import REFERENCE_COUNT, Workload, reference_workload

HERE: Final = Path(__file__).parent
DOCS: Final = HERE.parent / "docs"
PROFILE: Final = "24GB-bf16"
RATES: Final = (0.1, 0.2, 0.25, 0.3, 0.35, 0.4)
LIMITS: Final = Limits(ttft_p99_s=3.0, itl_p99_s=0.1)
SEARCH: Final = SearchSettings(low=0.01, high=4.0)
ROW_HEADERS: Final = (
    "policy", "rate", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "longest pause", "TPOT p50", "E2E p50", "tokens/s", "goodput",
    "preemptions",
)  # fmt: skip
CAPACITY_HEADERS: Final = (
    "policy", "capacity (requests/s)", "95 % interval of the mean over 5 seeds", "with ten times the requests", "TTFT p99",
    "ITL p99", "longest pause", "tokens/s", "USD a million tokens",
)  # fmt: skip


def cases_of(policy: Policy) -> list[Case]:
    """A policy at every rate."""
    profile = reference_profile(PROFILE)
    return [
        Case(
            policy.value,
            WorkloadRecipe(partial(reference_workload, rate), REFERENCE_COUNT),
            ServerSetup(SchedulerSettings(policy=policy), profile.memory),
            profile.step_time,
        )
        for rate in RATES
    ]


def capacity_of(policy: Policy) -> Capacity:
    """The highest rate of a policy within the objectives."""
    profile = reference_profile(PROFILE)
    return find_capacity(
        _workload,
        ServerSetup(SchedulerSettings(policy=policy), profile.memory),
        profile.step_time,
        LIMITS,
        SEARCH,
        count=REFERENCE_COUNT,
        usd_per_hour=profile.usd_per_hour,
    )


def _workload(count: int, seed: int) -> Workload:
    return reference_workload(1.0, count, seed)


# ── tables ─────────────────────────────────────────────────────────────────────────────────────────


def line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def grid(headers: Sequence[str], lines: Iterable[str], num_left: int) -> str:
    """A Markdown table whose first columns are texts."""
    rule = ["---"] * num_left + ["---:"] * (len(headers) - num_left)
    return "\n".join([line(headers), line(rule), *lines])


def rate_line(row: SimulatedRow) -> str:
    """A run."""
    return line((
        row.policy,
        format_number(row.nominal_rate, 2),
        *map(format_seconds, (row.ttft_p50_s, row.ttft_p99_s, row.itl_p50_s, row.itl_p99_s, row.itl_max_s, row.tpot_p50_s, row.e2e_p50_s)),
        format_number(row.output_tokens_per_s),
        format_number(row.goodput_requests_per_s),
        format_count(row.preemptions),
    ))  # fmt: skip


def capacity_line(policy: Policy, found: Capacity) -> str:
    """A capacity, or that there is none."""
    row, interval = found.row, found.interval
    if row is None or found.nominal_rate is None:
        return line((policy.value, "none", *[NOT_AVAILABLE] * (len(CAPACITY_HEADERS) - 2)))
    between = NOT_AVAILABLE if interval is None else f"{format_number(interval.low)} to {format_number(interval.high)}"
    return line((
        policy.value,
        format_number(found.nominal_rate),
        between,
        format_number(found.longer_rate),
        *map(format_seconds, (row.ttft_p99_s, row.itl_p99_s, row.itl_max_s)),
        format_number(row.output_tokens_per_s),
        format_number(found.usd_per_million_output_tokens, 2),
    ))  # fmt: skip


# ── the page ───────────────────────────────────────────────────────────────────────────────────────


def written(name: str) -> str:
    """What is written by hand: scripts/policies_NAME.md."""
    return (HERE / f"policies_{name}.md").read_text(encoding="utf-8").strip()


def page(results: Sequence[CaseResult], capacities: Sequence[Capacity]) -> str:
    """docs/policies.md."""
    sections = (
        "# Six policies on one workload",
        "Written by `scripts/write_policies.py`; do not edit. The reference workload: 300 requests with prompts of 2,000 to "
        "6,000 tokens and answers of about 1,500 (at most 4,000), arriving at random. The reference machine: 1 TB/s, 82.5 TFLOP/s "
        "reached, 16 GB for the cache of an 8.9B model with 4-bit weights (5.5 GB). Every run has the same requests; only their "
        "arrivals are nearer or further apart.",
        "![p99 TTFT, p99 ITL and goodput of six policies over the rate](policies.svg)",
        "## What each does, and what changes from one to the next",
        written("rules"),
        "## At each rate",
        grid(ROW_HEADERS, (rate_line(result.row) for result in results if result.row is not None), 1),
        "Rates and goodput in requests/s; goodput counts requests with TTFT ≤ 3 s and every pause ≤ 100 ms; tokens/s are output "
        "tokens over the whole run.",
        f"## The highest rate within {LIMITS.text}",
        grid(CAPACITY_HEADERS, map(capacity_line, Policy, capacities), 1),
        "The other columns are of the run at that rate, at a dollar an hour. \"None\": no rate from 0.01 requests/s on keeps both.",
        "## How to read it",
        written("reading"),
    )  # fmt: skip
    return "\n\n".join(sections) + "\n"


def _capacities() -> list[Capacity]:
    found: dict[int, Capacity] = {}
    for index, capacity in run_in_processes(capacity_of, tuple(Policy), usable_cpus()):
        if isinstance(capacity, Lost):
            sys.exit(f"{tuple(Policy)[index]}: {capacity.reason}")
        found[index] = capacity
    return [found[index] for index in sorted(found)]


def main() -> None:
    """Simulate, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args()
    started = time.monotonic()
    results = sweep([case for policy in Policy for case in cases_of(policy)])
    spec = rate_chart(results)
    if spec is None or any(result.row is None for result in results):
        sys.exit("; ".join(dict.fromkeys(result.error for result in results if result.error)) or "nothing ran")
    (options.out / "policies.md").write_text(page(results, _capacities()), encoding="utf-8")
    (options.out / "policies.svg").write_text(picture_svg(spec, svg(spec)), encoding="utf-8")
    print(f"{options.out / 'policies.md'}, policies.svg: {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
