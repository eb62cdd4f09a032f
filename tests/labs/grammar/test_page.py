"""What the grammar lab says of a result: the answer first, with its figures, and nothing wider than a terminal."""

from __future__ import annotations

import json
from dataclasses import replace

from inference_bench.report.lab_grammar import lab_page, mask_share
from inference_bench.report.lab_json import lab_json
from inference_bench.report.lab_page import lab_html, lab_markdown, lab_text, repeated
from labs.grammar.sample import document, result


def test_the_answer_comes_first_and_every_sentence_has_its_figures() -> None:
    said = lab_page(result()).reading
    assert said[0].startswith(
        "A schema guarantees the form of a finished document, and not that it is finished: 4 of 4"
    )
    text = " ".join(said)
    assert "Without masks 0 of 4 documents are valid (95 % interval 10.0 % – 90.0 %): 4 cut off, 4 JSON" in text
    assert "A mask takes 150 µs in the median" in text
    assert "all of the grammar's work is 1.1 % of a step's time" in text
    assert "At 9 of 16 steps (56.2 %) just one token was allowed" in text
    assert "asks the model at the other 7 only" in text
    assert "in 90 tokens and not 57 (+58 %)" in text
    assert "No budget is sure to suffice for weather: nothing ends what may stand at #/properties/celsius" in text
    assert "at 62.5 and 80.0 tokens/s (−22 %)" in text
    assert "It takes a schema with not without a word" in text


def test_the_share_of_the_grammar_is_its_three_parts() -> None:
    assert mask_share(result()) == 0.005 + 0.005 + 0.001
    assert mask_share(replace(result(), step_parts=())) is None


def test_nothing_is_wider_than_a_terminal() -> None:
    text = lab_text(lab_page(result()))
    assert max(map(len, text.splitlines())) <= 100
    assert "uniqueItems" in text


def test_every_form_can_be_made_also_where_much_was_left_out() -> None:
    bare = replace(
        result(), documents=(), rates=(), step_parts=(), example=None, naive=None, keywords=(), faults=(), server=None,
        schemas=(),
    )  # fmt: skip
    for each in (result(), bare):
        page = lab_page(each)
        assert lab_text(page)
        assert lab_markdown(page)
        assert "<html" in lab_html(page, repeated(page.head), None)
        json.dumps(lab_json("grammar", each), allow_nan=False)


def test_what_a_users_own_prompt_led_to_is_not_shown() -> None:
    own = replace(result(), documents=(document(text=None),), example=None)
    (details,) = [table for table in lab_page(own).details if table.title == "Documents"]
    assert details.rows[0][-1] == "not kept"
