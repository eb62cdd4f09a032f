"""What a reader may do wrong and what may be missing: a sentence that says what to do, and the last good answer stays."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browser.calculator import EXAMPLE, Calculator, in_cpython, wait_for
from browser.model_files import (
    HUGE_BYTES,
    LARGE,
    SMALL,
    write_checkpoint,
    write_gguf,
    write_hole,
    write_shards,
)
from shapes import REFERENCE_CONFIG

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=alert(1)>"
QUICK_S = 10.0  # far less than reading 50 GB takes
MISTAKE = re.compile(r"Traceback|mistake of this program|undefined|\[object|Error:|NaN of")


def require_a_sentence(said: str) -> None:
    assert 15 < len(said) < 900, said
    assert not MISTAKE.search(said), said


# ── texts ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("context", "junk"),
        ("context", "NaN"),
        ("context", "-5"),
        ("context", "1e999"),
        ("context", "9" * 4000),
        ("context", "12 parsecs"),
        ("sequences", ""),
        ("sequences", "0"),
        ("sequences", "1.5"),
        ("sequences", "Infinity"),
        ("devices", "99999999999999999999"),
        ("weights", "q99"),
        ("kv", EVIL),
        ("overhead", "-1GB"),
        ("overhead", "lots"),
        ("compute", "fp7"),
        ("model", "no such model"),
        ("model", EVIL),
        ("model", ""),
        ("on", "RTX 9999"),
        ("on", "\u202eown\u0007"),
    ],
)
def test_a_text_that_cannot_be_used_is_said_at_its_field_and_the_last_answer_stays(
    calculator: Calculator, field: str, text: str
) -> None:
    before = calculator.answer_text()
    step = calculator.type(field, text)
    assert step["error"]["field"] == field
    said = calculator.wrong(field)
    require_a_sentence(said)
    assert calculator.page.locator(f"#form-fit [data-field={field}] .wrong").is_visible()
    assert calculator.status().startswith(said[:40])
    assert calculator.answer_text() == before
    assert "stale" in str(calculator.page.locator("#answer-fit").get_attribute("class"))
    calculator.open(EXAMPLE).settled()
    assert calculator.wrong(field) == ""
    assert calculator.answer_text() == before
    assert "stale" not in str(calculator.page.locator("#answer-fit").get_attribute("class"))


HALF = json.dumps(REFERENCE_CONFIG, indent=1)[:150]


@pytest.mark.parametrize(
    "text",
    [
        "junk",
        HALF,
        "NaN",
        "null",
        "[]",
        '"a text"',
        "{}",
        '{"hidden_size": NaN}',
        json.dumps({**REFERENCE_CONFIG, "hidden_size": -1}),
        json.dumps({**REFERENCE_CONFIG, "hidden_size": "4096"}),
        json.dumps({**REFERENCE_CONFIG, "num_hidden_layers": 10**12}),
        json.dumps({**REFERENCE_CONFIG, "model_type": EVIL}),
        "[" * 100_000,
        '{"a":' * 50_000,
        "<!doctype html><title>404</title>",
        "\u0000\ufffe\ud7ff",
        f'{{"_name_or_path": "{"x" * 4_999_950}"}}',
    ],
    ids=lambda text: text[:24] if len(text) < 1000 else f"{len(text)} characters of {text[:5]}",
)
def test_a_paste_that_is_no_config_is_said_at_its_field_and_the_last_answer_stays(
    calculator: Calculator, text: str
) -> None:
    before, started = calculator.answer_text(), time.monotonic()
    step = calculator.type("config", text)
    assert step["error"]["field"] == "config"
    require_a_sentence(calculator.wrong("config"))
    assert calculator.page.locator("#form-fit [data-field=config] .wrong").is_visible()
    assert calculator.answer_text() == before
    assert time.monotonic() - started < QUICK_S
    assert "error" not in calculator.type("config", "")
    calculator.open(EXAMPLE).settled()
    assert calculator.answer_text() == before


def test_the_name_of_a_hostile_model_stays_a_text(calculator: Calculator, tmp_path: Path) -> None:
    name = EVIL.replace("/", "")
    step = calculator.drop(write_gguf(tmp_path / f"{name}.gguf"))
    assert "error" not in step
    assert calculator.answer_text().count(name) >= 1
    assert name in calculator.status()
    assert calculator.text("#view-fit .drop .file output") == f"{name}.gguf"
    calculator.page.locator("nav [data-view=roofline]").click()
    assert "error" not in calculator.settled("roofline")
    assert name in calculator.answer_text("roofline")
    assert calculator.page.locator("img").count() == 0


@pytest.mark.parametrize(
    ("state", "view", "field"),
    [
        ("#roofline?batch=none", "roofline", "batch"),
        ("#roofline?others=H100,H200,A100,L4,B200", "roofline", "others"),
        ("#plan?prompt=&output=5", "plan", "prompt"),
        ("#plan?ttft=soon", "plan", "ttft"),
        ("#simulate?requests=1e9", "simulate", "requests"),
        ("#simulate?policies=luck", "simulate", "policies"),
        ("#article?length=NaN", "article", "length"),
    ],
)
def test_every_view_says_at_the_field_what_is_wrong_with_it(
    calculator: Calculator, state: str, view: str, field: str
) -> None:
    calculator.open(state)
    step = calculator.settled(view)
    assert step["error"]["field"] == field
    require_a_sentence(calculator.wrong(field, view))
    assert "error" not in calculator.open(f"#{view}?{field}={DEFAULTS[view, field]}").settled(view)


DEFAULTS = {
    ("roofline", "batch"): "2",
    ("roofline", "others"): "H100",
    ("plan", "prompt"): "3000",
    ("plan", "ttft"): "2s",
    ("simulate", "requests"): "20",
    ("simulate", "policies"): "chunked&requests=20",
    ("article", "length"): "4k",
}


def test_an_address_that_says_nothing_sensible_is_the_example(calculator: Calculator) -> None:
    before = calculator.answer_text()
    for state in ("#nowhere?model=x", "#fit?nonsense=1&model=Qwen3-8B", "#?&&&==", "#%E0%A4%A", "#fit?%E0%A4%A"):
        calculator.open(state).settled()
        assert calculator.page.locator("#view-fit").is_visible(), state
        assert calculator.answer_text() == before, state


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def same_but_for_paths(step: dict[str, Any], fields: dict[str, str], path: Path) -> bool:
    """Whether the core in CPython says the same of the file, but for the folder that it lies in."""
    here = in_cpython({"view": "fit", "fields": fields, "file": str(path), "width": "wide"})
    there, here_too = (
        re.sub(rf"/dropped/\d+|{re.escape(str(path.parent))}", "", json.dumps(each)) for each in (step, here)
    )
    return there == here_too


def test_a_dropped_gguf_file_is_read_by_its_header(calculator: Calculator, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "small model.gguf")
    step = calculator.drop(path)
    assert "error" not in step
    assert step["answer"]["model"]["params_total"] > 100_000
    assert same_but_for_paths(step, calculator.values(), path)
    assert calculator.text("#view-fit .drop .file output") == "small model.gguf"
    calculator.page.locator("#view-fit .forget").click()
    wait_for(lambda: "Qwen3-8B" in calculator.settled()["status"], "the named model is asked about again")


def test_safetensors_dropped_with_their_config_are_read_together(calculator: Calculator, tmp_path: Path) -> None:
    folder = tmp_path / "dropped-model"
    folder.mkdir()
    num_bytes, paths = write_checkpoint(folder, SMALL)
    step = calculator.drop(*paths)
    assert step["answer"]["weights"]["bytes"] == num_bytes
    assert same_but_for_paths(step, calculator.values(), folder)


def test_all_files_of_a_sharded_model_are_read_together(calculator: Calculator, tmp_path: Path) -> None:
    step = calculator.drop(*write_shards(tmp_path, SMALL))
    assert "error" not in step
    assert "4 files" in calculator.text("#view-fit .drop .file output")


def test_a_file_let_go_over_the_page_is_taken_as_a_chosen_one(calculator: Calculator, tmp_path: Path) -> None:
    content = base64.b64encode(write_gguf(tmp_path / "m.gguf").read_bytes()).decode()
    before = calculator.asked()
    calculator.page.evaluate(
        """(content) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([Uint8Array.from(atob(content), (char) => char.charCodeAt(0))], "let go.gguf"));
          document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        content,
    )
    wait_for(lambda: calculator.asked() != before, "the file asks")
    assert "error" not in calculator.settled()
    assert calculator.text("#view-fit .drop .file output") == "let go.gguf"


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.gguf", PNG),
        ("model.gguf", b""),
        ("model.gguf", b"GGUF"),
        ("model.gguf", b"GGUF\x03\0\0\0" + b"\xff" * 64),
        ("model.gguf", b'{"hidden_size": 4096}'),
        ("model.safetensors", PNG),
        ("model.safetensors", b"\xff" * 64),
        ("model.safetensors", b"GGUF\x03\0\0\0" + b"\0" * 64),
        ("config.json", b"GGUF\x03\0\0\0" + b"\0" * 64),
        ("config.json", b"\xff\xfe\0"),
        ("letter.txt", b"Dear sir or madam"),
        (f"{EVIL.replace('/', '')}.gguf", PNG),
        ("\u0440\u0443\u0441 \U0001f600 %2e#?.gguf", PNG),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_said_to_be_so(
    calculator: Calculator, tmp_path: Path, name: str, content: bytes
) -> None:
    before = calculator.answer_text()
    path = tmp_path / name
    path.write_bytes(content)
    step = calculator.drop(path)
    assert step["error"]["field"] == "file"
    require_a_sentence(calculator.wrong("file"))
    assert calculator.page.locator("#form-fit [data-field=file] .wrong").is_visible()
    assert calculator.answer_text() == before
    assert calculator.page.locator("img").count() == 0
    calculator.page.locator("#view-fit .forget").click()
    wait_for(lambda: "error" not in calculator.settled(), "the named model is asked about again")
    assert calculator.wrong("file") == ""


