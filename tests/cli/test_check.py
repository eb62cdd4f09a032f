"""`check` as a person types it: text, JSON, a page, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import refused, run_json
from inference_bench.cli.main import main
from inference_bench.report.text import display_columns
from operate.contract.fake_model_server import MODEL, WIDE, Faults, fake_model_server


def test_json_has_stable_keys_and_a_row_for_every_question_of_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_model_server(Faults(ignored={"max_tokens"})) as model:
        found = run_json(capsys, "check", model.url, "--only", "limits,stops")
    assert (found["schema"], found["target"], found["model"]) == ("inference-bench/check/1", model.url, MODEL)
    assert (found["route"], found["groups"]) == ("/v1/chat/completions", ["limits", "stops"])
    row = found["rows"][0]
    assert list(row) == ["id", "group", "asked", "verdict", "seen", "action", "figures"]
    assert (row["id"], row["verdict"]) == ("limits.max_tokens", "no")
    assert found["to_migrate"][0] == {"action": "send max_completion_tokens instead", "ids": ["limits.max_tokens"]}
    assert sum(found["counts"].values()) == len(found["rows"]) == 12
    assert (found["needs"], found["trouble"], found["is_interrupted"]) == ([], None, False)


def test_a_need_that_is_met_exits_0_and_one_that_is_not_exits_1_and_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with fake_model_server(Faults(batch_gap=WIDE)) as model:
        run_json(capsys, "check", model.url, "--only", "limits", "--need", "max_tokens", code=0)
        found = run_json(capsys, "check", model.url, "--only", "greedy", "--need", "greedy_up_to_ties", code=1)
    assert [(need["name"], need["is_met"]) for need in found["needs"]] == [("greedy_up_to_ties", False)]
    why = found["needs"][0]["why"]
    assert why.startswith("greedy.batched: no, ")
    assert "at token 3 by a gap of 2 nats" in why


def test_text_is_grouped_at_most_100_columns_wide_and_ends_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_model_server() as model:
        assert main(["check", model.url, "--quick", "--need", "seed", "--need", "n,utf8"]) == 0
    text = capsys.readouterr().out
    assert max(map(display_columns, text.splitlines())) <= 100
    assert "\nOutput limits\n  yes      max_tokens is honoured " in text
    assert text.index("To migrate") < text.index("Needed\n- seed: met\n- n: met\n- utf8: met")
    assert "- streaming.usage_unasked: ask with stream_options.include_usage" in text


def test_a_server_that_goes_away_is_exit_3_with_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_model_server(Faults(dies_after=3)) as model:
        assert main(["check", model.url, "--only", "limits"]) == 3
    text = capsys.readouterr().out
    assert "yes      max_tokens is honoured" in text
    assert "The check is not whole: the server stopped answering at output limits" in text


def test_the_page_says_the_same_and_escapes_what_the_server_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "contract.html"
    with fake_model_server(Faults(refused_keywords={"grammar"})) as model:
        assert main(["check", model.url, "--only", "structured", "--report", str(page)]) == 0
    said = page.read_text()
    assert "HTTP 400: keyword grammar is not supported" in said
    assert "<script" not in said
    assert "What to do when you move to it" in said
    assert str(page) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["http://127.0.0.1:9", "--need", "streeming"], "streaming, usage"),
        (["http://127.0.0.1:9", "--only", "nothing"], "groups: routes, limits"),
        (["http://127.0.0.1:9", "--only", "limits", "--need", "seed"], "its group sampling is not among those"),
        (["http://127.0.0.1:9", "--report", "page.txt"], "end it in .html"),
        (["http://127.0.0.1:9", "--budget", "soon"], "time of the check"),
        (["ftp://127.0.0.1:9"], "must look like http://127.0.0.1:8080"),
    ],
)
def test_what_cannot_be_asked_is_refused_on_one_line_before_anything_is_asked(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, "check", *arguments)


def test_nothing_that_listens_is_exit_3_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "http://127.0.0.1:1"]) == 3
    assert capsys.readouterr().err == (
        "inference-bench: nothing listens at http://127.0.0.1:1; start the server, or check the port\n"
    )
