"""What every view of the page promises, and the first two views: a dict of texts in, JSON out, the same as on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bridge.asking import (
    HOSTILE,
    OWN_NUMBERS,
    answered,
    as_in_a_browser,
    ask,
    on_the_command_line,
    refused,
    require_harmless,
    require_survives,
    steps,
)
from inference_bench import bridge
from inference_bench.accounting import layer_split
from inference_bench.bridge.fields import MAX_CONFIG_CHARS, MAX_FIELD_CHARS, Field, View
from inference_bench.cli.main import build_parser
from inference_bench.errors import InferenceBenchError
from inference_bench.page.forms import lists
from shapes import REFERENCE_CONFIG

VIEWS = {view.name: view for view in bridge.views()}
QUICK = {"simulate": {"requests": "10", "rates": "1", "policies": "chunked"}}
EVERY_FIELD = [(view, each) for view in VIEWS.values() for each in view.fields]
OWN = {"on": "own", "memory": "24GB", "bandwidth": "1.01 TB/s", "peak": "165 TFLOP/s", "peak_format": "bf16"}
PASTED = {"config": json.dumps(REFERENCE_CONFIG, indent=2)}
EVIL = '<img src=x onerror="alert(1)">'


def field_id(value: object) -> str:
    return value.name if isinstance(value, View | Field) else str(value)


# ── every view ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("width", ["wide", "narrow", None])
def test_an_answer_has_what_a_page_needs_and_is_json(name: str, width: str | None) -> None:
    last = steps(name, width, **QUICK.get(name, {}))[-1]
    text = json.dumps(last, allow_nan=False)
    assert json.dumps(json.loads(text)) == text
    assert set(last) == {"schema", "view", "answer", "status", "html", "charts", "tables", "command", "files"}
    assert (last["schema"], last["view"]) == ("inference-bench/page/1", name)
    assert last["answer"]["schema"].startswith("inference-bench/")
    assert 10 < len(last["status"]) < 200
    assert (last["command"] is None) == (VIEWS[name].command is None)
    require_harmless(last["html"])
    widths = {place.rpartition("-")[2] for place in last["charts"]}
    assert widths == ({"wide", "narrow"} if width is None else {width})
    assert all(f'data-chart="{place}"' in last["html"] for place in last["charts"])


@pytest.mark.parametrize("name", VIEWS)
def test_the_same_question_gets_the_same_answer(name: str) -> None:
    one, other = (json.dumps(steps(name, None, **QUICK.get(name, {}))) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("name", VIEWS)
def test_what_comes_before_the_answer_is_progress_or_the_answer_without_extras(name: str) -> None:
    *before, last = steps(name, **QUICK.get(name, {}))
    assert "is_partial" not in last
    for step in before:
        assert step.get("is_partial") or 0 <= step["progress"] <= 1


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "there is no view ''; there are: fit, roofline"),
        ({"view": "future"}, "there is no view 'future'"),
        ({"view": EVIL * 50}, "there is no view"),
        ({"view": None}, "there is no view 'None'"),
        ({"view": "fit", "width": "enormous"}, "the width is wide, narrow, or none"),
        ({"view": "fit", "fields": "model=x"}, "as an object of texts"),
        ({"view": "fit", "fields": None}, "as an object of texts"),
        ({"view": "fit", "fields": {"colour": "red"}}, "this view has no field 'colour'; it has: model"),
    ],
)
def test_a_question_that_is_none_is_one_error_in_a_sentence(request_: dict[str, Any], said: str) -> None:
    (only,) = bridge.steps(request_)
    assert only["error"]["field"] is None
    assert said in only["error"]["message"]
    assert len(only["error"]["message"]) < 600


@pytest.mark.parametrize("value", [None, 5, 1.5, True, [], {}, "x" * (MAX_FIELD_CHARS + 1)])
def test_a_field_that_is_no_text_of_a_bearable_length_is_an_error_at_the_field(value: object) -> None:
    found = bridge.answer({"view": "fit", "fields": {"context": value}})
    assert found["error"]["field"] == "context"
    assert f"at most {MAX_FIELD_CHARS:,} characters" in found["error"]["message"]


def test_a_config_may_be_long_and_not_endless() -> None:
    long = json.dumps({**REFERENCE_CONFIG, "notes": "x" * 200_000})
    assert answered("fit", config=long)["answer"]["model"]["params_total"] == 9_550_729_216
    assert refused("fit", config="x" * (MAX_CONFIG_CHARS + 1))[0] == "config"


@pytest.mark.parametrize("file", ["/nowhere/model.gguf", "/dropped/1/\0.gguf", "x" * 5000, ""])
def test_a_file_that_is_not_there_is_an_error_at_the_file(file: str) -> None:
    found = bridge.answer({"view": "fit", "fields": {}, "file": file})
    assert found["error"]["field"] == "file"


def test_a_mistake_of_the_program_is_said_to_be_one_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_view: object, _said: object, _file: object) -> None:
        raise ZeroDivisionError

    asking = bridge.Steps(json.dumps({"view": "fit", "fields": {}}))
    with monkeypatch.context() as patched:
        patched.setattr("inference_bench.bridge.Values.read", broken)
        found = json.loads(asking.next() or "")
    assert found["error"]["field"] is None
    assert "a mistake of this program, not of yours (ZeroDivisionError)" in found["error"]["message"]
    assert asking.next() is None


def test_steps_as_texts_are_the_same_and_end_in_none() -> None:
    asking = bridge.Steps(json.dumps({"view": "fit", "fields": {"context": "8k"}, "width": "wide"}))
    text = asking.next()
    assert text is not None
    assert json.loads(text) == ask("fit", context="8k")
    assert asking.next() is None
    assert asking.next() is None


# ── every field ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("view", VIEWS.values(), ids=field_id)
def test_names_of_fields_are_given_once_and_conditions_name_a_field_of_the_view(view: View) -> None:
    names = [each.name for each in view.fields]
    assert len(names) == len(set(names))
    for each in view.fields:
        if each.when is not None:
            name, _, value = each.when.partition("=")
            other = next(field for field in view.fields if field.name == name)
            assert not other.options or value in dict(other.options)


@pytest.mark.parametrize(("view", "each"), EVERY_FIELD, ids=field_id)
def test_a_field_says_what_it_is_and_holds_a_choice_of_its_own(view: View, each: Field) -> None:
    assert each.label.strip()
    assert not each.options or each.default in dict(each.options)
    assert each.listed is None or f'id="list-{each.listed}"' in lists()
    assert each.power is None or each.default.isdecimal()


@pytest.mark.parametrize(
    ("view", "each"), [(view, each) for view, each in EVERY_FIELD if each.option is not None], ids=field_id
)
def test_the_option_of_a_field_is_one_of_the_command(
    view: View, each: Field, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args([str(view.command), "--help"])
    assert re.search(rf"{each.option}\b", capsys.readouterr().out)


@pytest.mark.parametrize(
    "name", [view.name for view in VIEWS.values() if any(each.name == "config" for each in view.fields)]
)
def test_a_hostile_model_stays_a_text(name: str) -> None:
    config = json.dumps({**REFERENCE_CONFIG, "_name_or_path": EVIL, "architectures": [EVIL], "torch_dtype": EVIL})
    found = ask(name, config=config, **QUICK.get(name, {}))
    if "error" in found:
        assert found["error"]["field"] == "config"
    else:
        require_harmless(found["html"])
        assert "<img" not in found["html"]


# ── the first two views ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["fit", "roofline", "article"])
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:24])
def test_no_text_in_any_field_breaks_or_hangs_a_view(name: str, text: str) -> None:
    for each in VIEWS[name].fields:
        others = {"on": "own"} if each.name in {*OWN_NUMBERS, "peak_format"} else {}
        require_survives(name, each.name, text, **others)


SETTINGS: dict[str, dict[str, str]] = {
    "example": {},
    "other model": {"model": "gemma-3-27b", "on": "RTX 4090", "compute": ""},
    "hub id": {"model": "Qwen/Qwen3-8B"},
    "no such peak": {"on": "A100 SXM4 80GB", "compute": "fp8"},
    "formats": {"weights": "q4_k_m", "kv": "q8_0/fp16", "context": "32k"},
    "devices": {"model": "llama-3.1-70b", "devices": "4", "on": "H100"},
    "own machine": OWN,
    "own without compute": {**OWN, "peak": "", "compute": ""},
    "own with a link": {**OWN, "interconnect": "900GB/s", "devices": "2"},
    "pasted": PASTED,
    "pasted on own": {**PASTED, **OWN, "context": "4k"},
    "spaces": {"model": "  Qwen3-8B ", "context": " 8k "},
}  # fmt: skip
OF_FIT: dict[str, dict[str, str]] = {
    "no machine": {"on": "", "compute": ""},
    "own limit": {"context": ""},
    "many": {"sequences": "64", "context": "8k"},
    "vllm": {"engine": "vllm", "on": "H100"},
    "llama.cpp": {"engine": "llama.cpp", "weights": "q4_k_m", "on": "RTX 4090"},
    "sglang": {"engine": "sglang"},
    "pipeline": {"devices": "2", "split": "pipeline"},
    "no overhead": {"overhead": "0"},
    "empty overhead": {"overhead": ""},
    "does not fit": {"model": "llama-3.1-70b", "on": "RTX 4090", "compute": ""},
    "nothing fits": {"model": "deepseek-v3", "on": "Raspberry Pi 5", "compute": ""},
}  # fmt: skip
OF_ROOFLINE: dict[str, dict[str, str]] = {
    "batch": {"batch": "32"},
    "prompt": {"prompt": "2k"},
    "chunk": {"chunk": "2048", "batch": "8"},
    "default context": {"context": "4096"},
    "others": {"others": "H100, RTX 4090"},
}


@pytest.mark.parametrize("name", [*SETTINGS, *OF_FIT])
def test_fit_prints_the_same_on_the_command_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ask("fit", **{**SETTINGS, **OF_FIT}[name])
    if name == "nothing fits" and "error" in found:
        pytest.skip(found["error"]["message"])
    assert on_the_command_line(found, tmp_path, monkeypatch, capsys) == found["answer"]


@pytest.mark.parametrize("name", [*SETTINGS, *OF_ROOFLINE])
def test_roofline_prints_the_same_on_the_command_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answered("roofline", **{**SETTINGS, **OF_ROOFLINE}[name])
    assert on_the_command_line(found, tmp_path, monkeypatch, capsys) == found["answer"]


def test_a_text_that_begins_like_an_option_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is typed is quoted for a shell; where it has no answer there is no command."""
    field, message = refused("fit", context="--json")
    assert (field, "--json" in message) == ("context", True)
    found = answered("fit", **{**OWN, "memory": "24GB", "weights": " q4_k_m "})
    assert "$" not in found["command"]
    assert on_the_command_line(found, tmp_path, monkeypatch, capsys) == found["answer"]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000, json.dumps({"a": [[[]] * 300]})]
)
def test_a_config_nested_too_deeply_is_refused_before_a_parser_falls_over_it(text: str) -> None:
    """Python in a browser ends for good where this one raises RecursionError."""
    field, message = refused("fit", config=text)
    assert field == "config"
    assert ("is nested too deeply: more than 200 arrays and objects" in message) is (len(text) > 10_000)


