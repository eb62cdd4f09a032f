"""What was recorded is read whatever became of it, each request once, in bounded memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inference_bench.errors import RunFolderError
from inference_bench.operate.ledger.busy import BusyTime
from inference_bench.operate.ledger.flow import Ledger
from inference_bench.operate.ledger.lines import FileTrouble
from inference_bench.operate.ledger.repeats import RepeatedIds, SeenRecords
from inference_bench.operate.ledger.totals import By
from inference_bench.report.ledger_notes import ledger_notes
from operate.ledger.made import HEAD, entries, kept, line, record, whole, write_lines


def trouble(ledger: Ledger) -> FileTrouble:
    found = ledger.sources[0].trouble
    assert found is not None
    return found


BAD = [
    "not json",
    "[]",
    "{}",
    '{"v":1}',
    json.dumps(line(1, output_tokens=-1)),
    json.dumps(line(1, output_tokens=1.5)),
    json.dumps(line(1, output_tokens=True)),
    json.dumps(line(1, output_tokens=1 << 70)),
    json.dumps(line(1, e2e_s=-1.0)),
    json.dumps(line(1)).replace('"e2e_s": 0.5', '"e2e_s": NaN'),
    json.dumps(line(1)).replace('"e2e_s": 0.5', '"e2e_s": 1e999'),
    json.dumps(line(1, status="fine")),
    json.dumps(line(1, application=["chat"])),
    json.dumps(line(1, application="x" * 1000)),
    json.dumps(line(1, attempts="none")),
    json.dumps(line(1, attempts=[{"end": "completed"}])),
    json.dumps(line(1, v=0)),
    json.dumps(line(1, at="yesterday")),
    "[" * 100_000,
    json.dumps(line(1)).replace('"e2e_s": 0.5', f'"e2e_s": {"9" * 400}'),
    json.dumps(line(1, output_tokens=0)).replace('"output_tokens": 0', f'"output_tokens": {"9" * 400}'),
    json.dumps(line(1, began_s=1e308)),
    json.dumps(line(1, began_s=-1e308)),
    json.dumps(line(1, application="\ud800")),
    json.dumps(line(1, process="p\udc00")),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[:24])
def test_a_line_that_is_no_record_is_left_out_counted_and_said_where_it_is(tmp_path: Path, bad: str) -> None:
    write_lines(tmp_path / "ledger-a.jsonl", HEAD, line(2), bad, line(3))
    ledger = kept(tmp_path)
    assert (ledger.sums.num_requests, ledger.sums.output_tokens) == (2, 10)
    assert (trouble(ledger).num_broken, trouble(ledger).first_broken) == (1, "ledger-a.jsonl line 3")
    assert any("ledger-a.jsonl line 3" in note for note in ledger_notes(ledger))


def test_a_line_longer_than_any_record_is_read_in_parts_and_left_out(tmp_path: Path) -> None:
    write_lines(tmp_path / "ledger-a.jsonl", HEAD, "x" * (3 << 20), line(1))
    assert kept(tmp_path).sums.num_requests == 1


@pytest.mark.parametrize("newer", [line(2, v=2), {**HEAD, "schema": "inference-bench/ledger-record/2"}])
def test_a_record_of_a_newer_version_is_refused_since_sums_without_it_would_be_wrong(
    tmp_path: Path, newer: dict[str, object]
) -> None:
    write_lines(tmp_path / "ledger-a.jsonl", HEAD, line(1), newer)
    with pytest.raises(RunFolderError, match=r"ledger-a\.jsonl line 3 is of version 2"):
        kept(tmp_path)


def test_a_field_that_this_version_does_not_know_costs_nothing(tmp_path: Path) -> None:
    write_lines(tmp_path / "ledger-a.jsonl", HEAD, line(1, colour="blue"))
    assert kept(tmp_path).sums.num_requests == 1


def test_a_wall_clock_that_is_set_back_changes_neither_order_nor_hour(tmp_path: Path) -> None:
    times = [
        "2026-11-30T12:00:01+00:00",
        "2026-11-30T12:00:02+00:00",
        "2026-11-30T09:00:03+00:00",
        "2026-11-30T09:00:04+00:00",
    ]
    write_lines(tmp_path / "ledger-a.jsonl", HEAD, *(line(n, at=at) for n, at in enumerate(times, start=1)))
    ledger = kept(tmp_path, by=(By.HOUR,))
    assert [group.name for group in ledger.groups[By.HOUR]] == ["2026-11-30 12Z"]
    assert ledger.paid.span_s == pytest.approx(3.5)
    assert [entry.sequence for entry in entries(tmp_path)] == [1, 2, 3, 4]
    assert trouble(ledger).num_clock_steps == 2


def test_a_file_and_its_copy_are_counted_once(tmp_path: Path) -> None:
    record(tmp_path / "a", *map(whole, range(10)))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    ledger = kept(tmp_path / "a", tmp_path / "b", tmp_path / "a")
    assert ledger.sums.num_requests == 10
    assert ledger.num_same_places == 1
    assert ledger.sources[1].trouble is not None
    assert ledger.sources[1].trouble.num_again == 10


def test_ids_that_stand_in_two_runs_are_counted_as_two_requests_and_said(tmp_path: Path) -> None:
    record(tmp_path / "a", *map(whole, range(10)))
    record(tmp_path / "b", *map(whole, range(7, 17)))
    ledger = kept(tmp_path / "a", tmp_path / "b")
    assert (ledger.sums.num_requests, ledger.num_repeated_ids) == (20, 3)
    assert any(note.startswith("3 request ids stand in more than one") for note in ledger_notes(ledger))


def test_an_empty_file_is_no_error_and_is_said(tmp_path: Path) -> None:
    (tmp_path / "ledger-a.jsonl").write_bytes(b"")
    ledger = kept(tmp_path)
    assert (ledger.sums.num_requests, trouble(ledger).num_empty_files) == (0, 1)


def test_what_no_recorder_wrote_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="neither a run folder"):
        kept(tmp_path)
    with pytest.raises(RunFolderError, match="none of its lines is a record"):
        kept(write_lines(tmp_path / "other.txt", "a", "b"))
    for junk in (b"junk", b"\0" * 5_000, b"x" * (3 << 20)):
        (tmp_path / "junk").write_bytes(junk)
        with pytest.raises(RunFolderError, match="none of its lines is a record"):
            kept(tmp_path / "junk")
    with pytest.raises(RunFolderError, match="is not there"):
        kept(tmp_path / "nothing")


def test_a_file_whose_first_record_was_torn_is_a_recorders_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "ledger-a.jsonl").write_text(f"{json.dumps(HEAD)}\n{json.dumps(line(1))[:50]}")
    ledger = kept(tmp_path)
    assert (ledger.sums.num_requests, trouble(ledger).num_torn, trouble(ledger).num_broken) == (0, 1, 0)


MANY = """
import json, resource, sys
from pathlib import Path
from operate.ledger.made import HEAD, line
from inference_bench.operate.ledger.flow import keep_ledger
from inference_bench.operate.ledger.money import Prices
path, count = Path(sys.argv[1]), int(sys.argv[2])
with path.open("w") as file:
    file.write(json.dumps(HEAD) + "\\n")
    for number in range(1, count + 1):
        file.write(json.dumps(line(number)) + "\\n")
