from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from inference_bench.cli.main import main
from inference_bench.report.text import display_columns

EXAMPLES = Path(__file__).parents[2] / "examples"
REFERENCE = str(EXAMPLES / "reference.toml")
CHAT = str(EXAMPLES / "chat-32b.toml")
REQUEST = ["plan", "--model", "qwen3-8b", "--prompt", "4k", "--output", "500"]
SMALL = [*REQUEST, "--on", "rtx-4090"]


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_the_reference_scenario_prints_the_published_figures_with_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", REFERENCE]) == 0
    shown = capsys.readouterr().out
    for figure in (
        "18 sequences at once, limited by\nmemory", "5.500 GB", "16.00 GB", "922.9 ms", "241.5 ms", "6.237 ms", "160.3 tokens/s",
        "13.39 s", "18.77 ms", "958.9 tokens/s", "3.0076 s", "1,197 /h", "2.394 million/h", "30.69 %", "27.08 ms",
        "0.418 USD/M output tokens", "1.39 USD/M output tokens", "1.671 h", "0.0120 USD/request", "6.00 USD/M output tokens",
        "0.00240 USD/request", "0.00186 USD/request", "10,000 requests/day", "12,903 requests/day", "0.0761 USD/h",
        "0.0900 USD/h", "0.677 J/output token", "3.820 tokens, E[K]", "1.268 x",
    ):  # fmt: skip
        assert figure in shown
    rows = [line.split() for line in shown.splitlines() if line.startswith("full-length requests")]
    assert [row[2] for row in rows] == ["18", "36", "34", "64", "35"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", REFERENCE],
        ["plan", CHAT],
        [
            *SMALL,
            "--ttft",
            "1s",
            "--tpot",
            "20ms",
            "--e2e",
            "12s",
            "--usd-per-hour",
            "0.5",
            "--requests-per-day",
            "20k",
        ],
        [*SMALL, "--compare", "h100,a100,l40s,h200,mi300x,b200"],
        ["plan", "--model", "llama-3.1-70b", "--on", "rtx-4090", "--prompt", "1k", "--output", "100"],
        [
            *REQUEST,
            *("--on", "h100", "--engine", "vllm", "--tpot", "30ms", "--ttft", "1s", "--e2e", "60s", "--prefix", "1k"),
            *("--usd-per-hour", "2.5", "--requests-per-day", "100k", "--hosted-input", "0.2", "--hosted-output", "0.8"),
        ],
    ],
    ids=["reference", "chat", "flags", "compare", "no", "engine"],
)
def test_text_fits_100_columns(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= 100


def test_json_has_the_keys_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "plan", REFERENCE)
    assert found["schema"] == "inference-bench/plan/1"
    assert found["memory"]["max_sequences"] == 18
    assert found["load"]["machine_s_per_request"] == pytest.approx(3.0076, rel=1e-4)
    assert found["load"] == found["loads"][0]
    assert found["replicas"]["replicas"] == 1
    assert found["cost"]["hosted"]["break_even_requests_per_day"] == pytest.approx(10_000)
    assert found["verdict"] == {
        "answer": True,
        "limited_by": "memory",
        "reason": "18 sequences at once, limited by memory",
        "fixes": [],
    }
    parts = ("traffic", "memory", "latency", "load", "replicas", "cost", "checks")
    assert {found[part]["origin"] for part in parts} == {"given", "counted", "predicted"}
    assert found["assumptions"]


def test_flags_win_over_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_json(capsys, "plan", REFERENCE, "--kv", "int8")["load"]["batch"] == 36
    found = run_json(capsys, "plan", REFERENCE, "--output", "1000", "--requests-per-day", "4000", "--mfu", "25%")
    assert found["traffic"]["output_tokens"] == 1000
    assert found["replicas"]["requests_per_day"] == 4000
    assert found["latency"]["ttft_s"] == pytest.approx(2 * 0.923, rel=0.001)


def test_flags_alone_are_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, *SMALL, "--usd-per-hour", "0.5", "--utilisation", "40%")
    assert found["machine"]["name"] == "RTX 4090"
    rented = found["cost"]["rented"]
    assert rented["usd_per_million_at_utilisation"] == pytest.approx(rented["usd_per_million_busy"] / 0.4)


def test_several_machines_are_compared_each_at_its_price(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, *REQUEST, "--compare", "h100,a100", "--usd-per-hour", "2.5,1.2")
    assert found["schema"] == "inference-bench/plan-comparison/1"
    assert [plan["cost"]["rented"]["usd_per_hour"] for plan in found["plans"]] == [2.5, 1.2]
    alone = run_json(capsys, *REQUEST, "--on", "a100", "--on", "h100")
    assert [plan["load"] for plan in alone["plans"]][::-1] == [plan["load"] for plan in found["plans"]]
    main([*REQUEST, "--compare", "h100,a100"])
    shown = capsys.readouterr().out
    assert "H100 SXM5 80GB" in shown
    assert "A100 SXM4 80GB" in shown


