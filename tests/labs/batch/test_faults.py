"""Each planted fault moves the logits; the checks miss where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from inference_bench.labs.batch.decoding import Decoder, Layout, Masking, decode
from inference_bench.labs.batch.faults import FAULTS, check_faults, check_pads, is_rotary, plant_faults
from inference_bench.labs.batch.padding import pad_left
from inference_bench.labs.batch.result import FaultRow, PadRow
from labs.batch.tiny import PAD, PROMPTS, tiny_gpt2, tiny_llama

ALLOWED = 2e-4


def planted(network) -> dict[str, FaultRow]:  # type: ignore[no-untyped-def]
    alone = [decode(network, pad_left([prompt], PAD), 4) for prompt in PROMPTS]
    rows = plant_faults(network, PROMPTS, PAD, alone, ALLOWED, lambda _: None)
    return {row.name: row for row in rows}


def test_a_rotary_model_shows_every_fault_but_a_shift_of_all_positions() -> None:
    network = tiny_llama()
    assert is_rotary(network)
    rows = planted(network)
    assert len(rows) == len(FAULTS) == 6
    hidden = rows.pop("positions from the left edge")
    assert hidden.max_difference < 1e-4
    assert not hidden.is_expected
    assert all(row.max_difference > 1e-2 and row.is_caught_by_logits and row.is_expected for row in rows.values())
    assert check_faults([*rows.values(), hidden], ALLOWED).is_met


def test_a_model_with_learned_positions_shows_that_shift_too() -> None:
    network = tiny_gpt2()
    assert not is_rotary(network)
    rows = planted(network)
    assert rows["positions from the left edge"].max_difference > 1e-2
    assert all(row.is_caught_by_logits and row.is_expected for row in rows.values())


def test_a_missing_mask_shows_in_the_prefill_already_and_one_that_is_dropped_after_it_does_not() -> None:
    network = tiny_llama()
    padded = pad_left(PROMPTS, PAD)
    with torch.inference_mode():
        right, missing, dropped = (
            Decoder(network, padded, Layout(masking=each)).prefill()
            for each in (Masking.KEPT, Masking.MISSING, Masking.DROPPED_AFTER)
        )
    assert float((missing - right).abs().max()) > 1e-2
    assert torch.equal(dropped, right)


def test_a_fault_that_does_not_show_is_a_missed_check_which_names_it() -> None:
    caught = FaultRow("no mask", 3.0, 2, 12, True, True, True, "")
    quiet = replace(caught, name="another", max_difference=0.0, is_caught_by_logits=False)
    check = check_faults([caught, quiet], ALLOWED)
    assert not check.is_met
    assert "another" in check.found


def test_a_shift_that_shows_in_a_rotary_model_is_a_missed_check() -> None:
    assert not check_faults([FaultRow("shift", 3.0, 0, 12, True, False, False, "")], ALLOWED).is_met


def test_padding_that_moves_the_logits_is_a_missed_check() -> None:
    rows = [PadRow(0, 4, 0.0, 0), PadRow(8, 4, 1e-3, 0)]
    assert check_pads(rows[:1], ALLOWED).is_met
    assert not check_pads(rows, ALLOWED).is_met
