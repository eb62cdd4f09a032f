"""Each query sees the cache as it is kept when that query is computed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.errors import RequestError  # noqa: E402
from inference_bench.labs.quantise import kv_cache  # noqa: E402
from inference_bench.labs.quantise.kv_cache import (  # noqa: E402
    CacheGrid,
    attend,
    cache_bits,
    kv_methods,
    rounded,
    rounded_cache,
)
from labs.quantise.tiny import VOCABULARY, tiny_bench, tiny_network  # noqa: E402

GRIDS = [
    CacheGrid(2, exact_tokens=8, group_tokens=4),
    CacheGrid(3, exact_tokens=5, group_tokens=4),
    CacheGrid(2, keys_by_channel=False, values_by_channel=True, exact_tokens=6, group_tokens=4),
    CacheGrid(4, exact_tokens=0, group_tokens=4),
    CacheGrid(2, keys_by_channel=False, exact_tokens=0),
]


def on_grid(numbers: list[float], bits: int) -> list[float]:
    """Min-max rounding of a few numbers that share a scale, in plain Python."""
    least = float(torch.tensor(min(numbers)).half())
    scale = float(torch.tensor((max(numbers) - least) / (2**bits - 1)).half())
    return [least + scale * min(max(round((each - least) / scale), 0), 2**bits - 1) for each in numbers]


def held(tensor: torch.Tensor, num_seen: int, grid: CacheGrid, by_channel: bool) -> torch.Tensor:
    """The first tokens of one head as an engine holds them when so many have come: token by token, group by group."""
    kept = tensor[:num_seen].clone()
    unit = grid.group_tokens if by_channel else 1
    for start in range(0, num_seen, unit):
        if start + unit > num_seen - grid.exact_tokens:
            break
        block = tensor[start : start + unit]
        lines = block.T if by_channel else block
        new = torch.tensor([on_grid(line.tolist(), grid.bits) for line in lines])
        kept[start : start + unit] = new.T if by_channel else new
    return kept


@pytest.mark.parametrize("grid", GRIDS)
def test_all_queries_at_once_are_each_query_with_the_cache_of_its_time(grid: CacheGrid) -> None:
    torch.manual_seed(1)
    query, key, value = torch.randn(1, 4, 21, 8), torch.randn(1, 2, 21, 8), torch.randn(1, 2, 21, 8)
    found = attend(query, key, value, None, 0.4, grid)
    for head in range(4):
        for place in range(21):
            keys = held(key[0, head // 2], place + 1, grid, grid.keys_by_channel)
            values = held(value[0, head // 2], place + 1, grid, grid.values_by_channel)
            shares = torch.softmax(query[0, head, place] @ keys.T * 0.4, dim=-1)
            assert torch.allclose(found[0, place, head], shares @ values, atol=1e-5), (head, place)


@pytest.mark.parametrize("grid", GRIDS)
def test_a_network_that_goes_on_from_its_cache_attends_as_over_the_whole_window(
    grid: CacheGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very same keys and values both times: those computed anew differ in their last bits, and may round the other way."""
    from transformers import DynamicCache

    network, calls = tiny_network(), list[tuple[Any, ...]]()

    def noted(*given: Any) -> Any:
        calls.append((*given[:3], attend(*given)))
        return calls[-1][-1]

    monkeypatch.setattr(kv_cache, "attend", noted)
    cache = DynamicCache(config=network.config)
    with torch.inference_mode(), rounded_cache(network, grid):
        for token in range(24):
            network(input_ids=torch.tensor([[token * 5 % VOCABULARY]]), cache=cache, use_cache=True)
    for block in range(2):
        queries, keys, values, found = zip(*calls[block::2], strict=True)
        whole = attend(torch.cat(queries, dim=2), keys[-1], values[-1], None, 16**-0.5, grid)
        assert torch.allclose(torch.cat(found, dim=1), whole, atol=1e-5)


