from __future__ import annotations

import os
from pathlib import Path

import pytest

from inference_bench.errors import MeasurementTableError
from inference_bench.score.rows import NEEDED, read_rows
from score.tables import PLAIN, write_table

HEADER = ",".join(NEEDED)
LINE = "Llama-3.1-8B,BF16,H100 SXM,vLLM,decode,1,1024,128,tpot_ms,7,ms"


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_every_field_of_a_row_is_read(tmp_path: Path) -> None:
    (row,) = read_rows(write_table(tmp_path / "t.csv", {"notes": "weights_gib=15; suspect", "n_devices": "4"}))
    assert (row.file, row.row, row.source, row.date) == ("t.csv", 2, "by hand", "2026-01")
    assert (row.model, row.params_billions, row.weight_format, row.kv_format) == ("Llama-3.1-8B", 8.03, "BF16", "")
    assert (row.hardware, row.devices, row.parallelism) == ("H100 SXM", 4, "")
    assert (row.engine, row.engine_version, row.phase) == ("vLLM", "0.10.1", "decode")
    assert (row.batch, row.input_tokens, row.output_tokens) == (1, 1024, 0)
    assert (row.metric, row.value, row.is_suspect) == ("tpot_ms", 7.0, True)


def test_only_the_needed_columns_are_needed_and_others_are_ignored(tmp_path: Path) -> None:
    (row,) = read_rows(written(tmp_path, f"{HEADER},colour\n{LINE},blue\n"))
    assert (row.source, row.date, row.devices, row.params_billions, row.notes) == ("table", "", 1, None, "")


@pytest.mark.parametrize(
    "content",
    [
        f"{HEADER}\r\n{LINE}\r\n",
        f"\ufeff{HEADER}\n{LINE}\n",
        f"{HEADER}\n{LINE}",
        f"\n{HEADER}\n\n\n{LINE}\n\n",
        ",".join(f'"{name}"' for name in NEEDED) + "\n" + ",".join(f'"{field}"' for field in LINE.split(",")),
        f"{HEADER.replace(',', ' , ')}\n{LINE.replace(',', ' , ')}\n",
    ],
    ids=["windows lines", "byte order mark", "no last newline", "blank lines", "quotes", "spaces"],
)
def test_ways_of_writing_the_same_table_are_read_alike(tmp_path: Path, content: str) -> None:
    (row,) = read_rows(written(tmp_path, content))
    assert (row.model, row.value, row.batch) == ("Llama-3.1-8B", 7.0, 1)


def test_a_row_is_named_by_the_line_it_begins_on_though_a_field_before_it_spans_lines(tmp_path: Path) -> None:
    notes = f"{HEADER},notes\n" + f'{LINE},"one\ntwo\nthree"\n\n{LINE},\n'
    assert [row.row for row in read_rows(written(tmp_path, notes))] == [2, 6]
    bad = notes.replace(f"{LINE},\n", f"{LINE.replace(',7,', ',-7,')},\n")
    with pytest.raises(MeasurementTableError, match="row 6: value is '-7'"):
        read_rows(written(tmp_path, bad))


def test_characters_that_end_a_line_only_for_python_stay_inside_a_field(tmp_path: Path) -> None:
    (row,) = read_rows(written(tmp_path, f"{HEADER},notes\n{LINE},a\u2028b\x85c\x0bd\n"))
    assert row.notes == "a\u2028b\x85c\x0bd"


def test_a_concurrency_in_words_is_kept_and_lengths_may_be_means(tmp_path: Path) -> None:
    changed = {"batch_or_concurrency": "max-throughput", "input_len": "161.4", "output_len": "337.99"}
    (row,) = read_rows(write_table(tmp_path / "t.csv", changed))
    assert (row.batch, row.batch_text, row.input_tokens, row.output_tokens) == (None, "max-throughput", 161, 338)


BAD_FIELDS = [
    ({"value": "nan"}, "row 3: value is 'nan'; a number above zero"),
    ({"value": "inf"}, "value is 'inf'"),
    ({"value": "-inf"}, "value is '-inf'"),
    ({"value": "1e400"}, "value is '1e400'"),
    ({"value": "1e-300"}, "value is '1e-300'"),
    ({"value": "0"}, "value is '0'"),
    ({"value": ""}, "value is ''"),
    ({"value": "12 ms"}, "value is '12 ms'"),
    ({"value": "9" * 5000}, "a number above zero"),
    ({"unit": "s"}, "tpot_ms is in ms, this row says 's'; convert the value"),
    ({"metric": "latency"}, "metric 'latency' is not known; known: decode_tok_s"),
    ({"phase": "train"}, "phase 'train' is not known; known: decode, prefill, e2e"),
    ({"batch_or_concurrency": "0"}, "batch_or_concurrency is '0'; a whole number from 1"),
    ({"batch_or_concurrency": "1.5"}, "batch_or_concurrency is '1.5'"),
    ({"batch_or_concurrency": "1e300"}, "batch_or_concurrency is '1e300'"),
    ({"batch_or_concurrency": "-3"}, "batch_or_concurrency is '-3'"),
    ({"input_len": "-1"}, "input_len is '-1'; a number from 0"),
    ({"output_len": "1e12"}, "output_len is '1e12'"),
    ({"n_devices": "0"}, "n_devices is '0'"),
    ({"n_devices": "two"}, "n_devices is 'two'"),
    ({"params": "-8"}, "params is '-8'"),
    ({"params": "1e300"}, "params is '1e300'"),
    ({"notes": "a\0b"}, "holds a NUL byte"),
]


