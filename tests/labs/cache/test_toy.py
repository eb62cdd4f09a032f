"""The toy decoder: a known size, the same text with and without a cache, and every planted fault seen."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from inference_bench.accounting.cache import CacheFormat, count_cache  # noqa: E402
from inference_bench.facts.formats import number_format  # noqa: E402
from inference_bench.labs.cache.compare import LOGIT_TOLERANCE, compare  # noqa: E402
from inference_bench.labs.cache.faults import Fault  # noqa: E402
from inference_bench.labs.cache.paths import Generation, generate  # noqa: E402
from inference_bench.labs.cache.stores import ConcatenatingStore, PreallocatedStore, Store  # noqa: E402
from inference_bench.labs.cache.toy import ToyDecoder, ToyShape, causal_mask, repeated_heads, rotated  # noqa: E402
from inference_bench.labs.cache.toy_paths import ToyCached, ToyRecomputed  # noqa: E402

SHAPE = ToyShape()
PROMPT, EMITTED = 16, 24


def stores() -> list[Store]:
    return [ConcatenatingStore(SHAPE.num_hidden_layers), PreallocatedStore(4, 2, 32, 271)]


@pytest.fixture(scope="module")
def toy() -> ToyDecoder:
    return ToyDecoder(SHAPE, seed=0)


@pytest.fixture(scope="module")
def prompt(toy: ToyDecoder) -> list[int]:
    return toy.prompt(PROMPT)


@pytest.fixture(scope="module")
def full(toy: ToyDecoder, prompt: list[int]) -> Generation:
    return generate(ToyRecomputed(toy), prompt, EMITTED)


@pytest.mark.parametrize("index", [0, 1])
def test_sixteen_tokens_and_256_emitted_fill_555008_bytes_at_271_positions(
    toy: ToyDecoder, prompt: list[int], index: int
) -> None:
    """2 · 4 layers · 2 KV heads · 32 values · 4 bytes · (16 + 256 - 1) positions."""
    store = stores()[index]
    generate(ToyCached(toy, store), prompt, 256)
    assert store.num_positions == 271
    assert store.filled_bytes == 555_008
    fmt = number_format("fp32")
    assert count_cache(SHAPE.spec(), CacheFormat(fmt, fmt), 271).num_bytes == 555_008


@pytest.mark.parametrize("index", [0, 1])
def test_a_sound_cache_gives_the_text_and_the_logits_of_full_recomputation(
    toy: ToyDecoder, prompt: list[int], full: Generation, index: int
) -> None:
    found = generate(ToyCached(toy, stores()[index]), prompt, EMITTED)
    assert found.tokens == full.tokens
    assert float((found.logits - full.logits).abs().max()) < 2e-5
    assert len(set(full.tokens)) > EMITTED / 2  # not one token for ever, which any fault would repeat as well


@pytest.mark.parametrize("fault", list(Fault))
def test_every_planted_fault_moves_logits_far_beyond_rounding(
    toy: ToyDecoder, prompt: list[int], full: Generation, fault: Fault
) -> None:
    found = generate(ToyCached(toy, stores()[1], fault), prompt, EMITTED, as_long_as=full.tokens)
    told = compare(full, found, subject="toy", prompt="p", num_prompt_tokens=PROMPT, store="s", fault=fault)
    assert told.max_logit_error > 500 * LOGIT_TOLERANCE
    assert told.first_over_tolerance is not None
    assert told.first_over_tolerance <= told.num_equal_tokens


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        (Fault.POSITION_OFF_BY_ONE, 1),  # the first decoded token stands wrong
        (Fault.POSITION_FROZEN, 2),  # the first decoded token stands right
        (Fault.MASK_ONE_SHORT, 1),
        (Fault.MASK_ONE_AHEAD, 0),  # the prompt itself is wrong
        (Fault.KV_HEADS_TILED, 0),
        (Fault.ROTARY_STALE, 1),  # a prompt that is moved as a whole is right in itself
    ],
)
def test_a_fault_shows_first_where_it_acts_first(
    toy: ToyDecoder, prompt: list[int], full: Generation, fault: Fault, first: int
) -> None:
    found = generate(ToyCached(toy, stores()[0], fault), prompt, 3)
    errors = (found.logits - full.logits[:3]).abs().amax(dim=1).tolist()
    assert next(i for i, error in enumerate(errors) if error > LOGIT_TOLERANCE) == first


def test_positions_moved_alike_everywhere_change_nothing(toy: ToyDecoder, prompt: list[int]) -> None:
    """Rotary positions enter by their differences alone, so the shift itself is no fault; keeping it for a part is."""
    here = toy.forward(prompt, range(PROMPT))
    there = toy.forward(prompt, range(16, 16 + PROMPT))
    assert float((here - there).abs().max()) < 2e-5


def test_positions_that_are_given_are_used(toy: ToyDecoder, prompt: list[int]) -> None:
    spread = toy.forward(prompt, range(0, 2 * PROMPT, 2))
    assert float((toy.forward(prompt, range(PROMPT)) - spread)[1:].abs().amax()) > 0.1


def test_no_token_is_changed_by_what_follows_it(toy: ToyDecoder, prompt: list[int]) -> None:
    whole = toy.forward(prompt, range(PROMPT))
    part = toy.forward(prompt[:5], range(5))
    assert torch.allclose(whole[:5], part, atol=2e-5)


def test_masks_are_what_is_written_out_here() -> None:
    assert causal_mask(2, 1).int().tolist() == [[1, 1, 0], [1, 1, 1]]
    assert causal_mask(3, 0, reach=1).int().tolist() == [[1, 1, 0], [1, 1, 1], [1, 1, 1]]


def test_query_heads_find_their_key_head_by_group() -> None:
    heads = torch.tensor([[[0.0]], [[1.0]]])
    assert repeated_heads(heads, 2).flatten().tolist() == [0, 0, 1, 1]
    assert repeated_heads(heads, 2, tiles_heads=True).flatten().tolist() == [0, 1, 0, 1]


def test_rotation_turns_the_two_halves_against_one_another() -> None:
    """A quarter turn takes (1, 0) to (0, 1); lengths stay."""
    turned = rotated(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[torch.pi / 2]]))
    assert turned.flatten().tolist() == pytest.approx([0.0, 1.0], abs=1e-6)
