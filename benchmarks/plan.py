"""How long a whole plan takes once everything is imported, in counts of one decode step.

Method: in one process, `plan` of the reference scenario (text included) and one `count_step_work` of the same model are timed
alternately, 30 rounds after 3 that warm up; each count is the mean of 200, and the medians are compared. The ratio is the figure
to keep: both sides feel the same machine. The target is 50 ms. The same is done for a machine that is too small, where the plan
also looks for what would help over every known machine.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from statistics import median

from inference_bench.accounting.work import count_step_work, decode_batch
from inference_bench.facts.hardware import hardware_from_description
from inference_bench.facts.load import model_from_description
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.plan import plan
from inference_bench.predict.scenario import scenario_from_mapping
from inference_bench.report.plan_report import plan_text

ROUNDS, WARM_UP, COUNTS = 30, 3, 200
REFERENCE = Path(__file__).parents[1] / "examples" / "reference.toml"


def seconds(work: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times


def main() -> None:
    values = tomllib.loads(REFERENCE.read_text(encoding="utf-8"))
    model = model_from_description(values["model"])
    weights, fmt = loaded_weights(model, values["weights"]), cache_format(values["kv"])

    def whole(memory: str = "24 GB") -> str:
        scenario = scenario_from_mapping(values)
        machine = hardware_from_description({**values["machine"], "memory": memory}, "the machine")
        price = scenario.prices.usd_per_hour[0]
        return plan_text(plan(scenario, model, machine, usd_per_device_hour=price))

    def one() -> object:
        return count_step_work(model.spec, weights, fmt, decode_batch(5000, 18))

    rounds = [
        (seconds(one, COUNTS), seconds(whole, 1), seconds(lambda: whole("8 GB"), 1)) for _ in range(WARM_UP + ROUNDS)
    ][WARM_UP:]
    step, planned, refused = (median(column) for column in zip(*rounds, strict=True))
    print(
        f"one step counted {step * 1e6:.1f} µs; a plan {planned * 1e3:.1f} ms ({planned / step:.0f} counts), the slowest of "
        f"{ROUNDS} {max(row[1] for row in rounds) * 1e3:.1f} ms; one that ends in a no {refused * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main()
