"""Copying and JSON: what counts as right, on networks of which the answer is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.quantise.task import (  # noqa: E402
    Task,
    exact_copy_fraction,
    greedy_lines,
    is_valid,
    make_task,
    repeated_sequences,
)
from labs.quantise.tiny import tiny_network  # noqa: E402

LENGTH = 6


class Repeating(torch.nn.Module):
    """Says at each place what stood one place further, one length before: perfect copying; `wrong` breaks some places."""

    def __init__(self, wrong: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.wrong = wrong

    def get_decoder(self) -> Any:
        return self

    def get_output_embeddings(self) -> Any:
        return lambda hidden: hidden

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        following = torch.roll(input_ids, LENGTH - 1, dims=1)
        for place in self.wrong:
            following[:, place] += 1
        return SimpleNamespace(last_hidden_state=torch.nn.functional.one_hot(following, 40).float())


def copied() -> torch.Tensor:
    return repeated_sequences(range(30), 3, LENGTH, seed=0)


def test_the_second_half_repeats_the_first_and_the_draw_is_fixed_by_the_seed() -> None:
    ids = copied()
    assert torch.equal(ids[:, :LENGTH], ids[:, LENGTH:])
    assert torch.equal(ids, copied())
    assert not torch.equal(ids, repeated_sequences(range(30), 3, LENGTH, seed=1))


def test_a_network_that_copies_gets_all_of_it() -> None:
    assert exact_copy_fraction(Repeating(), copied()) == 1.0


def test_a_wrong_place_counts_once_and_only_in_the_second_half() -> None:
    # scored are the answers at places 6 to 10, for the tokens at 7 to 11
    assert exact_copy_fraction(Repeating(wrong=(8,)), copied()) == pytest.approx(4 / 5)
    assert exact_copy_fraction(Repeating(wrong=(0, 3, 5, 11)), copied()) == 1.0


@pytest.mark.parametrize(
    ("line", "valid"),
    [
        ('{"name": "Tom", "age": 45, "city": "Berlin"}', True),
        ('{"city": "Berlin", "age": 45, "name": "Tom"}', True),
        ('{"name": "Tom", "age": 45, "city": "Ber', False),
        ('{"name": "Tom", "age": "45", "city": "Berlin"}', False),
        ('{"name": "Tom", "age": 45}', False),
        ('{"name": "Tom", "age": true, "city": "Berlin"}', False),
        ('{"name": "Tom", "age": 45, "city": "Berlin"} and more', False),
        ("45", False),
        ("", False),
    ],
)
def test_only_a_whole_object_with_the_keys_and_types_is_valid(line: str, valid: bool) -> None:
    assert is_valid(line) is valid


def test_greedy_answers_with_a_cache_are_those_without_one() -> None:
    network = tiny_network()
    prompts = repeated_sequences(range(90), 2, 5, seed=2)
    tokenizer = SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))
    found = greedy_lines(network, Task(prompts, prompts, tokenizer))
    ids = prompts
    with torch.inference_mode():
        for _ in range(len(found[0].split())):
            ids = torch.cat([ids, network(input_ids=ids).logits[:, -1:].argmax(-1)], dim=1)
    assert found == [" ".join(map(str, row[prompts.shape[1] :])) for row in ids.tolist()]


def test_prompts_are_cut_at_the_left_to_one_length() -> None:
    model: Any = SimpleNamespace(encode=lambda text: [ord(char) % 90 for char in text], tokenizer=None, end_ids=(2,))
    task = make_task(model, range(90), seed=0, is_quick=False)
    assert task.prompts.shape[0] == 8
    assert all(row[-5:].tolist() == [ord(char) % 90 for char in "JSON:"] for row in task.prompts)
    assert task.ends == {2}


def test_an_answer_ends_where_the_model_ends_it() -> None:
    network = tiny_network()
    prompts = repeated_sequences(range(90), 1, 5, seed=2)
    tokenizer = SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))
    (whole,) = greedy_lines(network, Task(prompts, prompts, tokenizer))
    said = [int(token) for token in whole.split()]
    end = next(token for token in said if token != said[0])
    (cut,) = greedy_lines(network, Task(prompts, prompts, tokenizer, frozenset([end])))
    assert cut.split() == whole.split()[: said.index(end)]
    assert len(cut) < len(whole)