def test_tokens_that_are_all_recent_are_attended_exactly() -> None:
    network, ids = tiny_network(), torch.arange(24)[None]
    with torch.inference_mode():
        exact = network(input_ids=ids, use_cache=False).logits
        with rounded_cache(network, CacheGrid(2, exact_tokens=24)):
            assert torch.allclose(network(input_ids=ids, use_cache=False).logits, exact, atol=1e-5)
        with rounded_cache(network, CacheGrid(2, exact_tokens=0, group_tokens=4)):
            assert not torch.allclose(network(input_ids=ids, use_cache=False).logits, exact, atol=1e-2)


def test_padding_stays_hidden() -> None:
    network, ids = tiny_network(), torch.arange(12)[None]
    padded = torch.cat([torch.zeros(1, 4, dtype=torch.long), ids], dim=1)
    mask = torch.tensor([[0] * 4 + [1] * 12])
    with torch.inference_mode(), rounded_cache(network, CacheGrid(8, exact_tokens=16)):
        alone = network(input_ids=ids, use_cache=False).logits[:, -1]
        beside = network(input_ids=padded, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(0)).logits[
            :, -1
        ]
    assert torch.allclose(alone, beside, atol=1e-4)


def test_a_channel_that_is_large_at_every_token_is_kept_by_its_own_scale() -> None:
    torch.manual_seed(0)
    keys = torch.randn(64, 16)
    keys[:, 3] += 50
    off = [(rounded(keys, 2, by_channel) - keys)[:, [0, 1, 2]].norm() for by_channel in (True, False)]
    assert off[0] < off[1] / 2


@pytest.mark.parametrize("by_channel", [True, False])
def test_numbers_that_are_all_the_same_stay_so(by_channel: bool) -> None:
    same = torch.full((32, 4), 0.5)
    assert torch.equal(rounded(same, 2, by_channel), same)


def test_a_group_of_tokens_that_is_not_full_stays_exact() -> None:
    keys = torch.randn(37, 4)
    found = rounded(keys, 2, True)
    assert torch.equal(found[32:], keys[32:])
    assert not torch.equal(found[:32], keys[:32])


def test_bits_of_a_token_are_those_counted_by_hand() -> None:
    # 64 channels at 2 bits twice; keys share 16 + 16 bits among 32 tokens a channel: 64 · 32 / 32; values have 32 a token
    assert cache_bits(64, CacheGrid(2)) == 2 * 64 * 2 + 64 + 32
    assert cache_bits(64, CacheGrid(4, keys_by_channel=False)) == 2 * 64 * 4 + 32 + 32


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_networks_own_attention_comes_back(is_broken: bool) -> None:
    network, ids = tiny_network(), torch.arange(40)[None]
    with torch.inference_mode():
        before = network(input_ids=ids, use_cache=False).logits
        try:
            with rounded_cache(network, CacheGrid(2)):
                if is_broken:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        assert torch.equal(network(input_ids=ids, use_cache=False).logits, before)
    assert network.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("is_quick", [True, False])
def test_methods_say_their_bytes_and_leave_the_weights(is_quick: bool) -> None:
    network: Any = tiny_network()
    found = list(kv_methods(tiny_bench(network, is_quick=is_quick)))
    assert len({method.name for method in found}) == len(found) == (3 if is_quick else 6)
    assert {method.weight_error for method in found} == {None}
    assert {method.weight_bytes for method in found} == {sum(each.numel() * 4 for each in network.parameters())}
    four = next(method for method in found if "KV 4 bits, K by channel" in method.name)
    assert four.cache_bytes_per_token == 88  # 2 layers · 2 heads · (2 · 16 · 4 + 16 + 32) bits


@pytest.mark.parametrize("arguments", [(0, 32), (9, 32), (4, -1)])
def test_a_cache_that_cannot_be_is_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(RequestError, match="cannot be"):
        CacheGrid(arguments[0], exact_tokens=arguments[1])
