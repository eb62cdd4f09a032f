"""What is decoded: fixed prompts, some of which repeat themselves, since that is what a lookup lives on.

In:   whether only the first few are wanted
Out:  FixedPrompts
Leaves out: prompts of the user's own, which no result would keep
Read next by: flow, server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NUM_QUICK: Final = 5


@dataclass(frozen=True, slots=True)
class FixedPrompt:
    """A prompt; is_question puts it into the model's chat template."""

    name: str
    text: str
    is_question: bool


_ALL: Final = (
    FixedPrompt(
        "copy",
        "Repeat this sentence exactly, word for word: The small brown bird built its nest of dry grass, red wool and "
        "three long feathers high above the quiet river.",
        is_question=True,
    ),
    FixedPrompt(
        "list",
        "north, east, south, west, north, east, south, west, north, east, south, west, north,",
        is_question=False,
    ),
    FixedPrompt(
        "code",
        "def add_one(value):\n    return value + 1\n\n\ndef add_two(value):\n    return value + 2\n\n\n"
        "def add_three(value):\n    return value + 3\n\n\ndef add_four(value):\n",
        is_question=False,
    ),
    FixedPrompt("question", "Why does ice float on water?", is_question=True),
    FixedPrompt(
        "story",
        "The last train had left an hour ago, and the woman on the platform was still",
        is_question=False,
    ),
    FixedPrompt(
        "records",
        '{"id": 1, "city": "Oslo", "rain": true}\n{"id": 2, "city": "Lima", "rain": false}\n{"id": 3, "city": "Rome", "rain": true}\n',
        is_question=False,
    ),
    FixedPrompt("capital", "What is the capital of France? Answer with one word.", is_question=True),
    FixedPrompt("advice", "Name three ways to save water at home, and say why each works.", is_question=True),
)


def fixed_prompts(is_quick: bool) -> tuple[FixedPrompt, ...]:
    """Five in quick mode, else eight; of both, some that repeat themselves and some that do not."""
    return _ALL[:NUM_QUICK] if is_quick else _ALL
