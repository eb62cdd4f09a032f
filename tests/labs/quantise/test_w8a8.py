"""Activations in 8 bits: each way of choosing a scale, by hand, and the network given back."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.quantise.activations import watch_inputs  # noqa: E402
from inference_bench.labs.quantise.linears import network_state  # noqa: E402
from inference_bench.labs.quantise.w8a8 import (  # noqa: E402
    PER_CALL,
    PER_TOKEN,
    STATIC,
    rounded_by_call,
    rounded_by_token,
    rounded_static,
    w8a8_method,
)
from labs.quantise.tiny import tiny_bench  # noqa: E402


def test_a_static_scale_cuts_off_what_lies_beyond_it() -> None:
    assert rounded_static(torch.tensor([1.4, 200.0, -300.0]), 127.0).tolist() == [1.0, 127.0, -127.0]


def test_one_scale_a_call_is_set_by_the_greatest_of_all_tokens() -> None:
    x = torch.tensor([[0.4, 0.6], [127.0, 2.4]])
    assert rounded_by_call(x).tolist() == [[0.0, 1.0], [127.0, 2.0]]


def test_one_scale_a_token_keeps_a_small_token_beside_a_large_one() -> None:
    x = torch.tensor([[0.4, 1.27], [127.0, 2.4]])
    torch.testing.assert_close(rounded_by_token(x), torch.tensor([[0.4, 1.27], [127.0, 2.0]]))


def test_a_token_of_zeros_stays_one() -> None:
    assert not rounded_by_token(torch.zeros(2, 4)).any()
    assert not rounded_by_call(torch.zeros(2, 4)).any()


@pytest.mark.parametrize("how", [STATIC, PER_CALL, PER_TOKEN])
def test_the_network_says_something_else_for_the_time_of_the_method_and_comes_back(how: str) -> None:
    bench = tiny_bench()
    network, ids = bench.model.network, torch.tensor([bench.evaluation.ids[0]])
    method = w8a8_method(network, watch_inputs(network, bench.calibration, bench.say), how)
    before = network_state(network)
    with torch.inference_mode():
        own = network(input_ids=ids).logits
        with method.applied(network):
            assert network_state(network) != before
            changed = network(input_ids=ids).logits
    assert network_state(network) == before
    assert 0 < float((changed - own).abs().max() / own.abs().max()) < 0.3


def test_the_network_comes_back_from_a_method_that_was_broken_off() -> None:
    bench = tiny_bench()
    network = bench.model.network
    method = w8a8_method(network, watch_inputs(network, bench.calibration, bench.say), STATIC)
    before = network_state(network)
    with pytest.raises(KeyboardInterrupt), method.applied(network):
        raise KeyboardInterrupt
    assert network_state(network) == before