def test_what_would_fit_on_several_devices_is_found_without_weighing_the_layers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weighed = []
    weigh = layer_split.planned_layer_weights

    def counted(*given: Any) -> Any:
        weighed.append(given)
        return weigh(*given)

    monkeypatch.setattr(layer_split, "planned_layer_weights", counted)
    fields = {**OWN, "memory": "8GB", "devices": "8", "split": "pipeline", "sequences": "300", "compute": ""}
    found = answered("fit", **fields, model="Mixtral-8x7B-v0.1")
    assert found["answer"]["fits"] is False
    assert 1 < len(weighed) < 200  # once for each combination of formats, and not for each context that is tried


def test_fit_that_does_not_fit_answers_first_and_adds_what_would_fit() -> None:
    partial, whole = steps("fit", **{**OWN, "memory": "12GB", "compute": ""})
    assert partial["is_partial"] is True
    assert partial["answer"]["fits"] is whole["answer"]["fits"] is False
    assert whole["answer"]["suggestions"]
    assert "--suggest" in whole["command"]
    assert "--suggest" not in partial["command"]


def test_the_first_answer_of_fit_has_the_published_figures() -> None:
    """Source: 2 · 36 layers · 8 heads · 128 · 2 bytes = 147,456 bytes a token; 4.5e15 FLOP/s over 8e12 B/s = 562.5."""
    found = answered("fit")
    assert found["answer"]["cache"]["next_token_bytes"] == 147_456
    assert found["answer"]["cache"]["bytes"] == 40_000 * 147_456
    assert found["answer"]["fits"] is True
    assert ">562 <span>FLOP/byte</span>" in found["html"]


