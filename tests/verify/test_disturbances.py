from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.verify.disturbances import of_ceilings, of_loads, of_sweep
from report.sample import sample_result


@pytest.mark.parametrize(
    ("share", "drift", "said"),
    [
        (None, None, []),
        (0.81, 0.14, []),
        (1.0, -0.5, []),  # a machine that became quicker
        (0.27, None, ["the engine's threads got 27 % of the processor time that they could take"]),
        (0.79, 0.252, ["the engine's threads got 79 %", "the machine slowed by 25 %"]),
    ],
)
def test_a_starved_engine_and_a_slowing_machine_disturb_a_sweep(
    share: float | None, drift: float | None, said: list[str]
) -> None:
    found = list(of_sweep(share, drift))
    assert len(found) == len(said)
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True))


def test_of_several_loads_the_one_beside_which_most_other_work_ran_is_named() -> None:
    shares = {"load-below": 0.3, "load-near": 0.75, "load-past": 0.06}
    assert list(of_loads(shares)) == ["other work took 75 % of the processors while load-near was sent"]
    assert list(of_loads({})) == list(of_loads({"load-near": 0.05})) == []


@pytest.mark.parametrize(
    ("factor", "said"), [(1.4, []), (1 / 1.4, []), (1.6, ["1.60 times higher"]), (1 / 1.6, ["1.60 times lower"])]
)
def test_ceilings_that_moved_by_more_than_half_disturb_a_run(factor: float, said: list[str]) -> None:
    before = sample_result().probe
    assert before is not None
    read = replace(before, bandwidth_bytes_per_s=before.bandwidth_bytes_per_s * factor)
    assert [said[0] in line and "memory bandwidth" in line for line in of_ceilings(before, read)] == [True] * len(said)
    product = replace(before, peak_flops_per_s=before.peak_flops_per_s * factor)
    assert ["compute peak" in line for line in of_ceilings(before, product)] == [True] * len(said)
