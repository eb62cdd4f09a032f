"""Outliers: a channel that was planted is the one that is found."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.quantise.activations import inputs_watched, watch_inputs  # noqa: E402
from inference_bench.labs.quantise.linears import linear_layers  # noqa: E402
from inference_bench.labs.quantise.outliers import outlier_row, outlier_rows  # noqa: E402
from labs.quantise.tiny import tiny_bench  # noqa: E402


def test_a_row_by_hand() -> None:
    row = outlier_row(
        ("model.layers.7.mlp.gate_proj", "model.layers.7.mlp.up_proj"), torch.tensor([1.0, 2.0, 3.0, 30.0, 2.0])
    )
    assert (row.block, row.kind, row.num_channels) == (7, "gate_proj, up_proj", 5)
    assert (row.largest, row.largest_channel, row.median_channel_max, row.ratio) == (30.0, 3, 2.0, 15.0)
    assert row.num_outlier_channels == 1


def test_channels_that_were_never_used_have_no_ratio() -> None:
    assert outlier_row(("head",), torch.zeros(4)).ratio is None


def test_a_norm_weight_made_large_shows_as_the_largest_channel_of_what_reads_it() -> None:
    bench = tiny_bench()
    network = bench.model.network
    network.model.layers[1].input_layernorm.weight.data[5] = 500.0
    rows = outlier_rows(watch_inputs(network, bench.calibration, bench.say))
    worst = max(rows, key=lambda row: row.ratio or 0.0)
    assert (worst.block, worst.kind, worst.largest_channel) == (1, "q_proj, k_proj, v_proj", 5)
    assert worst.num_outlier_channels == 1


def test_the_ranges_are_the_greatest_values_over_all_windows() -> None:
    bench = tiny_bench()
    network = bench.model.network
    seen: dict[str, list[torch.Tensor]] = {}
    with (
        torch.inference_mode(),
        inputs_watched(network, lambda name, x: seen.setdefault(name, []).append(x[0].clone())),
    ):
        for ids in bench.calibration.ids:
            network(input_ids=torch.tensor([ids]))
    found = watch_inputs(network, bench.calibration, bench.say)
    assert set(found.channel_max) == set(linear_layers(network))
    for name, parts in seen.items():
        torch.testing.assert_close(found.channel_max[name], torch.cat(parts).abs().amax(0))
