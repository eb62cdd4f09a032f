"""Can the model still do something, not only foretell? Copying what stands before it, and writing JSON.

In:   a network, its tokenizer, a text to draw tokens from
Out:  Task: what is asked; TaskScore: how much of it was right
Leaves out: perplexity
Read next by: scoring, flow.

Copying: tokens in random order, then the same again; scored is whether each of the second time is the most likely next token, given all
before it. JSON: a few examples of a sentence and its object, then a sentence; the greedy answer's first line must parse, with the
keys and the types that were shown. Prompts are cut at the left to one length, so that nothing is padded.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import torch

from inference_bench.labs.model import LabModel

_EXAMPLES: Final = (
    ("Anna is 31 years old and lives in Oslo.", {"name": "Anna", "age": 31, "city": "Oslo"}),
    ("Peter, aged 54, comes from Rome.", {"name": "Peter", "age": 54, "city": "Rome"}),
    ("In Paris lives Marie, who is 27.", {"name": "Marie", "age": 27, "city": "Paris"}),
)
_QUESTIONS: Final = (
    "Tom is 45 years old and lives in Berlin.",
    "Julia, aged 19, comes from Madrid.",
    "In London lives David, who is 62.",
    "Laura is 38 years old and lives in Vienna.",
    "James, aged 23, comes from Boston.",
    "In Tokyo lives Emma, who is 50.",
    "Simon is 71 years old and lives in Prague.",
    "Alice, aged 16, comes from Dublin.",
)
_TYPES: Final = {"name": str, "age": int, "city": str}
_MOST_ANSWER_TOKENS: Final = 40
_COPY_SEQUENCES, _COPY_TOKENS = 4, 64
_QUICK_QUESTIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked.

    Where:  ends are the token ids that end an answer
    Shape:  copied: [sequences, 2 · length]; prompts: [questions, tokens]
    """

    copied: torch.Tensor
    prompts: torch.Tensor
    tokenizer: Any
    ends: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TaskScore:
    """How much was right; an object that does not parse, or lacks a key, is not valid."""

    exact_copy_fraction: float
    json_valid_fraction: float


def make_task(model: LabModel, text_ids: Sequence[int], seed: int, is_quick: bool) -> Task:
    """The questions, the same for every method; tokens to copy are drawn from those that the text uses."""
    copied = repeated_sequences(text_ids, _COPY_SEQUENCES, _COPY_TOKENS, seed)
    questions = _QUESTIONS[: _QUICK_QUESTIONS if is_quick else len(_QUESTIONS)]
    prompts = [model.encode(_prompt(question)) for question in questions]
    shortest = min(map(len, prompts))
    cut = torch.tensor([each[-shortest:] for each in prompts])
    return Task(copied, cut, model.tokenizer, frozenset(model.end_ids))


def repeated_sequences(ids: Sequence[int], num_sequences: int, length: int, seed: int) -> torch.Tensor:
    """Random tokens twice over, drawn from those of a text.

    Shape:  [num_sequences, 2 · length]
    """
    known, draw = sorted(set(ids)), random.Random(seed)
    once = [[draw.choice(known) for _ in range(length)] for _ in range(num_sequences)]
    return torch.tensor([[*each, *each] for each in once])


def _prompt(question: str) -> str:
    shown = "".join(f"Text: {said}\nJSON: {json.dumps(answer)}\n\n" for said, answer in _EXAMPLES)
    return f"{shown}Text: {question}\nJSON:"


def score_task(network: Any, task: Task) -> TaskScore:
    """Ask everything once."""
    answers = greedy_lines(network, task)
    return TaskScore(exact_copy_fraction(network, task.copied), sum(map(is_valid, answers)) / len(answers))


def exact_copy_fraction(network: Any, copied: torch.Tensor) -> float:
    """How many tokens of the second time are the most likely ones.

    Formula:  right / (sequences · (length - 1)); the first of them cannot be known to begin the repetition
    """
    half = copied.shape[1] // 2
    with torch.inference_mode():
        hidden = network.get_decoder()(input_ids=copied, use_cache=False).last_hidden_state
        said = network.get_output_embeddings()(hidden[:, half:-1]).argmax(dim=-1)
    return float((said == copied[:, half + 1 :]).double().mean())


def greedy_lines(network: Any, task: Task) -> list[str]:
    """The first line of each greedy answer."""
    from transformers import DynamicCache

    cache, ids = DynamicCache(), task.prompts
    said: list[torch.Tensor] = []
    with torch.inference_mode():
        for _ in range(_MOST_ANSWER_TOKENS):
            ids = network(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)
            said.append(ids)
            answers = [_until_end(each, task.ends) for each in torch.cat(said, dim=1).tolist()]
            lines = [str(task.tokenizer.decode(answer)) for answer in answers]
            if all(
                len(answer) < len(said) or "\n" in line.lstrip() for answer, line in zip(answers, lines, strict=True)
            ):
                break
    return [line.strip().partition("\n")[0] for line in lines]


def _until_end(answer: list[int], ends: frozenset[int]) -> list[int]:
    return list(takewhile(lambda token: token not in ends, answer))


def is_valid(line: str) -> bool:
    """Whether a line is an object with the keys and types that were shown.

    >>> is_valid('{"name": "Tom", "age": 45, "city": "Berlin"}'), is_valid('{"name": "Tom", "age": 45'), is_valid("[]")
    (True, False, False)
    """
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and {key: type(value) for key, value in found.items()} == _TYPES