def bytes_read(calculator: Calculator) -> int | None:
    """What all processes of the browser have read so far; None where the system does not say."""
    session = calculator.page.context.browser.new_browser_cdp_session()
    try:
        processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
        return sum(
            int(re.findall(r"^rchar: (\d+)", Path(f"/proc/{each['id']}/io").read_text(), re.MULTILINE)[0])
            for each in processes
        )
    except OSError:
        return None
    finally:
        session.detach()


@pytest.mark.parametrize("kind", ["gguf", "safetensors", "junk.gguf", "junk.safetensors", "zeros.gguf"])
def test_50_gb_are_answered_at_once_because_only_the_header_is_read(
    calculator: Calculator, tmp_path: Path, kind: str
) -> None:
    if kind == "gguf":
        paths = [write_gguf(tmp_path / "huge.gguf", HUGE_BYTES)]
    elif kind == "safetensors":
        num_bytes, paths = write_checkpoint(tmp_path, LARGE)
        assert num_bytes > HUGE_BYTES
    else:
        head = {"junk.gguf": PNG, "junk.safetensors": b"\xff" * 4096, "zeros.gguf": b""}[kind]
        paths = [write_hole(tmp_path / kind, head)]
    assert paths[-1].stat().st_size >= HUGE_BYTES
    before, started = bytes_read(calculator), time.monotonic()
    step = calculator.drop(*paths)
    assert time.monotonic() - started < QUICK_S
    after = bytes_read(calculator)
    if before is not None and after is not None:
        assert after - before < 100_000_000
    if "." in kind:
        assert step["error"]["field"] == "file"
        require_a_sentence(calculator.wrong("file"))
    else:
        assert "error" not in step
    if kind == "safetensors":
        assert step["answer"]["fits"] is True
        assert "50.7 GB" in calculator.answer_text()


