"""What counts as valid, and where tokens end beside the parts of JSON."""

from __future__ import annotations

import pytest

from inference_bench.labs.grammar.judging import judge
from inference_bench.labs.grammar.lexical import element_ids, is_whole_text, spanning
from inference_bench.measure.text_checks import structured_check

pytest.importorskip("jsonschema")

CHECK = structured_check({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})


@pytest.mark.parametrize(
    ("text", "is_json", "is_valid", "is_valid_inside"),
    [
        ('{"a":1}', True, True, True),
        ('{"a":"x"}', True, False, False),
        ('```json\n{"a":1}\n```', False, False, True),
        ('Here: {"a":1} and more', False, False, True),
        ('{"a":1', False, False, False),
        ("no document", False, False, False),
        ("[" * 5000, False, False, False),
    ],
)
def test_a_text_is_judged_as_it_is_and_for_what_it_holds(
    text: str, is_json: bool, is_valid: bool, is_valid_inside: bool
) -> None:
    verdict = judge(text, True, CHECK)
    assert (verdict.is_json, verdict.is_valid, verdict.is_valid_inside) == (is_json, is_valid, is_valid_inside)


def test_a_whole_document_followed_by_talk_that_was_cut_off_is_found_inside() -> None:
    verdict = judge('{"a":1} which', False, CHECK)
    assert not verdict.is_valid
    assert verdict.is_valid_inside


def test_elements_of_json_are_told_apart_also_behind_escaped_quotes() -> None:
    assert element_ids(b'{"a\\"b": [12,true]}') == [0, *[1] * 6, 2, 3, 4, 5, 5, 6, *[7] * 4, 8, 9]
    assert spanning([b'{"a', b'\\"b', b'":', b" [1", b"2", b",true", b"]}"]) == [
        True,
        False,
        True,
        True,
        False,
        True,
        True,
    ]


def test_a_piece_of_a_character_is_no_whole_text() -> None:
    assert is_whole_text("東".encode())
    assert not is_whole_text("東".encode()[:2])
    assert not is_whole_text("東".encode()[1:])
