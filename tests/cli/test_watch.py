"""`watch` as a person types it: text, lines, JSON, exit codes, Ctrl-C, a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cli.commands import refused, run_json
from inference_bench.cli.main import main
from inference_bench.operate.watch.rule_files import RULE_FILES
from inference_bench.report.text import display_columns
from inference_bench.report.watch_report import event_lines, sparkline, watch_lines, watch_summary, watch_text
from operate.watch.fake_servers import FakeServer, fake_server, fake_servers, vllm_page
from operate.watch.made import DOWN, UNSURE, WELL, a_round, named
from operate.watch.test_observer import closed_port

QUICK = ("--interval", "100ms", "--timeout", "1s")
ONCE = ("--once", *QUICK)


def test_json_has_stable_keys_and_one_entry_a_server_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_servers(FakeServer(), FakeServer(page_status=503, list_status=503)) as (well, loading):
        found = run_json(capsys, "watch", f"well={well.url}", loading.url, *ONCE, code=1)
    assert list(found) == ["schema", "round", "at", "elapsed_s", "all_alive", "all_ready", "servers"]
    assert (found["schema"], found["all_alive"], found["all_ready"]) == ("inference-bench/watch/1", True, False)
    first, second = found["servers"]
    assert list(first) == [
        "name", "url", "alive", "ready", "capacity", "reasons", "events", "engine", "version", "model", "figures", "probe",
        "last_token_age_s", "queue", "counts",
    ]  # fmt: skip
    assert (first["name"], first["alive"], first["ready"], first["capacity"]) == ("well", "alive", "ready", "room")
    assert (second["alive"], second["ready"], second["capacity"], second["figures"]) == (
        "alive",
        "loading",
        "unknown",
        None,
    )


def test_exit_codes_of_once_tell_ready_not_ready_and_down_apart(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server() as server, closed_port() as port:
        assert main(["watch", server.url, *ONCE]) == 0
        server.token_status = 500
        assert main(["watch", server.url, *ONCE]) == 1
        assert main(["watch", server.url, f"http://127.0.0.1:{port}", *ONCE]) == 3
    text = capsys.readouterr().out
    assert re.search(r"127\.0\.0\.1:\d+ +down +not ready +unknown", text)


def test_a_listed_model_is_enough_for_exit_0_only_where_nobody_may_ask_for_a_token(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with fake_server(FakeServer(pages=[vllm_page()])) as server:
        assert main(["watch", server.url, "--no-probe", *ONCE]) == 0
    assert server.num_tokens_asked == 0
    assert "it lists its model; no token was asked for" in capsys.readouterr().out


def test_a_watch_for_a_time_prints_a_line_a_server_and_round_and_ends_with_a_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with fake_server() as server:
        assert main(["watch", f"a={server.url}", *QUICK, "--for", "350ms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rounds = [line for line in lines if " a: alive, ready, room; run=0 wait=0 free=n/a cache=10%" in line]
    assert len(rounds) >= 3
    assert lines[-1] == "Shares are of the rounds; models: how often the model changed."
    assert "\x1b" not in "".join(lines)


def test_json_of_a_watch_is_one_object_a_line_and_the_summary_last(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server() as server:
        assert main(["watch", f"a={server.url}", *QUICK, "--for", "250ms", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["schema"] for each in found] == ["inference-bench/watch/1"] * (len(found) - 1) + [
        "inference-bench/watch-summary/1"
    ]
    assert [each["round"] for each in found[:-1]] == list(range(1, len(found)))
    assert found[-1]["servers"][0]["num_rounds"] == len(found) - 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "no server is given to watch"),
        (("http://127.0.0.1:9", "http://127.0.0.1:9/v1"), "is given twice"),
        (("http://127.0.0.1:9", "--interval", "0"), "the interval is 0 s; it must lie between"),
        (("http://127.0.0.1:9", "--interval", "soon"), "is not a number with a unit"),
        (("http://127.0.0.1:9", "--metrics-path", "metrics"), "must begin with /"),
        (("http://127.0.0.1:9", "--once", "--for", "2s"), "one round is asked for"),
        (("http://127.0.0.1:9", "--export", "70000"), "must lie between 0"),
        (("http://127.0.0.1:9", "--export", "1.5"), "give a whole number"),
        (("http://127.0.0.1:9", "--api-key-env", "NOT_SET_HERE"), "is not set"),
        (("not a url",), "must look like http://127.0.0.1:8080"),
    ],
)
def test_what_cannot_be_watched_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    assert why in refused(capsys, "watch", *arguments)


def test_rules_are_written_without_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "watch", "--write-rules", str(tmp_path / "rules"))
    assert sorted(path.name for path in (tmp_path / "rules").iterdir()) == sorted(RULE_FILES)
    assert found["files"] == [str(tmp_path / "rules" / name) for name in RULE_FILES]


def test_a_key_reaches_the_server_and_no_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCH_KEY", "sk-secret-123456")
    with fake_server(FakeServer(key="sk-secret-123456")) as server:
        assert main(["watch", server.url, *ONCE, "--json", "--api-key-env", "WATCH_KEY"]) == 0
    shown = capsys.readouterr()
    assert "sk-secret" not in shown.out + shown.err


def test_what_a_server_calls_its_model_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server(FakeServer(model="a\x1b[2J\n\u202eb")) as server:
        assert main(["watch", server.url, *ONCE]) == 0
        assert main(["watch", server.url, *ONCE, "--json"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown


# ── text ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_table_is_at_most_100_columns_wide_with_every_figure_at_its_widest() -> None:
    wide = [
        named(view, f"a-server-with-a-long-name-{number}.example.org:8000")
        for number, view in enumerate((WELL, DOWN, UNSURE))
    ]
    for text in (watch_text(a_round(*wide)), watch_summary(())):
        assert max(map(display_columns, text.splitlines()), default=0) <= 100
    assert "1,234" in watch_text(a_round(WELL))
    assert "▁▃▅█" in watch_text(a_round(WELL))


def test_of_more_servers_than_lines_those_that_are_well_are_left_out_and_counted() -> None:
    ready = [named(WELL, f"w{number}") for number in range(50)]
    text = watch_text(a_round(*ready[:25], UNSURE, *ready[25:], DOWN), most_lines=16)
    assert len(text.splitlines()) == 16
    assert "and 44 more that fit no row here" in text
    assert "\ngone " in text
    assert "\nunsure " in text
    assert text.splitlines()[-1].endswith("more lines; all of it is in the JSON")


def test_what_happened_of_late_stays_below_the_table_of_a_terminal() -> None:
    told = a_round(replace(WELL, events=("its counters went back: it began anew",)))
    lines = event_lines(told)
    assert lines == ["12:00:00 big: its counters went back: it began anew"]
    assert watch_text(told).count("it began anew") == 1
    assert watch_text(told, 24, lines).splitlines()[-1] == lines[0]
    assert watch_text(told, 24, []).count("it began anew") == 0


def test_of_few_servers_none_is_left_out() -> None:
    assert watch_text(a_round(), most_lines=24) == watch_text(a_round())


def test_bars_grow_with_the_values_and_none_are_drawn_of_nothing() -> None:
    assert (sparkline(()), sparkline((0, 0)), sparkline((0, 4, 8))) == ("", "▁▁", "▁▅█")


def test_lines_name_each_server_and_say_why() -> None:
    lines = watch_lines(a_round()).splitlines()
    assert lines[1].startswith("2026-11-30T12:00:00Z gone: down, not ready, unknown; run=n/a")
    assert lines[1].endswith("no connection (connection refused)")


# ── a process ──────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def watching(*arguments: str, stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "inference_bench", "watch", *arguments]
    process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_with_the_summary_and_130() -> None:
    with (
        fake_server() as server,
        closed_port() as port,
        watching(f"a={server.url}", f"b=http://127.0.0.1:{port}", *QUICK) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, "")
    assert re.search(r"\na +\d+ +100 % +100 % +0 %", out)
    assert re.search(r"\nb +\d+ +0 % +0 % +0 %", out)


def test_a_terminal_is_written_over_and_states_are_words() -> None:
    ours, theirs = pty.openpty()
    shown = b""
    try:
        with fake_server() as server, watching(f"a={server.url}", *QUICK, "--for", "400ms", stdout=theirs) as process:
            os.close(theirs)
            end_s = time.monotonic() + 10
            while time.monotonic() < end_s and select.select([ours], [], [], 5)[0]:
                try:
                    part = os.read(ours, 65_536)
                except OSError:  # the other side has closed
                    break
                if not part:
                    break
                shown += part
            assert process.wait(10) == 0
    finally:
        os.close(ours)
    text = shown.decode()
    assert text.count("\x1b[4A\r\x1b[J") >= 2  # headline, head, line and row are gone up over
    assert "alive  ready  room" in text


def test_the_exporter_serves_what_the_lines_say() -> None:
    pytest.importorskip("prometheus_client")
    from urllib.request import urlopen

    with fake_server() as server, watching(f"a={server.url}", *QUICK, "--export", "0", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        where = process.stderr.readline().split()[-1]
        process.stdout.readline()
        with urlopen(where, timeout=5) as reply:
            page = reply.read().decode()
    assert 'inference_bench_ready{target="a"} 1.0' in page
