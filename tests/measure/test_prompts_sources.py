"""Where prompts come from: words, people's text, and files that others wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from inference_bench.errors import RequestError
from inference_bench.measure.prompt_files import FilePrompts, read_prompt_file
from inference_bench.measure.prompt_sources import CorpusSource, WordSource, read_corpus, read_template
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.target import Message

TEXT = "It was  a bright\ncold day in April, and the clocks\twere striking thirteen."


def test_the_text_that_comes_with_python_is_natural_and_long() -> None:
    corpus = read_corpus()
    assert corpus.num_words > 30_000
    text = PromptMaker(0, source=corpus).make(400).text
    assert 300 < len(text.split()) <= 400  # marks count beside words
    assert sum(text.lower().split().count(word) for word in ("the", "a", "of", "is", "to")) > 20


def test_a_corpus_is_cut_between_words_and_kept_as_it_was_written() -> None:
    corpus = CorpusSource(TEXT)
    cuts = [corpus.text_of(number, 4, "key") for number in range(corpus.num_words)]
    assert {cut.split()[0] for cut in cuts} == set(TEXT.split())
    whole = [cut for cut in cuts if cut in TEXT]
    assert len(whole) >= corpus.num_words - 4  # the others go on at the beginning
    assert "was  a bright" in whole  # a wide space counts
    assert "day in April," in whole  # so does a mark


def test_every_number_begins_the_corpus_elsewhere_also_when_all_starts_were_used() -> None:
    corpus = CorpusSource(TEXT)
    cuts = [corpus.text_of(number, 5, "key") for number in range(4 * corpus.num_words)]
    assert len(set(cuts)) == len(cuts)


def test_a_prompt_longer_than_the_corpus_goes_round_in_it() -> None:
    assert len(CorpusSource("one two three").text_of(0, 100, "key").split()) == 100
    assert CorpusSource("alone").text_of(0, 3, "key") == "alone alone alone"
    assert CorpusSource("alone, or not").text_of(0, 0, "key").split() != []


def test_words_and_starters_are_those_that_were_given() -> None:
    source = WordSource(words=("a", "b", "c"), starters=("x", "y"))
    texts = [source.text_of(number, 20, "key").split() for number in range(4)]
    assert [words[0] for words in texts] in (["x", "y", "x", "y"], ["y", "x", "y", "x"])
    assert {word for words in texts for word in words[1:]} == {"a", "b", "c"}


def test_a_text_file_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert read_corpus(path).text == TEXT
    path.write_text("Q: {prompt}\nA:\n", encoding="utf-8")
    assert read_template(path).text == "Q: {prompt}\nA:"


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff\xfe", "not UTF-8 at byte 0"), (b" \n\t", "no word"), (None, "cannot be read")]
)
def test_a_text_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RequestError, match=message) as caught:
        read_corpus(path)
    assert str(caught.value).isprintable()


def test_a_text_that_is_too_large_or_could_block_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("word " * 100, encoding="utf-8")
    monkeypatch.setattr("inference_bench.measure.prompt_sources.MAX_CORPUS_BYTES", 100)
    with pytest.raises(RequestError, match="larger than 100 bytes"):
        read_corpus(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RequestError, match="cannot be read"):
        read_corpus(tmp_path / "pipe")
    with pytest.raises(RequestError, match="is not the path of a file"):
        read_corpus(Path("a\0b"))


def prompts_of(tmp_path: Path, *records: object, as_array: bool = False) -> FilePrompts:
    path = tmp_path / "prompts.json"
    lines = map(json.dumps, records)
    path.write_text(json.dumps(records) if as_array else "\n\n".join(lines), encoding="utf-8")
    return read_prompt_file(path)


SHAREGPT = {
    "id": "x",
    "conversations": [
        {"from": "gpt", "value": "Hello."},
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "Why is the sky blue?"},
        {"from": "gpt", "value": "Rayleigh scattering, mostly."},
        {"from": "human", "value": "And at night?"},
        {"from": "gpt", "value": "No sun."},
    ],
}


@pytest.mark.parametrize("as_array", [False, True])
def test_sharegpt_gives_the_first_question_and_the_length_of_its_answer(tmp_path: Path, as_array: bool) -> None:
    unanswered = {"conversations": [{"from": "human", "value": "Anyone?"}]}
    prompts = prompts_of(tmp_path, SHAREGPT, unanswered, {"conversations": []}, as_array=as_array)
    assert prompts.num_skipped == 2
    (prompt,) = prompts
    assert prompt.messages == (Message("system", "Be brief."), Message("user", "Why is the sky blue?"))
    assert prompt.output_tokens == 7  # 28 characters, about four a token
    assert prompt.shape(1).prompt_tokens == 8  # 29 characters


def test_messages_hold_all_turns_and_the_last_answer_is_what_is_asked_for(tmp_path: Path) -> None:
    turns = [("system", "s"), ("user", "u1"), ("assistant", "a1"), ("user", "u2"), ("assistant", "eight888")]
    record = {"messages": [{"role": role, "content": text} for role, text in turns]}
    prompts = prompts_of(tmp_path, record)
    assert [(message.role, message.content) for message in prompts[0].messages] == turns[:-1]
    assert prompts[0].output_tokens == 2
    made = PromptMaker(0, source=prompts).make(1000)
    assert made.said == prompts[0].messages
    assert made.max_output_tokens == 2


@pytest.mark.parametrize(
    ("record", "text", "output_tokens"),
    [
        ({"prompt": "Why?", "max_tokens": 5, "completion": "x" * 400}, "Why?", 5),
        ({"prompt": "Why?", "output_tokens": 6}, "Why?", 6),
        ({"prompt": "Why?", "output_len": 7}, "Why?", 7),
        ({"text": "Why?", "response": "x" * 400}, "Why?", 100),
        ({"text": " {id} {prompt} %s \u00e9"}, " {id} {prompt} %s \u00e9", None),
    ],
)
def test_plain_prompts_are_taken_as_they_are(
    tmp_path: Path, record: dict[str, object], text: str, output_tokens: int | None
) -> None:
    made = PromptMaker(0, source=prompts_of(tmp_path, record)).make(1000)
    assert (made.said, made.max_output_tokens) == (text, output_tokens)


def test_prompts_come_in_the_order_of_the_file_and_begin_anew_at_its_end(tmp_path: Path) -> None:
    prompts = prompts_of(tmp_path, *({"prompt": f"question {number}", "max_tokens": number + 1} for number in range(3)))
    maker = PromptMaker(0, source=prompts)
    assert [maker.make(1, serial).text[-1] for serial in (2, 0, 4)] == ["2", "0", "1"]
    assert [shape.output_tokens for shape in prompts.shapes(5)] == [1, 2, 3, 1, 2]
    assert [shape.output_tokens for shape in prompts_of(tmp_path, {"prompt": "x"}).shapes(output_tokens=9)] == [9]


def test_what_prompts_of_a_file_have_in_common_is_known(tmp_path: Path) -> None:
    texts = ["abcdef 1", "xyz", "abcdef 22", "abcd", "xyz"]
    prompts = prompts_of(tmp_path, *({"prompt": text} for text in texts))
    # 7, 3, 7, 4 and 3 characters, two a token at most
    assert prompts.shared_tokens() == (4, 2, 4, 2, 2)


def test_only_as_many_prompts_are_read_as_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b"}\nnot json\n', encoding="utf-8")
    assert len(read_prompt_file(path, limit=2)) == 2
    with pytest.raises(RequestError, match=r"line 3"):
        read_prompt_file(path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "no prompt in it"),
        ({"prompt": 5}, "'prompt' must be text"),
        ({"prompt": "  "}, "'prompt' is empty"),
        ({"prompt": "secret text \ud800"}, "half a character"),
        ({"prompt": "secret text", "max_tokens": 0}, "'max_tokens' must be a whole number from 1"),
        ({"prompt": "secret text", "max_tokens": True}, "'max_tokens' must be a whole number"),
        ({"prompt": "secret text", "output_tokens": 1.5}, "'output_tokens' must be a whole number"),
        ({"messages": "secret text"}, "'messages' must be a list"),
        ({"messages": ["secret text"]}, "must be a list of objects"),
        ({"messages": [{"role": "robot", "content": "secret text"}]}, "must be one of system, developer, user"),
        ({"messages": [{"role": "user"}]}, "'content' must be text"),
        ({"messages": []}, "hold no question"),
        ({"messages": [{"role": "assistant", "content": "secret text"}]}, "hold no question"),
        ({"conversations": [{"from": "human", "value": None}]}, "'value' must be text"),
        ({"conversations": [{"from": "user", "value": ["secret text"]}]}, "'value' must be text"),
    ],
)
def test_a_record_that_is_no_prompt_is_refused_with_its_line_and_without_its_text(
    tmp_path: Path, record: dict[str, object], message: str
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "fine"}\n' + json.dumps(record), encoding="utf-8")
    with pytest.raises(RequestError) as caught:
        read_prompt_file(path)
    said = str(caught.value)
    assert message in said
    assert "line 2" in said
    assert "secret" not in said
    assert said.isprintable()


def test_files_that_hold_no_prompt_or_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prompts.jsonl"
    with pytest.raises(RequestError, match=r"the prompt file .* cannot be read: no such file"):
        read_prompt_file(path)
    path.write_text(" \n", encoding="utf-8")
    with pytest.raises(RequestError, match="is empty"):
        read_prompt_file(path)
    path.write_text("prompt,max_tokens\nhello,5\n", encoding="utf-8")
    with pytest.raises(RequestError, match="neither JSON Lines nor a JSON array"):
        read_prompt_file(path)
    path.write_text('{"conversations": []}', encoding="utf-8")
    with pytest.raises(RequestError, match="holds no prompt"):
        read_prompt_file(path)
    path.write_text('{"prompt": "0123456789"}\n' * 3, encoding="utf-8")
    monkeypatch.setattr("inference_bench.measure.prompt_files.MAX_PROMPT_CHARS", 9)
    with pytest.raises(RequestError, match="line 1: the prompt has more than 9 characters"):
        read_prompt_file(path)
    monkeypatch.setattr("inference_bench.measure.prompt_files.MAX_PROMPT_CHARS", 10)
    monkeypatch.setattr("inference_bench.measure.prompt_files.MAX_TEXT_BYTES", 25)
    with pytest.raises(RequestError, match="line 3"):
        read_prompt_file(path)