@pytest.mark.parametrize(("field", "message"), BAD_FIELDS, ids=lambda value: str(value)[:40])
def test_a_bad_field_is_one_line_with_the_file_and_the_row(tmp_path: Path, field: dict[str, str], message: str) -> None:
    path = write_table(tmp_path / "bad.csv", {}, field)
    with pytest.raises(MeasurementTableError) as error:
        read_rows(path)
    text = str(error.value)
    assert text.startswith("bad.csv row 3: ")
    assert message in text
    assert "\n" not in text
    assert len(text) < 250


@pytest.mark.parametrize("column", NEEDED)
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    path = write_table(tmp_path / "t.csv", {}, columns=[name for name in PLAIN if name != column])
    with pytest.raises(MeasurementTableError, match=f"t.csv row 1: the header has no column {column}; needed are"):
        read_rows(path)


BAD_FILES = [
    (b"", "row 1: the header has no column model"),
    (f"{HEADER}\n{LINE},more\n".encode(), "row 2: 12 fields, the header has 11; quote fields with a comma"),
    (f"{HEADER}\n{LINE}\n{LINE[:30]}\n".encode(), "row 3: 4 fields, the header has 11"),
    (f'{HEADER}\n{LINE}\n"{LINE}\n'.encode(), "row 3: not readable as CSV (unexpected end of data)"),
    (f"{HEADER},value\n{LINE},8\n".encode(), "row 1: the header names column value twice"),
    (f"{HEADER}\n{LINE}\n".encode("utf-16"), "row 1: not UTF-8 text"),
    (f"{HEADER}\n{LINE}\nM\u00fcller{LINE}".encode("latin-1"), "row 3: not UTF-8 text"),
    (f"{HEADER}\n{LINE}\n".encode("utf-16-le"), "row 1: holds a NUL byte"),
    (f"{HEADER}\n{'x' * 200_000}\n".encode(), "row 2: not readable as CSV (field larger than field limit"),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES, ids=lambda value: str(value)[:40])
def test_a_file_that_is_no_table_is_refused_with_the_row(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(MeasurementTableError) as error:
        read_rows(written(tmp_path, content))
    assert message in str(error.value)
    assert str(error.value).startswith("table.csv row ")


def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "none.csv", "no such file"), (tmp_path, "not a regular file")):
        with pytest.raises(MeasurementTableError, match=what):
            read_rows(path)


def test_a_pipe_a_device_and_a_link_to_itself_are_refused_at_once(tmp_path: Path) -> None:
    pipe, loop = tmp_path / "pipe.csv", tmp_path / "loop.csv"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for path, what in ((pipe, "not a regular"), (Path(os.devnull), "not a regular"), (loop, "leads to no file")):
        with pytest.raises(MeasurementTableError, match=what):
            read_rows(path)


@pytest.mark.parametrize(
    ("notes", "doubted"),
    [
        ("suspect", True),
        ("Suspect: far below; weights_gib=14.96", True),
        ("depth=4;suspect", True),
        ("depth=4,suspect", True),
        ("it is suspect here", True),
        ("quant and lengths not stated in file; total", True),
        ("not suspect", False),
        ("checked, not  suspect; depth=4", False),
        ("unsuspected", False),
        ("suspected", False),
        ("non-suspect", False),
        ("", False),
    ],
)
def test_a_value_is_doubted_by_the_word_and_not_by_its_letters(tmp_path: Path, notes: str, doubted: bool) -> None:
    (row,) = read_rows(write_table(tmp_path / "t.csv", {"notes": notes}))
    assert row.is_suspect is doubted


@pytest.mark.parametrize(
    "text", ["nan", "NaN", "inf", "-inf", "Infinity", "1_000", "\u0664", "\uff11", "0x10", "1e", "."]
)
@pytest.mark.parametrize("column", ["batch_or_concurrency", "input_len", "n_devices", "value", "params"])
def test_what_only_a_program_takes_for_a_number_is_refused(tmp_path: Path, column: str, text: str) -> None:
    with pytest.raises(MeasurementTableError, match=column):
        read_rows(write_table(tmp_path / "t.csv", {column: text}))


@pytest.mark.parametrize("text", ["16", "16.0", "1.6e1", "+16", "16."])
def test_ways_of_writing_a_number_are_read_alike(tmp_path: Path, text: str) -> None:
    (row,) = read_rows(write_table(tmp_path / "t.csv", {"batch_or_concurrency": text, "value": text}))
    assert (row.batch, row.value) == (16, 16.0)


@pytest.mark.parametrize("text", ["max-throughput", "Offline", "Infinite"])
def test_a_word_for_the_batch_is_kept(tmp_path: Path, text: str) -> None:
    (row,) = read_rows(write_table(tmp_path / "t.csv", {"batch_or_concurrency": text}))
    assert (row.batch, row.batch_text) == (None, text)
