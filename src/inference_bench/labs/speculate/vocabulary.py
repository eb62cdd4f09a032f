"""Do a draft and its target mean the same by a token id? Checked token by token: a vocabulary of the same size proves nothing.

In:   two tokenizers, as Transformers loads them
Out:  nothing, or a RequestError that names the first difference
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inference_bench.errors import RequestError


def require_same_vocabulary(target: Any, draft: Any, draft_name: str) -> None:
    """Refuse a draft whose ids are other tokens, or whose special tokens differ.

    Raises:  RequestError with the first difference by id, and how many there are
    """
    mine, theirs = target.get_vocab(), draft.get_vocab()
    differences = _differences(mine, theirs)
    if differences:
        first = min(differences)
        raise RequestError(
            f"{draft_name} cannot draft for this model: token {first} is {_shown(mine, first)} here and {_shown(theirs, first)} there, "
            f"the first of {len(differences)} that differ; give a model with the same tokenizer"
        )
    for name in sorted({*_special(target), *_special(draft)}):
        here, there = _special(target).get(name), _special(draft).get(name)
        if here != there:
            raise RequestError(
                f"{draft_name} cannot draft for this model: its {name} is {there!r} and the model's is {here!r}; give a model with the "
                "same special tokens"
            )


def _differences(mine: Mapping[str, int], theirs: Mapping[str, int]) -> set[int]:
    """Ids that are not the same token on both sides."""
    return {number for _, number in mine.items() ^ theirs.items()}


def _shown(vocabulary: Mapping[str, int], number: int) -> str:
    return next((repr(token[:40]) for token, known in vocabulary.items() if known == number), "no token")


def _special(tokenizer: Any) -> dict[str, str]:
    return {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