def test_two_files_of_one_name_are_told_apart_or_refused_in_a_sentence(calculator: Calculator) -> None:
    before = calculator.asked()
    calculator.page.evaluate(
        """() => {
          const dataTransfer = new DataTransfer();
          for (const text of ["one", "two"]) dataTransfer.items.add(new File([text], "model.gguf"));
          document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }"""
    )
    wait_for(lambda: calculator.asked() != before or calculator.trouble(), "something is said", 20)
    step = calculator.settled()
    require_a_sentence(step["error"]["message"])


def test_a_file_dropped_while_python_loads_is_read_when_it_is_there(
    fresh: Callable[..., Calculator], tmp_path: Path
) -> None:
    shown = fresh()
    held: list[Any] = []
    shown.page.route("**/core.zip", lambda route: held.append(route))
    shown.page.goto(shown.address)
    shown.page.locator("#file-fit").set_input_files(str(write_gguf(tmp_path / "early.gguf")))
    wait_for(lambda: shown.page.wait_for_timeout(20) or held, "the core is asked for")
    assert "the file is read as soon as it is there" in shown.status()
    held[0].continue_()
    shown.ready()
    step = wait_for(lambda: shown.asked().get("file") and shown.settled(), "the file is asked about")
    assert "error" not in step
    assert shown.text("#view-fit .drop .file output") == "early.gguf"


