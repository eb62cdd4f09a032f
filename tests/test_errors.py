from __future__ import annotations

import inspect
import re

from inference_bench import errors


def error_classes() -> list[type[errors.InferenceBenchError]]:
    return [
        cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, errors.InferenceBenchError)
    ]


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = set(re.findall(r"\b(\w+Error)\b", errors.__doc__ or "")) - {"LookupError", "ValueError", "ImportError"}
    assert drawn == {cls.__name__ for cls in error_classes()}
    assert len(drawn) > 10


def test_every_error_says_whose_mistake_it_was_by_its_exit_code() -> None:
    for cls in error_classes():
        expected = 2 if issubclass(cls, errors.RequestError) else 3
        assert cls.exit_code == expected, cls


def test_every_error_is_documented() -> None:
    assert all(cls.__doc__ for cls in error_classes())
