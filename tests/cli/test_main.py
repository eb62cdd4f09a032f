from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from inference_bench.cli.lab_options import LABS
from inference_bench.cli.main import build_parser, main
from inference_bench.cli.output import print_json
from shapes import REFERENCE_CONFIG


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def reference_config(tmp_path: Path) -> str:
    path = tmp_path / "reference" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(REFERENCE_CONFIG))
    return str(path)


def test_fit_of_the_reference_config_gives_its_parameters_and_bytes_a_token(
    capsys: pytest.CaptureFixture[str], reference_config: str
) -> None:
    found = run_json(capsys, "fit", reference_config, "--context", "32000", "--kv", "bf16")
    assert found["model"]["params_total"] == 9_550_729_216
    assert found["model"]["params_matmul"] == 8_927_875_072
    assert found["cache"]["next_token_bytes"] == 147_456
    assert found["cache"]["bytes"] == found["cache"]["naive_bytes"] == 4_718_592_000
    assert found["cache"]["naive_factor"] == 1.0
    assert found["cache"]["layers"] == [
        {
            "type": "full_attention",
            "count": 36,
            "bytes": 4_718_592_000,
            "state_bytes": 0,
            "cross_attention_bytes": 0,
            "sliding_window": None,
            "positions": 32000,
            "bytes_per_position": 4096,
        }
    ]
    assert found["fits"] is None


def test_fit_has_every_key_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "fit", "gemma-3-27b", "--on", "h100", "--context", "32k", "--engine", "llama.cpp")
    assert {
        "model",
        "weights",
        "cache",
        "allocation",
        "fits",
        "headroom_bytes",
        "max_context_tokens",
        "max_sequences",
        "decode",
        "prefill",
    } <= set(found)
    assert {"context_tokens", "sequences", "bytes", "state_bytes", "naive_bytes", "naive_factor", "layers"} <= set(
        found["cache"]
    )
    assert found["cache"]["context_tokens"] == 32768
    assert found["allocation"]["bytes"] == 3_338_665_984
    low, high = found["decode"]["expected_tokens_per_s"]
    assert low < high < found["decode"]["bound_tokens_per_s"]
    assert found["prefill"]["bound_s"] < found["prefill"]["expected_s"][0] < found["prefill"]["expected_s"][1]
    assert found["decode"]["limited_by"] == "memory"


def test_fit_exits_1_when_the_answer_is_no(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "llama-3.1-70b", "--on", "rtx-4090"]) == 1
    assert "does not fit" in capsys.readouterr().out
    assert main(["fit", "qwen3-8b", "--on", "h100"]) == 0


def test_roofline_has_every_key_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "roofline", "qwen3-8b", "--on", "b200", "--compute", "fp8")
    assert found["ridge_flops_per_byte"] == pytest.approx(562.5)
    keys = {"name", "flops", "bytes", "intensity", "bound_s", "limited_by", "fraction_of_peak"}
    assert [phase["name"] for phase in found["phases"]] == ["prefill", "decode"]
    for item in [*found["phases"], *found["operations"]]:
        assert keys <= set(item)


def test_roofline_over_several_devices_has_an_all_reduce_and_its_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "roofline", "qwen3-8b", "--on", "h100", "--devices", "2", "--chunk", "512")
    assert [phase["name"] for phase in found["phases"]] == ["prefill", "decode", "hybrid"]
    sends = [item for item in found["operations"] if item["name"] == "all-reduce"]
    assert [item["limited_by"] for item in sends] == ["interconnect"] * 3
    assert all(item["bytes"] == item["interconnect_bytes"] > 0 for item in sends)
    assert found["batch_curve"]["limit_tokens_per_s"] > found["batch_curve"]["rows"][-1]["tokens_per_s"]
    assert {"products", "experts", "step", "step_turns"} == set(found["balance_batch"])
    assert {"name", "detail", "flops_per_byte", "grows_with_batch"} == set(found["intensities"][0])


