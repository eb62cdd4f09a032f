from __future__ import annotations

import socket

import pytest

from inference_bench.engines.command_line import as_options, check_counts, check_flags, check_fraction
from inference_bench.engines.ports import choose_port
from inference_bench.errors import RequestError, ServerStartError


def test_settings_become_options_and_what_is_not_set_is_left_out() -> None:
    settings = [("max-model-len", 2048), ("dtype", None), ("enforce-eager", True), ("name", "a b"), ("empty", "")]
    assert list(as_options(settings, negated="no-")) == [
        "--max-model-len=2048",
        "--enforce-eager",
        "--name=a b",
        "--empty=",
    ]


def test_a_switch_that_is_off_is_said_where_the_engine_has_a_word_for_it_and_left_out_where_not() -> None:
    assert list(as_options([("enable-prefix-caching", False)], negated="no-")) == ["--no-enable-prefix-caching"]
    assert list(as_options([("enable-prefix-caching", False)], negated=None)) == []


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_a_count_that_cannot_be_is_refused_with_what_is_allowed(count: int) -> None:
    with pytest.raises(RequestError, match=f"max_running {count} is outside what X takes; give 1 to 2147483647"):
        check_counts("X", {"fine": 1, "unset": None, "max_running": count})


@pytest.mark.parametrize("value", [0.0, -0.1, 1.01, float("nan"), float("inf")])
def test_a_share_of_memory_lies_between_nothing_and_all(value: float) -> None:
    check_fraction(None)
    check_fraction(1.0)
    with pytest.raises(RequestError, match="above 0 and not above 1"):
        check_fraction(value)


@pytest.mark.parametrize("flag", ["--seed", "seed=1", "Seed", "", "a b", "x" * 100, "host", "../x", "a;b", "a\nb"])
def test_a_flag_that_is_none_or_is_ours_to_set_is_not_passed_on(flag: str) -> None:
    check_flags("X", {"seed": 1}, frozenset(("host",)))
    with pytest.raises(RequestError, match="cannot be passed on"):
        check_flags("X", {flag: 1}, frozenset(("host",)))


def test_a_chosen_port_is_free_and_a_taken_one_is_said_to_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        assert choose_port() != number
        with pytest.raises(ServerStartError, match=f"port {number} is used by another program"):
            choose_port(number)
    assert choose_port(number) == number


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(RequestError, match="does not exist"):
        choose_port(port)