def test_a_no_exits_1_and_says_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "llama-3.1-70b", "--on", "rtx-4090", "--prompt", "1k", "--output", "100"]) == 1
    shown = capsys.readouterr().out
    assert "no, not even one sequence" in shown
    assert "what would help" in shown
    assert "devices" in shown
    assert "another machine" in shown
    assert main([*SMALL, "--tpot", "1ms"]) == 1
    assert "no batch keeps the TPOT objective" in capsys.readouterr().out


def test_one_machine_that_works_is_a_yes(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["plan", "--model", "llama-3.1-70b", "--weights", "fp8", "--prompt", "1k", "--output", "100"]
    assert main([*options, "--compare", "rtx-4090,h200"]) == 0
    assert "RTX 4090: no" in capsys.readouterr().out


def test_a_path_in_a_scenario_is_looked_for_beside_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "card.toml").write_text(
        'name = "mine"\nmemory = "24 GB"\nbandwidth = "1 TB/s"\n[peak]\nbf16 = "165 TFLOPS"\n'
    )
    scenario = tmp_path / "plan.toml"
    scenario.write_text('model = "qwen3-8b"\nmachine = "card.toml"\n[traffic]\nprompt = 1000\noutput = 100\n')
    assert run_json(capsys, "plan", str(scenario))["machine"]["name"] == "mine"