def test_roofline_draws_both_charts_and_still_prints_its_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = [tmp_path / "roof.json", tmp_path / "batch.json"]
    found = run_json(
        capsys, "roofline", "qwen3-8b", "--on", "h100", "--chart", str(files[0]), "--batch-chart", str(files[1])
    )
    assert found["schema"] == "inference-bench/roofline/1"
    assert all(json.loads(file.read_text(encoding="utf-8"))["layer"] for file in files)


def test_a_picture_without_the_package_that_draws_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    file = tmp_path / "roof.svg"
    assert main(["roofline", "qwen3-8b", "--on", "h100", "--chart", str(file)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, file.exists()) == ("", False)
    assert "pip install 'inference-bench[bench]'" in shown.err


@pytest.mark.parametrize("command", ["models", "hardware", "formats"])
def test_every_table_row_has_its_source_and_date(capsys: pytest.CaptureFixture[str], command: str) -> None:
    rows = run_json(capsys, command)["rows"]
    assert len(rows) > 10
    assert all(row["source"] and row["as_of"] for row in rows)
    assert len(run_json(capsys, command, rows[3]["name"])["rows"]) == 1


TEXT_COMMANDS = [
    ["fit", "gemma-3-27b", "--on", "h100", "--context", "128k", "--sequences", "4", "--engine", "llama.cpp"],
    ["fit", "qwen3-8b"],
    ["fit", "qwen3-8b", "--on", "b200", "--engine", "sglang"],
    ["roofline", "gemma-3-27b", "--on", "b200", "--context", "128k"],
    ["roofline", "qwen3-30b-a3b", "--on", "h100", "--devices", "4", "--chunk", "512", "--batch", "1000000"],
    ["roofline", "deepseek-v3", "--on", "dgx spark", "--batch", "7"],
    ["roofline", "qwen3-30b-a3b", "--on", "h100", "--context", "1099511627776", "--batch", "1000000000"],
    ["models"],
    ["models", "phi-4"],
    ["hardware"],
    ["hardware", "h100"],
    ["formats"],
    ["formats", "nvfp4"],
]


@pytest.mark.parametrize("arguments", TEXT_COMMANDS, ids=" ".join)
def test_text_output_fits_100_columns(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    main(arguments)
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert max(map(len, lines)) <= 100


MISTAKES = [
    (["fit", "qwen9-8b"], "nearest"),
    (["fit", "qwen3-8b", "--on", "h1000"], "H100 SXM5 80GB"),
    (["fit", "qwen3-8b", "--context", "many"], "not a number"),
    (["fit", "qwen3-8b", "--context", "0"], "at least 1"),
    (["fit", "qwen3-8b", "--sequences", "0"], "at least 1"),
    (["fit", "qwen3-8b", "--context", "1e30"], "must lie in"),
    (["fit", "qwen3-8b", "--sequences", "99999999999999999999"], "must lie in"),
    (["roofline", "qwen3-8b", "--on", "a100", "--batch", "1e18"], "at most"),
    (["explain", "qwen3-8b", "1GiB", "--context", "1e30"], "must lie in"),
    (["fit", "qwen3-8b", "--on", "a100", "--devices", "0"], "at least 1"),
    (["fit", "qwen3-8b", "--on", "a100", "--devices", "7"], "7"),
    (["fit", "qwen3-8b", "--on", "a100", "--devices", "99", "--split", "pipeline"], "36"),
    (["fit", "qwen3-8b", "--expert-correlation", "2"], "between 0 and 1"),
    (["fit", "qwen3-8b", "--suggest"], "name one"),
    (["fit", "qwen3-8b", "--weights", "int5"], "int4"),
    (["fit", "qwen3-8b", "--kv", "q8"], "q8_0"),
    (["fit", "qwen3-8b", "--engine", "tgi"], "llama.cpp"),
    (["fit", "qwen3-8b", "--engine", "tgi"], "for speeds alone"),
    (["fit", "qwen3-8b", "--on", "a100", "--measured", "mine.csv"], "name both"),
    (["fit", "qwen3-8b", "--engine", "vllm", "--measured", "mine.csv"], "name both"),
    (["fit", "qwen3-8b", "--engine", "vllm", "--on", "all", "--measured", "mine.csv"], "of one machine"),
    (["fit", "qwen3-8b", "--engine", "vllm", "--on", "a100", "--measured", "nowhere.csv"], "no such file"),
    (["fit", "qwen3-8b", "--engine", "vllm", "--on", "a100", "--measured", "."], "not a run folder"),
    (["fit", "qwen3-8b", "--overhead", "2.5 XB"], "prefix"),
    (["fit", "/nowhere/config.json"], "no file"),
    (["roofline", "qwen3-8b", "--on", "a100", "--compute", "fp8"], "bf16"),
    (["roofline", "qwen3-8b", "--on", "a100", "--batch", "0"], "at least 1"),
    (["roofline", "qwen3-8b", "--on", "a100", "--context", "0"], "at least 1"),
    (["roofline", "qwen3-8b", "--on", "a100", "--prompt", "1e30"], "at most"),
    (["roofline", "qwen3-8b", "--on", "a100", "--devices", "0"], "1..65536"),
    (["roofline", "qwen3-8b", "--on", "a100", "--devices", "7"], "7"),
    (["roofline", "qwen3-8b", "--on", "a100", "--chunk", "8k"], "at most 4096"),
    (["roofline", "qwen3-8b", "--on", "a100", "--chart", "roof.png"], ".svg, .html, .json"),
    (["hardware", "abacus"], "known"),
    (["report", "/nowhere"], "not a run folder"),
    (["load", "ftp://127.0.0.1"], "http"),
    (["load", "http://127.0.0.1:1", "--concurrency", "0"], "at least 1"),
    (["verify", "--model", "qwen3-8b"], ".gguf"),
    (["verify", "--on", "h100"], "runs on this machine"),
    (["verify", "--api-key-env", "SURELY_NOT_SET_ANYWHERE"], "not set"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistake_is_one_line_on_stderr_and_exit_2(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert message in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("arguments", [[], ["fly"], ["fit"], ["fit", "qwen3-8b", "--wings"], ["roofline", "qwen3-8b"]])
def test_a_wrong_command_line_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_dead_server_is_one_line_and_exit_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["load", "http://127.0.0.1:9", "--runs", str(tmp_path)]) == 3
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert "127.0.0.1:9" in shown.err


@pytest.mark.parametrize(
    "words",
    [
        ["manifest", "create", ""],
        ["ledger", ""],
        ["load", "http://127.0.0.1:9", "--runs", ""],
        ["watch", "--write-rules", ""],
        ["lab", "speculate", "--gamma", ""],
        ["lab", "batch", "--batches", ""],
        ["lab", "cache", "--lengths", ""],
        ["check", "http://127.0.0.1:9", "--need", ""],
        ["check", "http://127.0.0.1:9", "--need", "seed", "--only", ""],
        ["simulate", "--trace-fix", ""],
        ["plan", "--compare", ""],
        ["roofline", "qwen3-8b", "--on", "rtx-4090", "--chart", ""],
        ["serve", "--threads", ""],
        ["verify", "--matrix", "weights=q8_0", "--model", ""],
    ],
)
def test_a_value_of_no_text_is_not_the_default_nor_the_current_folder(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "an empty text is given for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"), [("ledger nothing-there", 2), ("models", 0), ("watch http://127.0.0.1:9 --once --no-probe", 3)]
)
def test_streams_that_the_caller_closed_are_no_mistake_of_this_program(words: str, code: int, tmp_path: Path) -> None:
    command = f"exec {shlex.quote(sys.executable)} -m inference_bench {words}"
    for closed in ("2>&-", ">&-"):
        done = subprocess.run(["/bin/sh", "-c", f"{command} {closed}"], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == code
        assert "internal error" not in done.stdout + done.stderr
        assert "inference-bench:" not in done.stdout


def test_every_command_has_json_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    choices = next(action.choices for action in build_parser()._actions if action.dest == "command")
    assert choices is not None
    commands = [[name] for name in choices if name not in ("page", "lab", "manifest")]
    inner = [
        ["page", "build"],
        ["page", "serve"],
        *(["manifest", name] for name in ("create", "verify", "diff", "export", "outputs")),
        *(["lab", lab] for lab in LABS),
    ]
    for words in commands + inner:
        with pytest.raises(SystemExit) as caught:
            main([*words, "--help"])
        assert caught.value.code == 0
        assert "--json" in capsys.readouterr().out


def test_every_command_is_described_in_the_json_page_and_the_readme() -> None:
    root = Path(__file__).parents[2]
    choices = next(action.choices for action in build_parser()._actions if action.dest == "command") or ()
    for page in (root / "docs" / "json.md", root / "README.md"):
        text = page.read_text(encoding="utf-8")
        assert [name for name in choices if f"`{name}" not in text and f"inference-bench {name}" not in text] == []


def test_fit_imports_nothing_heavy() -> None:
    code = (
        "import sys; from inference_bench.cli.main import main; "
        "main(['fit', 'qwen3-8b', '--on', 'h100', '--json']); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "inference_bench.predict.fit" in loaded
    assert not loaded & {
        "numpy",
        "asyncio",
        "msgspec",
        "uvloop",
        "xllamacpp",
        "vl_convert",
        "ssl",
        "http.client",
        "urllib.request",
        "tomllib",
        "difflib",
    }


def test_a_reader_that_closes_the_pipe_gets_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "inference_bench", "formats"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert "Traceback" not in done.stderr
    assert done.returncode == 3


def test_a_mistake_of_the_program_is_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_options: object) -> int:
        raise AssertionError("two\nlines")

    monkeypatch.setattr("inference_bench.cli.tables.run", broken)
    assert main(["formats"]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "internal error (AssertionError: two lines)" in said


def test_a_terminal_that_knows_only_ascii_shows_escapes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "inference_bench", "fit", "\u00fcber-model"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"\\xfcber-model" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--requests", "20000000"], "20000000 requests is more"),
        (["--concurrency", "100000"], "100000 requests in flight are more"),
        (["--prompt-tokens", "2000000"], "2000000 prompt tokens is more"),
        (["--output-tokens", "2000000"], "2000000 output tokens is more"),
    ],
)
def test_a_load_too_large_to_hold_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], said: str
) -> None:
    assert main(["load", "http://127.0.0.1:9", "--runs", str(tmp_path), *options]) == 2
    assert said in capsys.readouterr().err


def test_no_threads_is_refused_and_not_taken_for_the_default(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["verify", "--threads", "0", "--runs", str(tmp_path)]) == 2
    assert "0 threads" in capsys.readouterr().err


def test_an_engine_gives_an_expectation_with_a_middle(capsys: pytest.CaptureFixture[str]) -> None:
    plain = run_json(capsys, "fit", "qwen3-8b", "--on", "h100")
    assert plain["decode"]["expected_middle_tokens_per_s"] is None
    found = run_json(capsys, "fit", "qwen3-8b", "--on", "h100", "--engine", "sglang")
    decode, prefill = found["decode"], found["prefill"]
    assert decode["bound_tokens_per_s"] == plain["decode"]["bound_tokens_per_s"]
    low, high = decode["expected_tokens_per_s"]
    assert low < decode["expected_middle_tokens_per_s"] < high
    assert prefill["expected_s"][0] < prefill["expected_middle_s"] < prefill["expected_s"][1]
    assert (decode["expected_from"], prefill["expected_from"], found["allocation"]) == ("sglang", "sglang", None)
    main(["fit", "qwen3-8b", "--on", "h100", "--engine", "sglang"])
    assert "expected of sglang" in capsys.readouterr().out


def test_fit_without_an_engine_does_not_load_the_efficiency_model() -> None:
    code = (
        "import sys; from inference_bench.cli.main import main; main(['fit', 'qwen3-8b', '--on', 'h100']); "
        "sys.exit(any('predict.efficiency' in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


ROOF = ["roofline", "qwen3-8b", "--on", "rtx-4090"]
HOSTILE = "a\x1b[31m\x9b\u202e\u2066\n\u2028b"


def one_plain_line(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.isprintable()
    return line


def test_what_a_terminal_would_act_on_is_a_mark_in_every_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "e\x1b[31m\u202e"
    folder.mkdir()
    table = tmp_path / "t.csv"
    table.write_text(
        "model,weight_format,hardware,engine,phase,batch_or_concurrency,input_len,output_len,metric,value,unit\n"
        "a,BF16,\x1b[31m,\x1b[32m,decode,1,1,1,tpot_ms,7,ms\n"
    )
    for arguments in (
        [*ROOF, "--compute", HOSTILE],
        [*ROOF, "--chart", str(tmp_path / HOSTILE / "q.svg")],
        ["fit", "qwen3-8b", "--on", "rtx-4090", "--compute", HOSTILE],
        ["fit", "qwen3-8b", "--on", "rtx-4090", "--engine", "vllm", "--measured", str(table)],
        ["fit", str(folder)],
        ["plan", str(folder)],
        ["plan", f"{HOSTILE}.toml"],
        ["score", str(folder)],
    ):
        assert main(arguments) in (2, 3)
        assert one_plain_line(capsys).startswith("inference-bench: ")
    with pytest.raises(SystemExit):
        main(["fit", "qwen3-8b", HOSTILE])
    assert "unrecognized arguments" in one_plain_line(capsys)


def test_json_escapes_what_a_terminal_would_act_on_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": f"{HOSTILE}\x7f\U000e0041 \u6f22\u00b5\u00e9 \\u009b"}
    print_json(value)
    shown = capsys.readouterr().out
    assert json.loads(shown) == value
    assert all(line.isprintable() for line in shown.splitlines())
    assert "\u6f22\u00b5\u00e9" in shown
    assert "\\u009b\\u202e\\u2066\\n\\u2028b\\u007f" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch-chart", "d.png"], "no known kind"),
        (["--chart", "d.svg/"], "no known kind"),
        (["--chunk", " "], "chunk ' '"),
        (["--chart", "d.svg", "--batch-chart", "./d.svg"], "a file of its own"),
    ],
)
def test_a_chart_that_cannot_be_written_is_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*ROOF, *arguments]) == 2
    assert message in one_plain_line(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["svg", "html", "json"])
