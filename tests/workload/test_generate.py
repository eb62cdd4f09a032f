"""Workloads hold what was asked, or refuse it."""

from __future__ import annotations

from typing import Any

import pytest

from inference_bench.errors import RequestError
from inference_bench.workload import ClosedLoop, RequestShape, Workload

SHORT, LONG = RequestShape(10, 5), RequestShape(1000, 50)


def test_requests_take_the_shapes_in_turn() -> None:
    workload = Workload("mixed", (SHORT, LONG), ClosedLoop(2, 5))
    assert [workload.shape_of(index) for index in range(5)] == [SHORT, LONG, SHORT, LONG, SHORT]


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4", None])
def test_lengths_and_numbers_of_requests_are_whole_and_above_zero(value: Any) -> None:
    for build in (
        lambda: RequestShape(value, 1),
        lambda: RequestShape(1, value),
        lambda: ClosedLoop(value, 1),
        lambda: ClosedLoop(1, value),
    ):
        with pytest.raises(RequestError, match="whole number of at least 1"):
            build()


def test_a_workload_without_a_shape_is_refused() -> None:
    with pytest.raises(RequestError, match="'empty' has no request shape"):
        Workload("empty", (), ClosedLoop(1, 1))