@pytest.mark.parametrize(
    ("view", "fields", "field", "words"),
    [
        ("fit", {"devices": "3"}, "devices", "do not divide over 3 ranks"),
        ("fit", {"sequences": "0"}, "sequences", "at least 1"),
        ("fit", {"context": "9e30"}, "context", "whole number|at most"),
        ("fit", {"model": "", "config": ""}, "model", "name a model, paste its config.json, or drop"),
        ("fit", {"on": "own", "memory": ""}, "memory", "the memory is empty"),
        ("fit", {"on": "own", "memory": "24"}, "memory", "unit"),
        ("fit", {"on": "own", "bandwidth": "fast"}, "bandwidth", "bandwidth"),
        ("roofline", {"on": "", "compute": ""}, "on", "name a machine: without one there is no roof"),
        ("roofline", {"batch": "0"}, "batch", "at least 1"),
        ("roofline", {"chunk": "1M"}, "chunk", "at most 40000"),
        ("roofline", {"others": "a,b,c,d,e"}, "others", "at most 4"),
        ("roofline", {"others": "H1000"}, "others", "H1000"),
        ("article", {"length": ""}, "length", "empty"),
        ("article", {"order": "beauty"}, "order", "is none of the choices"),
    ],
)
def test_what_cannot_be_answered_names_its_field(view: str, fields: dict[str, str], field: str, words: str) -> None:
    found, message = refused(view, **fields)
    assert found == field, message
    assert re.search(words, message), message


@pytest.mark.parametrize("name", ["fit", "roofline", "article"])
def test_what_the_page_ships_answers_the_same_with_the_standard_library_alone(tmp_path: Path, name: str) -> None:
    fields = {} if name == "article" else {"model": "gemma-3-27b", "on": "RTX 4090", "compute": ""}
    assert as_in_a_browser(tmp_path, name, **fields) == ask(name, **fields)


def test_every_error_of_this_package_becomes_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_given: object) -> None:
        raise InferenceBenchError("something that no field explains")

    monkeypatch.setattr("inference_bench.bridge.Values.read", broken)
    (only,) = bridge.steps({"view": "fit", "fields": {}})
    assert only["error"] == {"message": "something that no field explains", "field": None}