def test_charts_of_a_machine_with_control_characters_in_its_name_are_sound(tmp_path: Path, kind: str) -> None:
    machine = tmp_path / "m.toml"
    machine.write_text(
        'name = "x\\u001b[31m\\u0000\\u0001"\nmemory = "24 GB"\nbandwidth = "1 TB/s"\n[peak]\nbf16 = "165 TFLOPS"\n'
    )
    charts = [tmp_path / f"{name}.{kind}" for name in ("roof", "batch")]
    command = ["roofline", "qwen3-8b", "--on", str(machine), "--chart", str(charts[0]), "--batch-chart", str(charts[1])]
    assert main(command) == 0
    for chart in charts:
        text = chart.read_text(encoding="utf-8")
        assert all(char.isprintable() or char == "\n" for char in text)
        if kind == "svg":
            ElementTree.fromstring(text)


@pytest.mark.parametrize(("module", "arguments", "kept"), [("score", ["x.csv"], False), ("probe", [], True)])
def test_only_a_command_that_measures_says_that_measurements_are_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: str, arguments: list[str], kept: bool
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"inference_bench.cli.{module}.run", interrupted)
    assert main([module, *arguments]) == 130
    assert ("is kept" in one_plain_line(capsys)) is kept


def test_a_file_that_is_no_text_is_told_what_was_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "bin.toml"
    path.write_bytes(b"\xff\xfe\x00")
    for arguments, needed in ((["plan", str(path)], "a scenario"), ([*ROOF[:-1], str(path)], "a machine described")):
        assert main(arguments) == 2
        assert needed in one_plain_line(capsys)


def test_limits_of_a_machine_without_end_stay_within_100_columns(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machine = tmp_path / "m.toml"
    machine.write_text('name = "t"\nmemory = 1e24\nbandwidth = 1e-3\n[peak]\nbf16 = 1e-3\n')
    assert main(["fit", "qwen3-8b", "--on", str(machine), "--sequences", "1000000000"]) in (0, 1)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100
