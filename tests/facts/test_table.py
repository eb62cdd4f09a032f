"""The packaged tables: one row is found by its head alone, and no name stands for two."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from inference_bench.errors import UnknownNameError
from inference_bench.facts import table
from inference_bench.facts.load import known_model, known_models
from inference_bench.facts.names import fold_name

DATA = Path(table.__file__).with_name("data")
TABLES = [("models.jsonl", "model"), ("hardware.jsonl", "machine")]


@pytest.mark.parametrize(("file_name", "kind"), TABLES)
def test_a_row_is_found_by_every_name_it_goes_by(file_name: str, kind: str) -> None:
    rows = table.read(file_name)
    for name, row in rows.items():
        for known in (name, *row["aliases"], row.get("id", name)):
            assert table.find(file_name, kind, known) == row
            assert table.find(file_name, kind, known.upper()) == row


@pytest.mark.parametrize(("file_name", "kind"), TABLES)
def test_no_name_stands_for_two_rows(file_name: str, kind: str) -> None:
    names = Counter(
        name
        for row in table.read(file_name).values()
        for name in {fold_name(each) for each in (row["name"], *row["aliases"], row.get("id", row["name"]))}
    )
    assert names.most_common(1)[0][1] == 1
    assert len(names) > 100


@pytest.mark.parametrize(("file_name", "kind"), TABLES)
def test_every_row_is_one_line_with_a_source_and_a_day(file_name: str, kind: str) -> None:
    for line in (DATA / file_name).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        assert line.startswith('{"name": ')
        assert row["source"]
        assert len(row["as_of"].split("-")) == 3


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"no model is called 'qwen3-9b'; nearest: .*Qwen3-8B"):
        table.find("models.jsonl", "model", "qwen3-9b")


def test_at_least_two_hundred_models_are_known() -> None:
    assert len(known_models()) >= 200


def test_a_name_with_punctuation_that_no_row_uses_is_found_all_the_same() -> None:
    assert table.find("models.jsonl", "model", "qwen3 – 8b")["name"] == "Qwen3-8B"
    with pytest.raises(UnknownNameError, match="aliases"):
        table.find("models.jsonl", "model", "aliases")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("llama-3.1-8b-instruct", "Meta-Llama-3.1-8B"),
        ("deepseek-r1", "DeepSeek-V3"),
        ("mixtral-8x7b", "Mixtral-8x7B-v0.1"),
        ("qwen3-next", "Qwen3-Next-80B-A3B-Instruct"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("kimi k2", "Kimi-K2-Instruct"),
        ("llama 4 scout", "Llama-4-Scout-17B-16E-Instruct"),
        ("Llama-2-13B", "Llama-2-13b-hf"),
        ("LLaMA-33B", "llama-30b"),
        ("Qwen2.5-Coder-7B", "Qwen2.5-7B-Instruct"),
        ("TinyLlama-1.1B", "TinyLlama-1.1B-Chat-v1.0"),
        ("Mistral-7B", "Mistral-7B-v0.1"),
        ("Vicuna-7B", "Llama-2-7b-hf"),
        ("Mistral-Large-2407", "Mistral-Large-Instruct-2407"),
    ],
)
def test_a_model_is_found_by_what_people_call_it(typed: str, name: str) -> None:
    assert known_model(typed).name == name
