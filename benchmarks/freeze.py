"""Does a latency say that the server stood still? A freeze of 5 s in 10 s, beside its closed form.

Method: a server in a process of its own on the loopback interface answers at once, but stands still for the first 5 s of every 10 s.
An open loop sends 25 requests/s for one period and is timed from the plan; a closed loop of one user sends the same number of
requests in turn, timed from the actual send, as most tools do. RUNS runs of the open loop; errors are in percent of the freeze.
Target: every figure from the plan within 1 % of the closed form.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from measure.frozen import QUANTILES, Freeze, from_plan, from_send, in_turn, open_loop

RUNS = 3
RATE = 25.0
FREEZE = Freeze(frozen_s=5.0, period_s=10.0)


def main() -> None:
    names = [*(f"p{round(100 * q)}" for q in QUANTILES), "mean"]
    print(f"| seconds | {' | '.join(names)} | largest error, % of the freeze |\n|---|{'---:|' * (len(names) + 1)}")
    show("closed form", FREEZE.answer())
    with FREEZE.server() as server:
        for run in range(RUNS):
            records = open_loop(FREEZE, server.url, RATE)
            show(f"open loop from the plan, run {run + 1}", from_plan(records))
        show("closed loop of one from the send", from_send(in_turn(server.url, round(RATE * FREEZE.period_s))))


def show(what: str, found: list[float]) -> None:
    error = max(abs(time_s - right_s) for time_s, right_s in zip(found, FREEZE.answer(), strict=True)) / FREEZE.frozen_s
    print(f"| {what} | {' | '.join(f'{time_s:.3f}' for time_s in found)} | {100 * error:.2f} |")


if __name__ == "__main__":
    main()
