"""Expected bytes are those printed in RFC 8785 and FIPS 180-4."""

from __future__ import annotations

import json

import pytest

from inference_bench.errors import RequestError
from inference_bench.manifest.canonical import canonical_json, fraction_text, sha256_of


def test_keys_are_in_the_order_of_their_utf16_units_as_rfc_8785_section_3_2_3_prints_it() -> None:
    given = json.loads(
        r'{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",'
        r' "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"}'
    )
    assert list(json.loads(canonical_json(given)).values()) == [
        *("Carriage Return", "One", "Control", "Latin Small Letter O With Diaeresis", "Euro Sign"),
        *("Emoji: Grinning Face", "Hebrew Letter Dalet With Dagesh"),
    ]


def test_a_text_is_escaped_as_rfc_8785_section_3_2_2_prints_it() -> None:
    given = json.loads(
        '{"string": "\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/", "literals": [null, true, false]}'
    )
    expected = '{"literals":[null,true,false],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    assert canonical_json(given) == expected.encode()


@pytest.mark.parametrize("value", [0.5, 1 << 53, float("nan"), b"bytes", {1: 2}, "half \ud800"], ids=str)
def test_what_has_no_one_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(RequestError):
        canonical_json({"value": value})


def test_the_hash_is_sha_256() -> None:
    assert sha256_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.6, "0.6"),
        (0.6000000238418579, "0.6"),
        (0.949999988079071, "0.95"),
        (-1.0, "-1"),
        (40.0, "40"),
        (1e300, "1e+300"),
    ],
)
def test_one_setting_is_one_text_in_single_and_in_double_precision(value: float, text: str) -> None:
    assert fraction_text(value) == text


def test_a_setting_that_is_no_number_has_no_text() -> None:
    assert fraction_text(float("nan")) is None