# ── what may be missing ──────────────────────────────────────────────────────────────────────────

COMMAND_LINE = "pip install inference-bench"


def test_a_browser_without_webassembly_keeps_the_first_answer_and_is_told_what_to_do(
    fresh: Callable[..., Calculator],
) -> None:
    shown = fresh()
    shown.page.add_init_script("delete globalThis.WebAssembly;")
    shown.page.goto(shown.address)
    said = wait_for(shown.trouble, "the trouble is said", 20)
    assert "no WebAssembly" in said
    assert COMMAND_LINE in said
    assert "ridge 562" in shown.answer_text()
    shown.page.locator("nav [data-view=article]").click()
    assert len(shown.answer_text("article")) > 2000
    assert shown.page.evaluate("() => heard.workers") == 0


def test_a_browser_without_modules_keeps_the_first_answer_and_is_told_what_to_do(page_folder: Path) -> None:
    """No such browser is at hand: what it would run is looked at."""
    index = (page_folder / "index.html").read_text()
    (script,) = re.findall(r'<script nomodule[^>]* src="([^"]+)"', index)
    text = (page_folder / script).read_text()
    assert COMMAND_LINE in text
    assert not re.search(r"=>|`|\bconst\b|\blet\b|\?\.|\bimport\b", text), "words that old browsers do not know"


@pytest.mark.parametrize("missing", ["worker.js", "core.zip", "pyodide.mjs", "pyodide.asm.wasm", "python_stdlib.zip"])
def test_what_cannot_be_loaded_is_said_the_first_answer_stays_and_a_new_start_works(
    fresh: Callable[..., Calculator], missing: str
) -> None:
    shown = fresh(minds=False)
    shown.page.route(f"**/{missing}", lambda route: route.abort())
    shown.page.goto(shown.address)
    before = shown.answer_text()
    said = wait_for(shown.trouble, "the trouble is said")
    assert said.startswith("What computes the answers could not be started (")
    assert COMMAND_LINE in said
    assert shown.answer_text() == before
    shown.page.locator("#fit-context").fill("8k")
    assert shown.answer_text() == before
    if missing in {"worker.js", "core.zip"}:
        shown.page.unroute(f"**/{missing}")
        shown.page.get_by_role("button", name="Start again").click()
        step = shown.ready().settled()
        assert step["answer"]["cache"]["context_tokens"] == 8192
        assert shown.trouble() == ""


def test_without_the_chart_library_answers_still_come_with_their_tables(fresh: Callable[..., Calculator]) -> None:
    shown = fresh(minds=False)
    shown.page.route("**/vega.min.js", lambda route: route.abort())
    shown.page.goto(shown.address)
    said = wait_for(shown.trouble, "the trouble is said")
    assert "chart" in said.lower()
    shown.page.locator("#fit-context").fill("8k")
    wait_for(lambda: "8,192 tokens" in shown.answer_text(), "the answer comes")


def test_a_core_that_hangs_can_be_started_again_and_goes_on_where_it_was(fresh: Callable[..., Calculator]) -> None:
    shown = fresh()
    shown.page.add_init_script(
        "const later = setTimeout; window.setTimeout = (what, ms, ...more) => later(what, ms === 15000 ? 1000 : ms, ...more);"
    )
    shown.page.goto(shown.address)
    shown.ready().settled()
    shown.page.evaluate("() => { Worker.prototype.postMessage = () => undefined; }")  # nothing reaches it any more
    shown.page.locator("#fit-context").fill("8k")
    said = wait_for(shown.trouble, "it is said that no answer comes", 40)
    assert "has not answered for a while" in said
    assert "147 kB" in shown.answer_text()
    assert shown.page.get_by_role("button", name="Start again").is_visible()


@pytest.mark.parametrize(
    "get",
    ["() => undefined", "() => { throw new DOMException('not here', 'SecurityError'); }"],
    ids=["none", "forbidden"],
)
def test_without_a_service_worker_it_still_answers(fresh: Callable[..., Calculator], get: str) -> None:
    shown = fresh()
    shown.page.add_init_script(f"Object.defineProperty(navigator, 'serviceWorker', {{ get: {get} }});")
    shown.page.goto(shown.address)
    assert "error" not in shown.ready().settled()
