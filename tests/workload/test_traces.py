"""Traces in their public forms are read, and what is wrong with one is said with its line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import RequestError, TraceError
from inference_bench.workload import (
    TRACE_FORMATS,
    OpenLoop,
    Poisson,
    Segment,
    Workload,
    leading_block_hits,
    read_trace,
    with_arrivals,
)

Write = Callable[..., Path]

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.0319601,2,1
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,2399,6
2024-05-10 02:00:01.5+02:00,76,15
"""
BURST_6 = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5.0,ChatGPT,472,18,490,Conversation log
45.0,ChatGPT,1087,230,1317,Conversation log
45.0,GPT-4,417,0,417,Conversation log
118.5,ChatGPT,3,7,10,API log
"""
BURST_8 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
19440110.0,1722ac82-0a46,43,GPT-4,906,446,1352,Conversation log
19440161.0,d5983bf9-4b48,2,ChatGPT,36,29,65,Conversation log
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def save(text: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return save


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def shapes(workload: Workload) -> list[tuple[int, int]]:
    return list(zip(workload.requests.prompt_tokens, workload.requests.output_tokens, strict=True))


def times(workload: Workload) -> list[float]:
    assert isinstance(workload.arrival, OpenLoop)
    return list(workload.arrival.times_s)


def mooncake(*rows: tuple[int, int, list[int]]) -> str:
    return lines(
        *({"timestamp": ms, "input_length": length, "output_length": 5, "hash_ids": ids} for ms, length, ids in rows)
    )


def test_azure_2023_dates_keep_their_seven_digits(write: Write) -> None:
    workload = read_trace(write(AZURE_2023))
    assert times(workload) == [0.0, 0.052, 0.0520001]
    assert shapes(workload) == [(4808, 10), (3180, 8), (2, 1)]
    assert isinstance(workload.arrival, OpenLoop)
    assert (workload.arrival.process, workload.arrival.nominal_rate, workload.notes) == ("replay", None, ())
    assert workload.name == "trace.csv"


def test_azure_2024_dates_have_an_offset_and_sometimes_no_fraction(write: Write) -> None:
    assert times(read_trace(write(AZURE_2024))) == [0.0, 0.99007, 1.49007]


def test_a_replay_is_scaled_in_time(write: Write) -> None:
    assert times(read_trace(write(AZURE_2023)).scaled(0.5)) == [0.0, 0.026, 0.02600005]


@pytest.mark.parametrize("text", [BURST_6, BURST_8])
def test_both_layouts_of_burstgpt_are_read_by_column_name(write: Write, text: str) -> None:
    workload = read_trace(write(text))
    if text is BURST_8:
        assert (times(workload), shapes(workload)) == ([0.0, 51.0], [(906, 446), (36, 29)])
        assert workload.notes == ()
    else:
        assert (times(workload), shapes(workload)) == ([0.0, 40.0, 113.5], [(472, 18), (1087, 230), (3, 7)])
        assert workload.notes == ("dropped 1 failed requests (no response token)",)


def test_mooncake_blocks_of_512_tokens_become_segments(write: Write) -> None:
    workload = read_trace(
        write(mooncake((27000, 1100, [7, 8, 9]), (27000, 1024, [7, 8]), (30500, 1030, [7, 1, 2])), "trace.jsonl")
    )
    assert times(workload) == [0.0, 0.0, 3.5]
    assert workload.requests.prompts == (
        (Segment(7, 512), Segment(8, 512), Segment(9, 76)),
        (Segment(7, 512), Segment(8, 512)),
        (Segment(7, 512), Segment(1, 512), Segment(2, 6)),
    )
    assert leading_block_hits(workload).num_hits == 3


def test_a_last_block_without_an_id_is_shared_with_nobody(write: Write) -> None:
    workload = read_trace(write(mooncake((0, 600, [7]), (1, 600, [7])), "trace.jsonl"))
    prompts = workload.requests.prompts
    assert prompts is not None
    assert [prompt[0] for prompt in prompts] == [Segment(7, 512)] * 2
    assert [prompt[1].num_tokens for prompt in prompts] == [88, 88]
    assert prompts[0][1].content != prompts[1][1].content


def test_bailian_blocks_hold_16_tokens_and_its_times_are_seconds(write: Write) -> None:
    row = {"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 40, "output_length": 132,
           "type": "text", "turn": 1, "hash_ids": [1, 2, 3]}  # fmt: skip
    turn = row | {"chat_id": 160, "parent_chat_id": 159, "timestamp": 62.114, "turn": 2, "input_length": 64,
                  "hash_ids": [1, 2, 4, 5]}  # fmt: skip
    workload = read_trace(write(lines(row, turn), "trace.jsonl"))
    assert times(workload) == [0.0, 1.0]
    assert workload.requests.prompts is not None
    assert workload.requests.prompts[0] == (Segment(1, 16), Segment(2, 16), Segment(3, 8))
    assert leading_block_hits(workload).hit_tokens == 32


def test_rows_without_blocks_among_rows_with_them_share_nothing(write: Write) -> None:
    row = {"chat_id": 1, "timestamp": 0, "input_length": 16, "output_length": 1}
    text = lines(row, row | {"hash_ids": [1]}, row, row | {"hash_ids": [1]})
    prompts = read_trace(write(text, "trace.jsonl")).requests.prompts
    assert prompts is not None
    assert prompts[1] == prompts[3] == (Segment(1, 16),)
    assert len({prompts[0], prompts[2], prompts[1]}) == 3
    assert read_trace(write(lines(row, row), "trace.jsonl")).requests.prompts is None


def test_a_vllm_run_is_replayed_from_its_arrival_times(write: Write) -> None:
    row = {"request_id": "a", "input_toks": 2358, "output_toks": 531, "arrival_time": 1777142838.25, "queued_ts": 4.0}
    workload = read_trace(write(lines(row, row | {"arrival_time": 1777142838.5, "input_toks": 1}), "requests.jsonl"))
    assert (times(workload), shapes(workload)) == ([0.0, 0.25], [(2358, 531), (1, 531)])


def test_a_table_of_our_own_names_needs_no_mapping(write: Write) -> None:
    assert times(read_trace(write("arrival_s,prompt_tokens,output_tokens\n3,5,6\n4.5,5,6\n"))) == [0.0, 1.5]


@pytest.mark.parametrize(
    ("meaning", "first", "second"),
    [
        ("time", 5, 6.5),
        ("time_ms", 5000, 6500),
        ("time_us", 5_000_000, 6_500_000),
        ("time_ns", 10**18, 10**18 + 15 * 10**8),
    ],
)
@pytest.mark.parametrize("form", ["csv", "jsonl", "array"])
def test_columns_of_any_name_are_mapped(write: Write, meaning: str, first: float, second: float, form: str) -> None:
    rows = [{"in": 7, "when": first, "out": 2, "who": "b", "urgent": 3}, {"in": 8, "when": second, "out": 1, "who": "a",
                                                                         "urgent": -1}]  # fmt: skip
    if form == "csv":
        text = "\n".join(
            ["when,in,out,who,urgent", *(f"{r['when']},{r['in']},{r['out']},{r['who']},{r['urgent']}" for r in rows)]
        )
    else:
        text = lines(*rows) if form == "jsonl" else json.dumps(rows, indent=1)
    columns = {
        meaning: "when",
        "prompt": "in",
        "output": "out",
        "tenant": "who",
        "priority": "urgent",
        "adapter": "urgent",
    }
    workload = read_trace(write(text), columns=columns)
    assert (times(workload), shapes(workload)) == ([0.0, 1.5], [(7, 2), (8, 1)])
    assert list(workload.requests.tenant or ()) == [0, 1]
    assert list(workload.requests.priority or ()) == list(workload.requests.adapter or ()) == [3, -1]


def test_a_mapped_time_may_be_a_date(write: Write) -> None:
    text = "when,in,out\n2026-01-01T00:00:59.5Z,5,6\n2026-01-01T00:01:00Z,5,6\n"
    assert times(read_trace(write(text), columns={"time": "when", "prompt": "in", "output": "out"})) == [0.0, 0.5]


def test_windows_line_ends_a_byte_order_mark_and_blank_lines_do_no_harm(write: Write) -> None:
    text = b"\xef\xbb\xbf" + AZURE_2023.replace("\n", "\r\n").encode() + b"\r\n\r\n"
    assert len(read_trace(write(text))) == 3
    jsonl = b"\xef\xbb\xbf\n" + mooncake((0, 5, [1])).encode() + b"\n  \n"
    assert len(read_trace(write(jsonl))) == 1
    array = b"\xef\xbb\xbf\n[ " + mooncake((0, 5, [1])).encode() + b" ]\n "
    assert len(read_trace(write(array), "mooncake")) == 1


def test_a_limit_reads_the_first_requests_and_says_so(write: Write) -> None:
    workload = read_trace(write(AZURE_2023), limit=2)
    assert len(workload) == 2
    assert workload.notes == ("only the first 2 requests of the file were read",)
    assert read_trace(write(AZURE_2023), limit=3).notes == ()


def test_rows_that_go_back_are_refused_with_their_line_and_sorted_when_asked(write: Write) -> None:
    path = write(mooncake((5000, 5, [1]), (3000, 6, [2]), (4000, 7, [3])), "trace.jsonl")
    with pytest.raises(TraceError, match=r"trace\.jsonl line 2: its time, 3000, is before .* 5000; sort the file"):
        read_trace(path)
    workload = read_trace(path, sort=True)
    assert times(workload) == [0.0, 1.0, 2.0]
    assert list(workload.requests.prompt_tokens) == [6, 7, 5]
    assert [prompt[0].content for prompt in workload.requests.prompts or ()] == [2, 3, 1]
    assert workload.notes == ("sorted by time: 1 rows stood before the time of the one in front",)


def test_requests_without_tokens_are_refused_with_their_line_and_dropped_when_asked(write: Write) -> None:
    path = write(AZURE_2023 + "2023-11-16 18:17:05,7,0\n2023-11-16 18:17:06,0,7\n2023-11-16 18:17:07,7,7\n")
    with pytest.raises(TraceError, match=r"trace\.csv line 5: the output length is 0"):
        read_trace(path)
    workload = read_trace(path, drop_empty=True)
    assert len(workload) == 4
    assert workload.notes == ("dropped 2 requests without prompt or output tokens",)


def test_a_trace_of_failures_alone_is_refused(write: Write) -> None:
    text = "\n".join([*BURST_6.splitlines()[:1], "1.0,GPT-4,417,0,417,x"])
    with pytest.raises(TraceError, match="no request that can be sent: dropped 1 failed requests"):
        read_trace(write(text))


CHAT = {"id": "x", "conversations": [{"from": "human", "value": "one two three"}, {"from": "gpt", "value": "four"}]}


@pytest.mark.parametrize("form", ["jsonl", "array"])
def test_text_without_token_counts_is_refused_unless_lengths_are_to_be_estimated(write: Write, form: str) -> None:
    short = {"id": "y", "conversations": [{"from": "gpt", "value": "hello"}]}
    text = lines(CHAT, short) if form == "jsonl" else json.dumps([CHAT, short])
    path = write(text, "sharegpt.json")
    with pytest.raises(TraceError, match=r"sharegpt\.json (line|record) 1: there is text and no token count"):
        read_trace(path)
    workload = read_trace(path, tokens_per_word=1.5)
    assert (times(workload), shapes(workload)) == ([0.0], [(5, 2)])
    assert workload.notes == (
        "lengths of 1 requests are estimates: 1.5 tokens a word",
        "dropped 1 conversations without a question and an answer",
        "the file holds no times: all requests arrive at 0 until they are given a rate",
    )


def test_counts_in_fields_are_taken_and_no_text_is_needed(write: Write) -> None:
    turns = [{"role": "system", "num_tokens": 10}, {"role": "user", "num_tokens": 20},
             {"role": "assistant", "num_tokens": 30}, {"role": "user", "num_tokens": 40}]  # fmt: skip
    whole = {"messages": [], "prompt_tokens": 3, "completion_tokens": 4}
    workload = read_trace(write(lines({"messages": turns}, whole), "chat.jsonl"))
    assert shapes(workload) == [(30, 30), (3, 4)]
    assert not any("estimate" in note for note in workload.notes)


def test_a_trace_without_times_is_given_a_rate(write: Write) -> None:
    workload = read_trace(write(lines(*[CHAT] * 50), "chat.jsonl"), tokens_per_word=1.0)
    sent = with_arrivals(workload, Poisson(4.0), seed=3)
    assert isinstance(sent.arrival, OpenLoop)
    assert (sent.arrival.nominal_rate, len(sent), sent.requests) == (4.0, 50, workload.requests)


def test_no_text_stays_in_the_workload(write: Write) -> None:
    secret = {"conversations": [{"from": "human", "value": "sesame"}, {"from": "gpt", "value": "sesame"}]}
    assert "sesame" not in repr(read_trace(write(lines(secret)), tokens_per_word=1.0))


BAD_FILES = [
    (b"", "is empty"),
    (b" \n\n", "is empty"),
    (b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request"),
    (b"[]", "no request"),
    (gzip.compress(AZURE_2023.encode()), "is compressed; unpack"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
    (AZURE_2023.encode("utf-16"), "line 1: not UTF-8 at byte 0"),
    (AZURE_2023.encode() + b"2023-11-16 18:17:05,\xff,1\n", "line 5: not UTF-8 at byte 20"),
    (AZURE_2023.encode() + b"2023-11-16 18:17:05,1\n", "line 5: 2 fields in a table of 3 columns"),
    (AZURE_2023.encode() + b'2023-11-16 18:17:05,"1\n', "line 5"),
    (b"Timestamp,Timestamp,x\n1,2,3\n", "two columns are called 'Timestamp'"),
    (b"a,b,c\n1,2,3\n", "columns a, b, c are those of no known trace: azure"),
    (mooncake((0, 5, [1])).encode() + b'{"timestamp": 1,\n', "line 2: not JSON"),
    (mooncake((0, 5, [1])).encode() + b"[1]\n", "line 2: a JSON object for each request is needed, found list"),
    (mooncake((0, 5, [1])).encode() + b'{"timestamp": 1}\n', "line 2: there is no value 'input_length'"),
    (b'{"timestamp": NaN, "input_length": 1, "output_length": 1, "hash_ids": [1]}', "not JSON: NaN"),
    (b'{"timestamp": 1e999, "input_length": 1, "output_length": 1, "hash_ids": [1]}', "time is inf; a number"),
    (b'{"timestamp": ' + b"9" * 5000 + b', "input_length": 1, "output_length": 1, "hash_ids": [1]}', "line 1: not JSON"),
    (b'{"a":' * 200_000, "line 1: not JSON"),
    (b"[" + mooncake((0, 5, [1])).encode() + b",", "record 2: not JSON"),
    (b"[" + mooncake((0, 5, [1])).encode() + b"{}]", "expected ']' behind it, found '{}]'"),
    (b"[" + mooncake((0, 5, [1])).encode() + b"] []", "more text after the end of the array"),
    (b"[" + mooncake((0, 5, [1])).encode() + b', {"a": "\xff"}]', "not UTF-8"),
    (b"[1]", "record 1: a JSON object"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), BAD_FILES, ids=[message for _, message in BAD_FILES])
def test_a_file_that_is_no_trace_is_refused_in_one_line(write: Write, content: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=r".") as refused:
        read_trace(write(content))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 700


BAD_VALUES = [
    ("2023-11-16 18:17:05,x,1", "prompt length is 'x'; a whole number of tokens"),
    ("2023-11-16 18:17:05,1.5,1", "prompt length is '1.5'"),
    ("2023-11-16 18:17:05,-3,1", "prompt length is '-3'; it must be at least 1"),
    ("2023-11-16 18:17:05,nan,1", "prompt length is 'nan'"),
    ("2023-11-16 18:17:05,1,inf", "output length is 'inf'"),
    ("2023-11-16 18:17:05,1,1e30", "output length is '1e30'; it must be at least 1 and at most"),
    ("2023-11-16 18:17:05,," + "9" * 5000, "prompt length is ''"),
    ("2023-11-16 18:17:05,1_000,1", "prompt length is '1_000'"),
    ("2023-11-31 18:17:05,1,1", "which is in no calendar"),
    ("yesterday,1,1", "the time is 'yesterday'; a date such as"),
    ("17.5,1,1", "a date such as"),
    ("2023-11-16 18:17:03,1,1", "is before the one of the request in front"),
]


@pytest.mark.parametrize(("row", "message"), BAD_VALUES, ids=[message for _, message in BAD_VALUES])
def test_a_value_that_cannot_be_is_refused_with_its_line(write: Write, row: str, message: str) -> None:
    with pytest.raises(TraceError, match=r"trace\.csv line 5: ") as refused:
        read_trace(write(AZURE_2023 + row + "\n"))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"timestamp": -1}, "the time is -1; it must be 0 or later"),
        ({"timestamp": 2**70}, "it must be 0 or later, and no more than"),
        ({"timestamp": True}, "the time is True; a number is needed"),
        ({"timestamp": None}, "the time is None"),
        ({"input_length": True}, "prompt length is True"),
        ({"input_length": [1]}, "prompt length is [1]"),
        ({"hash_ids": [1, 2]}, "2 block ids for a prompt of 5 tokens; blocks of 512 tokens would be 1"),
        ({"hash_ids": "1"}, "the block ids are '1'; a list"),
        ({"hash_ids": [True]}, "the block id True is not a whole number"),
        ({"hash_ids": [-1]}, "the block id -1 is not a whole number"),
        ({"hash_ids": [2**80]}, "is not a whole number from 0 to"),
    ],
)
def test_a_json_value_that_cannot_be_is_refused_with_its_line(
    write: Write, values: dict[str, Any], message: str
) -> None:
    row = {"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1]}
    with pytest.raises(TraceError, match=r"trace\.csv line 2: ") as refused:
        read_trace(write(lines(row, row | values)))
    assert message in str(refused.value)


def test_a_prompt_longer_than_its_blocks_by_less_than_one_is_not_refused(write: Write) -> None:
    assert len(read_trace(write(mooncake((0, 1023, [1]))))) == 1
    with pytest.raises(TraceError, match="1 block ids for a prompt of 1024 tokens; blocks of 512 tokens would be 2"):
        read_trace(write(mooncake((0, 1024, [1]))))


def test_a_missing_column_is_named_with_the_nearest(write: Write) -> None:
    path = write("TIMESTAMP,Context Tokens,GeneratedTokens\n2023-11-16 18:17:05,1,1\n")
    with pytest.raises(TraceError, match=r"no column 'ContextTokens' \(azure\); nearest: 'Context Tokens'"):
        read_trace(path, "azure")
    with pytest.raises(TraceError, match=r"no column 'Prompt'.*there are: TIMESTAMP"):
        read_trace(path, columns={"time": "TIMESTAMP", "prompt": "Prompt", "output": "GeneratedTokens"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "azur"}, "no trace format is called 'azur'; nearest: 'azure'"),
        ({"format": "azure", "columns": {}}, "give one of them"),
        ({"columns": {}}, r"given for nothing; give one time \(time, time_ms"),
        ({"columns": {"time": "a", "prompt": "b"}}, "give one time"),
        ({"columns": {"time": "a", "time_ms": "a", "prompt": "b", "output": "c"}}, "give one time"),
        ({"columns": {"tim": "a", "prompt": "b", "output": "c"}}, "cannot mean 'tim'; nearest: 'time'"),
        ({"limit": 0}, "number of requests to read is 0"),
        ({"tokens_per_word": 0.0}, "number of tokens a word is 0.0"),
    ],
)
def test_a_question_that_is_wrong_in_itself_is_refused(write: Write, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read_trace(write(AZURE_2023), **arguments)


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="not a regular file"):
        read_trace(tmp_path, "azure")
    with pytest.raises(TraceError, match="not a regular file"):
        read_trace("/dev/null")
    with pytest.raises(TraceError, match="is not a path"):
        read_trace("a\0b")


def test_an_array_is_read_in_pieces_wherever_they_are_cut(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [json.loads(line) for line in mooncake(*[(ms, 600, [ms, ms + 1]) for ms in range(40)]).splitlines()]
    text = json.dumps([row | {"note": 'é→😀 \\ " ] }'} for row in rows], ensure_ascii=False, indent=1)
    expected = read_trace(write(text), "mooncake")
    for size in (1, 2, 3, 7, 64, 4096):
        monkeypatch.setattr("inference_bench.workload.trace_source._CHUNK_BYTES", size)
        assert read_trace(write(text), "mooncake") == expected
    assert len(expected) == 40


def test_every_format_is_listed_once() -> None:
    assert set(TRACE_FORMATS) == {
        "azure",
        "burstgpt",
        "bailian",
        "mooncake",
        "vllm-run",
        "plain",
        "sharegpt",
        "servegen",
    }


@pytest.mark.parametrize("offset", ["+24:00", "-99:59", "+02:60"])
def test_an_offset_of_a_day_or_more_is_refused(write: Write, offset: str) -> None:
    path = write(AZURE_2024.replace("+02:00", offset))
    with pytest.raises(TraceError, match=r"line 4: the time is .*, whose offset from UTC must be below 24:00"):
        read_trace(path)


def test_a_row_that_is_too_short_says_what_it_lacks(write: Write) -> None:
    head = "arrival_s,prompt_tokens,output_tokens\n0,1,1\n"
    with pytest.raises(TraceError, match=r"line 3: 1 fields .*; nothing stands for 'prompt_tokens', 'output_tokens'"):
        read_trace(write(f"{head}1\n"))
    with pytest.raises(TraceError, match="what stands behind 'output_tokens' has no column"):
        read_trace(write(f"{head}1,1,1,1\n"))


def test_words_of_more_tokens_than_any_request_are_refused(write: Write) -> None:
    turns = [{"from": "human", "value": "a b"}, {"from": "gpt", "value": "c"}]
    path = write(json.dumps([{"conversations": turns}]))
    with pytest.raises(TraceError, match=r"a turn of 2 words is 2e\+300 tokens"):
        read_trace(path, tokens_per_word=1e300)
