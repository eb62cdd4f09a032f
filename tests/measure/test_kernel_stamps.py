"""Kernel stamps: what ancillary data says, and stamps put on the run's clock while the realtime clock is stepped."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable

import pytest

from inference_bench.measure.kernel_stamps import (
    STEP_S,
    Bracket,
    ClockMap,
    ask_for_stamps,
    parse_stamp_ns,
    take_bracket,
)

EPOCH_NS = 1_796_000_000_000_000_000  # some day in 2026
READ_TAKES_S = 1e-6


def timespec(seconds: int, nanoseconds: int) -> bytes:
    return struct.pack("=qq", seconds, nanoseconds)  # as on any 64-bit Linux


@pytest.mark.skipif(struct.calcsize("@l") != 8, reason="a timespec of this platform is not 16 bytes")
def test_the_stamp_is_read_from_its_own_ancillary_message() -> None:
    stamp = (1, 35, timespec(1_796_000_000, 123_456_789))
    assert parse_stamp_ns([stamp]) == 1_796_000_000_123_456_789
    assert parse_stamp_ns([(0, 8, b"\x00" * 4), stamp]) == 1_796_000_000_123_456_789
    assert parse_stamp_ns([(1, 35, timespec(5, 7) + b"\x00" * 8)]) == 5_000_000_007


@pytest.mark.parametrize(
    "ancillary",
    [[], [(1, 29, timespec(5, 7))], [(6, 35, timespec(5, 7))], [(1, 35, b"")], [(1, 35, timespec(5, 7)[:12])]],
)
def test_without_such_a_message_there_is_no_stamp(ancillary: list[tuple[int, int, bytes]]) -> None:
    assert parse_stamp_ns(ancillary) is None


def test_a_socket_that_refuses_the_option_is_left_as_it_is() -> None:
    class Refusing(socket.socket):
        def setsockopt(self, *_: object) -> None:  # type: ignore[override]
            raise OSError(92, "Protocol not available")

    with Refusing() as connection:
        assert ask_for_stamps(connection) is False


def test_other_platforms_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with socket.socket() as connection:
        assert ask_for_stamps(connection) is False


def test_a_bracket_reads_the_run_clock_on_both_sides() -> None:
    ticks = iter((1.0, 2.0))
    assert take_bracket(lambda: next(ticks), lambda: 7) == Bracket(1.0, 7, 2.0)


class World:
    """True time, and a realtime clock that is ahead of it by whatever `ahead_s` says at that time."""

    def __init__(self, ahead_s: Callable[[float], float]) -> None:
        self._ahead_s = ahead_s

    def realtime_ns(self, true_s: float) -> int:
        return EPOCH_NS + round((true_s + self._ahead_s(true_s)) * 1e9)

    def bracket(self, true_s: float, width_s: float = READ_TAKES_S, at: float = 0.5) -> Bracket:
        return Bracket(true_s, self.realtime_ns(true_s + at * width_s), true_s + width_s)


def test_a_stamp_is_when_the_bytes_came_and_not_when_they_were_read() -> None:
    world = World(lambda _: 0.25)
    clocks = ClockMap(world.bracket(0.0))
    clocks.see(world.bracket(3.05))
    assert clocks.view.map(world.realtime_ns(3.0)) == pytest.approx(3.0, abs=2e-6)


@pytest.mark.parametrize("step_s", [2.0, -2.0, 0.5, -0.01, 0.001])
def test_reads_across_a_step_are_not_believed_and_those_after_it_are(step_s: float) -> None:
    world = World(lambda true_s: step_s if true_s >= 10.0 else 0.0)
    clocks = ClockMap(world.bracket(0.0))
    clocks.see(world.bracket(9.95))
    assert clocks.view.map(world.realtime_ns(9.94)) == pytest.approx(9.94, abs=2e-6)
    clocks.see(world.bracket(10.02))
    assert clocks.view.map(world.realtime_ns(9.99)) is None
    clocks.see(world.bracket(10.07))
    assert clocks.view.map(world.realtime_ns(10.05)) == pytest.approx(10.05, abs=2e-6)


def test_the_clocks_read_while_interrupted_move_no_stamp() -> None:
    world = World(lambda _: 0.0)
    clocks = ClockMap(world.bracket(0.0))
    clocks.see(world.bracket(1.0, width_s=0.02, at=0.01))  # descheduled after the middle reading
    assert clocks.view.map(world.realtime_ns(0.99)) == pytest.approx(0.99, abs=2e-6)


def test_a_first_sample_taken_while_interrupted_costs_no_stamp() -> None:
    world = World(lambda _: 0.0)
    clocks = ClockMap(world.bracket(0.0, width_s=0.02, at=0.9))
    clocks.see(world.bracket(1.0))
    assert clocks.view.map(world.realtime_ns(0.99)) == pytest.approx(0.99, abs=2e-6)


def test_a_clock_that_is_steered_is_followed() -> None:
    world = World(lambda true_s: 500e-6 * true_s)  # as fast as a kernel slews
    clocks = ClockMap(world.bracket(0.0))
    for second in range(1, 100):
        clocks.see(world.bracket(float(second)))
        assert clocks.view.map(world.realtime_ns(second - 0.05)) == pytest.approx(second - 0.05, abs=5e-5)


def test_a_stamp_from_after_its_read_is_not_believed() -> None:
    world = World(lambda _: 0.0)
    clocks = ClockMap(world.bracket(0.0))
    clocks.see(world.bracket(1.0))
    assert clocks.view.map(world.realtime_ns(1.5)) is None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_wall_clock_does_a_believed_stamp_is_right(seed: int) -> None:
    draw = random.Random(seed)
    steps = sorted((draw.uniform(0, 20), draw.choice((2.0, -2.0, 0.3, -0.01))) for _ in range(5))
    world = World(lambda true_s: sum(step for at_s, step in steps if at_s <= true_s))
    clocks, true_s, num_believed, num_reads = ClockMap(world.bracket(0.0)), 0.01, 0, 0
    while true_s < 20:
        delay_s = draw.expovariate(1 / 0.004)
        width_s = draw.choice((READ_TAKES_S, READ_TAKES_S, READ_TAKES_S, 0.004))
        clocks.see(world.bracket(true_s + delay_s, width_s, draw.random()))
        mapped_s = clocks.view.map(world.realtime_ns(true_s))
        if mapped_s is not None:
            assert abs(mapped_s - true_s) <= 2 * STEP_S
            num_believed += 1
        num_reads += 1
        true_s += delay_s + width_s + draw.uniform(0.001, 0.03)
    assert num_believed >= 0.97 * num_reads