MISTAKES = [
    (["plan"], "missing: a model"),
    (["plan", "nowhere.toml"], "no file"),
    (["plan", "."], "."),
    ([*SMALL, "--prompt", "0"], "at least 1"),
    ([*SMALL, "--output", "0"], "at least 1"),
    ([*SMALL, "--utilisation", "150%", "--usd-per-hour", "1"], "between 0 and 1"),
    ([*SMALL, "--usd-per-hour", "inf"], "inf"),
    ([*SMALL, "--usd-per-hour", "1,2"], "2 prices for 1 machines"),
    ([*SMALL, "--requests-per-day", "nan"], "nan"),
    ([*SMALL, "--requests-per-day", "0"], "above 0"),
    ([*SMALL, "--speed", "expected"], "give one"),
    ([*SMALL, "--engine", "tgi"], "for speeds alone"),
    ([*SMALL, "--measured", "mine.csv"], "name it"),
    ([*SMALL, "--engine", "vllm", "--measured", "nowhere.csv"], "no such file"),
    ([*SMALL, "--prompt", "1e14"], "allowed: up to"),
    ([*SMALL, "--devices", "7"], "7"),
    ([*SMALL, "--compute", "fp4"], "fp4"),
    (["plan", REFERENCE, "--on", "h1000"], "nearest"),
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


@pytest.mark.parametrize(
    "text", ["[traffic", "a = nan\n", "model = 'x'\n" * 2, "x = " + "[" * 5000, "é".encode("latin-1")]
)
def test_a_file_that_is_no_scenario_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | bytes
) -> None:
    path = tmp_path / "odd.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["plan", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("hidden_size = 4096", "", "hidden_size"),
        ("hidden_size = 4096", "hidden_size = -1", "hidden_size"),
        ('memory = "24 GB"', 'memory = "24 GHz"', "memory"),
        ('memory = "24 GB"', "colour = 1", "colour"),
        ('bandwidth = "1 TB/s"', "bandwidth = inf", "bandwidth"),
    ],
)
def test_what_is_described_in_line_is_checked_like_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(Path(REFERENCE).read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert main(["plan", str(path)]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


def test_devices_experts_and_judges_are_named_among_the_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--on", "h200", "--devices", "8", "--prompt", "8k", "--output", "1k", "--tpot", "20ms"]
    assert main(["plan", "--model", "deepseek-v3", *options, "--judged-by", "full_load"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "8 of H200 SXM 141GB" in shown
    assert "latents are the same on every rank" in shown
    assert "tokens choose uniformly and independently" in shown
    assert "never idle in between" in shown
    assert "but not at full load" not in shown


def test_a_promise_kept_by_steps_alone_is_said_to_fail_at_full_load(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", REFERENCE, "--tpot", "20ms"])
    assert "yes, but not at full load" in capsys.readouterr().out
    main(["plan", REFERENCE, "--tpot", "20ms", "--judged-by", "full_load"])
    shown = capsys.readouterr().out
    assert "limited by TPOT" in " ".join(shown.split())
    assert "not at full load" not in shown


def test_a_scenario_that_is_too_large_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text("# " + "x" * (5 << 20))
    assert main(["plan", str(path)]) == 2
    assert "too large" in capsys.readouterr().err


def test_a_plan_takes_at_most_50_ms_once_it_is_imported(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", REFERENCE])
    took = []
    for _ in range(10):
        started = time.perf_counter()
        main(["plan", REFERENCE])
        took.append(time.perf_counter() - started)
    capsys.readouterr()
    assert min(took) < 0.05


def test_planning_imports_nothing_heavy() -> None:
    code = (
        "import sys; from inference_bench.cli.main import main; "
        f"main({[*SMALL, '--json']!r}); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "inference_bench.predict.plan" in loaded
    assert not loaded & {"numpy", "asyncio", "msgspec", "uvloop", "ssl", "http.client", "urllib.request", "difflib"}
    assert not loaded & {"tomllib", "inference_bench.predict.remedies", "inference_bench.report.plan_report"}


def test_an_engines_plan_prints_its_interval_and_whether_promises_hold_at_the_slow_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*REQUEST, "--on", "h100", "--engine", "vllm", "--ttft", "2s", "--tpot", "30ms"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    for text in ("4 of 5 measurements within", "at the slow end", "published servers", "published rows"):
        assert text in shown
    found = run_json(capsys, *arguments)
    low, high = found["interval"]["output_tokens_per_s"]
    assert low < found["load"]["output_tokens_per_s"] < high
    assert found["interval"]["slow"]["load"]["output_tokens_per_s"] == low
    assert found["interval"]["ttft_s"][0] < found["latency"]["ttft_s"] < found["interval"]["ttft_s"][1]
    assert [item["met_at_slow_end"] for item in found["objectives"]] == [True, False]
    assert found["checks"]["serving"]["tpot"]["expected_s"] > 0
    assert (found["speed"], found["engine"]) == ("expected", "vllm")


def test_the_reference_plan_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "plan", REFERENCE)
    assert (found["interval"], found["checks"]["serving"], found["speed"]) == (None, None, "shares")


def test_own_rows_move_the_plan_of_their_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text(
        "model,weight_format,hardware,engine,phase,batch_or_concurrency,input_len,output_len,metric,value,unit\n"
        "Qwen3-8B,BF16,RTX 4090,vLLM,decode,1,4096,256,tpot_ms,40,ms\n"
    )
    arguments = [*REQUEST, "--compare", "rtx-4090,h100", "--engine", "vllm"]
    before = run_json(capsys, *arguments)["plans"]
    after = run_json(capsys, *arguments, "--measured", str(mine))["plans"]
    assert after[0]["latency"]["solo_step_s"] > 1.2 * before[0]["latency"]["solo_step_s"]
    assert after[1] == before[1]
    assert main([*REQUEST, "--on", "h100", "--engine", "vllm", "--measured", str(mine)]) == 2
    assert "has no row of vllm on H100 SXM5 80GB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("traffic", "requests_per_day = 1e-6\ntarget_utilisation = 1e-6"),
        ("prices", "usd_per_hour = 1e-9\nutilisation = 1e-6"),
        ("prices", "usd_per_hour = 1e14\nutilisation = 1e-6"),
        ("assumptions", "mfu = 1e-6\nbandwidth_share = 1e-6"),
        ("objectives", "tpot = 1e-9\nttft = 1e-9\ne2e = 1e14"),
        ("speculation", "alpha = 0\ngamma = 4\nc = 1e-9\nv = 1e-6"),
        ("owned", "price_usd = 1e14\nyears = 1e-3\nwatts = 1e-6\nusd_per_kwh = 1e14\nutilisation = 1e-6"),
    ],
)
def test_the_least_and_the_most_that_a_scenario_may_say_is_answered_within_100_columns(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, section: str, values: str
) -> None:
    traffic = "" if section == "traffic" else "requests_per_day = 20000\n"
    rest = f"{values}\n" if section == "traffic" else f"[{section}]\n{values}\n"
    path = tmp_path / "least.toml"
    path.write_text(
        f'model = "qwen3-8b"\nmachine = "rtx-4090"\n[traffic]\nprompt = 4000\noutput = 500\n{traffic}{rest}'
    )
    assert main(["plan", str(path)]) in (0, 1)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert max(map(display_columns, shown.out.splitlines())) <= 100


def test_wide_names_of_compared_machines_stay_within_100_columns(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = []
    for number in range(3):
        path = tmp_path / f"{number}.toml"
        path.write_text(
            f'name = "{chr(0x6F22) * 60}{number}"\nmemory = "24 GB"\nbandwidth = "1 TB/s"\n[peak]\nbf16 = "165 TFLOPS"\n',
            encoding="utf-8",
        )
        paths.append(str(path))
    assert main([*REQUEST, "--compare", ",".join(paths)]) in (0, 1)
    assert max(map(display_columns, capsys.readouterr().out.splitlines())) <= 100


@pytest.mark.parametrize("text", [" ", ",,,", " , "])
def test_a_list_of_no_machines_is_refused(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main([*SMALL, "--compare", text]) == 2
    assert "name at least one" in capsys.readouterr().err