sums = keep_ledger([path], Prices()).sums
print(sums.num_requests, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_number_of_records(tmp_path: Path) -> None:
    used = {}
    for count in (5_000, 20_000):
        done = subprocess.run(
            [sys.executable, "-c", MANY, str(tmp_path / "ledger-a.jsonl"), str(count)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": ":".join(sys.path)},
        )
        num_requests, used[count] = map(int, done.stdout.split())
        assert num_requests == count
    assert used[20_000] - used[5_000] < 10_000  # KiB: as a list, 15,000 more entries take twice that


def test_busy_time_is_the_union_and_not_the_sum() -> None:
    busy = BusyTime()
    for begin_s, end_s in ((0.0, 2.0), (1.0, 3.0), (5.0, 6.0), (5.5, 5.75), (9.0, 8.0)):
        busy.add(begin_s, end_s)
    assert (busy.seconds(), busy.bridged_s) == (4.0, 0.0)


def test_busy_time_of_more_spans_than_are_kept_bridges_the_shortest_pauses_and_says_how_much() -> None:
    busy = BusyTime(most_spans=10)
    for number in range(100):
        busy.add(number, number + 0.5 if number % 10 else number + 0.25)
    assert busy.seconds() == pytest.approx(90 * 0.5 + 10 * 0.25 + busy.bridged_s)
    assert busy.bridged_s > 0


def test_a_record_read_in_any_order_is_new_once() -> None:
    seen = SeenRecords()
    assert [seen.add("p", number) for number in (1, 2, 5, 4, 3, 3, 5, 1, 6)] == [
        True,
        True,
        True,
        True,
        True,
        False,
        False,
        False,
        True,
    ]
    assert seen.add("q", 1)


def test_repeated_ids_beyond_those_that_are_kept_are_estimated() -> None:
    repeated = RepeatedIds(most_ids=1_000)
    for source in ("a", "b"):
        for number in range(8_000):
            repeated.add(f"id-{number}", source)
    assert repeated.is_estimate
    assert 4_000 < repeated.count() < 16_000
