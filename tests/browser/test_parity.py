"""The same core here and in the browser: generated questions get the same JSON from both."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import pytest

from browser.calculator import Calculator, in_cpython
from inference_bench import bridge
from inference_bench.accounting.weight_plan import known_schemes
from inference_bench.bridge.fields import Field
from inference_bench.facts.formats import known_formats
from inference_bench.facts.hardware import KNOWN_PEAKS, known_hardware
from inference_bench.facts.load import known_models

pytestmark = pytest.mark.browser

SEED = 20261130
COUNTS = {"fit": 90, "roofline": 50, "plan": 50, "simulate": 20, "article": 6}
FLOATS_ALIKE = 1e-12  # relative: the two systems' exp, log and pow differ in their last bit
ROUNDING = 1e-15  # absolute: what a sum is off by is itself a figure of some answers
# A second worker of the same script, asked one question after another in each view.
ASK_ALL = """async (requests) => {
  const script = new URL("worker.js", document.querySelector("script[type=module]").src);
  const worker = new Worker(script, { type: "module" });
  const answers = [], waiting = {};
  const ask = (view) => {
    const id = requests.findIndex((request, index) => request.view === view && answers[index] === undefined);
    if (id < 0) return waiting[view].resolve();
    worker.postMessage({ kind: "ask", view, id, request: requests[id] });
  };
  try {
    await new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => (data.kind === "ready" ? resolve() : reject(new Error(data.said)));
    });
    const views = [...new Set(requests.map(({ view }) => view))];
    await Promise.all(views.map((view) => new Promise((resolve, reject) => {
      waiting[view] = { resolve, reject };
      worker.onmessage = ({ data }) => {
        if (data.kind !== "step") return Object.values(waiting).forEach(({ reject }) => reject(new Error(data.said)));
        if (data.step.includes('"progress": ') || data.step.includes('"is_partial": true')) return;
        answers[data.id] = data.step;
        ask(data.view);
      };
      ask(view);
    })));
    return answers;
  } finally {
    worker.terminate();
  }
}"""
ODD = (
    "", " ", "nan", "NaN", "inf", "-1", "0", "1e999", "1e-320", "0.1", "1/3", "１２", "٣", "½", "32k", "32K", "1M", "128000", "1.5",
    "<img src=x onerror=alert(1)>", "&amp;", "'; --", "\u202e", "\x00\x07", "é\u0301", "\U0001f600", "a" * 300, "9" * 40, "x,y", "--help",
    "\ud800",
)  # fmt: skip


def models() -> list[str]:
    return [model.name for model in known_models()]


def machines() -> list[str]:
    return [machine.name for machine in known_hardware()]


def configs() -> list[str]:
    """Every config.json of the registry, as it would be pasted."""
    text = (files("inference_bench") / "facts" / "data" / "models.jsonl").read_text(encoding="utf-8")
    return [json.dumps(row["config"], indent=2) for row in map(json.loads, text.splitlines()) if "config" in row]


def length(draw: random.Random) -> str:
    return draw.choice(("512", "4k", "8192", "32k", "40000", "100_000", "128k", str(draw.randrange(1, 200_000))))


PLAUSIBLE: dict[str, Any] = {
    "context": length,
    "prompt": length,
    "output": lambda draw: str(draw.randrange(1, 3000)),
    "prefix": lambda draw: draw.choice(("", "0", "200")),
    "chunk": lambda draw: draw.choice(("", "512", "2048")),
    "sequences": lambda draw: str(draw.choice((1, 2, 7, 32, 300))),
    "batch": lambda draw: str(draw.choice((1, 3, 16, 100))),
    "devices": lambda draw: str(draw.choice((1, 1, 1, 2, 4, 8))),
    "memory": lambda draw: f"{draw.uniform(4, 300):.3g}GB",
    "bandwidth": lambda draw: f"{draw.uniform(0.05, 9):.3g} TB/s",
    "peak": lambda draw: f"{draw.uniform(10, 5000):.3g} TFLOP/s",
    "interconnect": lambda draw: draw.choice(("", "900GB/s")),
    "weights": lambda draw: draw.choice(["", *(name for name, _ in known_schemes())]),
    "kv": lambda draw: draw.choice(["", *(each.name for each in known_formats())]),
    "compute": lambda draw: draw.choice(["", *KNOWN_PEAKS]),
    "others": lambda draw: ",".join(draw.sample(machines(), draw.randrange(3))),
    "overhead": lambda draw: draw.choice(("", "0", "1GiB", "2.5GB")),
    "mfu": lambda draw: draw.choice(("", "0.37", "61%")),
    "bandwidth_share": lambda draw: draw.choice(("", "0.73")),
    "usd_per_hour": lambda draw: draw.choice(("", "2.35")),
    "requests_per_day": lambda draw: draw.choice(("", "20k", "3M")),
    "think_time": lambda draw: draw.choice(("", "30s")),
    "length": length,
}


def fields_of(view: str, draw: random.Random) -> dict[str, str]:
    """A question: names from the whole registry, some plausible settings, and now and then something odd."""
    known = {each.name: each for each in bridge.view(view).fields}
    said: dict[str, str] = {}
    for name, each in known.items():
        if name in PLAUSIBLE and draw.random() < 0.35:
            said[name] = PLAUSIBLE[name](draw)
        elif each.options and draw.random() < 0.3:
            said[name] = draw.choice(each.options)[0]
    if "model" in known:
        said["model"] = draw.choice(models())
        said["on"] = draw.choice([*machines(), "own", "own"])
    if "config" in known and draw.random() < 0.25:
        said["config"] = draw.choice(configs())
    if draw.random() < 0.2:
        odd: Field = draw.choice(list(known.values()))
        said[odd.name] = draw.choice(ODD)
    return said


def small(said: dict[str, str], draw: random.Random) -> dict[str, str]:
    """A simulation that is over soon in either; half of them of a reference profile."""
    if draw.random() < 0.5:
        profiles = next(each.options for each in bridge.view("simulate").fields if each.name == "times")
        said = {"times": draw.choice(profiles)[0]}
    policies = draw.sample(["chunked", "paged", "reserve", "static", "vllm", "sglang"], 2)
    lengths = {
        "prompt_lengths": draw.choice(("512", "uniform:100:900")),
        "output_lengths": draw.choice(("40", "lognormal:60:0.6:4:200")),
    }
    shape = {"requests": str(draw.randrange(5, 30)), "rates": draw.choice(("1", "2,8")), "policies": ",".join(policies)}
    return {**said, **lengths, **shape, "seed": str(draw.randrange(1000))}


def requests() -> Iterator[dict[str, Any]]:
    draw = random.Random(SEED)
    for view, count in COUNTS.items():
        for _ in range(count):
            said = fields_of(view, draw)
            said = small(said, draw) if view == "simulate" else said
            yield {"view": view, "fields": said, "width": draw.choice(("wide", "narrow", None))}


@dataclass
class Comparison:
    """Two JSON values side by side: integers and texts the same, numbers alike; how far apart they were at most."""

    num_floats: int = 0
    num_unequal: int = 0
    furthest: float = 0.0
    differences: list[str] = field(default_factory=list)

    def look(self, one: Any, other: Any, at: str) -> None:
        if type(one) is not type(other):
            self.differences.append(f"{at}: {one!r} and {other!r}"[:400])
        elif isinstance(one, dict) and list(one) == list(other):
            for key in one:
                self.look(one[key], other[key], f"{at}.{key}")
        elif isinstance(one, list) and len(one) == len(other):
            for index, pair in enumerate(zip(one, other, strict=True)):
                self.look(*pair, f"{at}[{index}]")
        elif isinstance(one, float):
            self.look_at_floats(one, other, at)
        elif one != other:
            self.differences.append(f"{at}: {excerpt(str(one), str(other))} and {excerpt(str(other), str(one))}")

    def look_at_floats(self, one: float, other: float, at: str) -> None:
        self.num_floats += 1
        if one != other:
            apart = abs(one - other) / max(abs(one), abs(other))
            self.num_unequal += 1
            self.furthest = max(self.furthest, 0.0 if abs(one - other) <= ROUNDING else apart)
            if apart > FLOATS_ALIKE and abs(one - other) > ROUNDING:
                self.differences.append(f"{at}: {one!r} and {other!r}")


def excerpt(text: str, other: str) -> str:
    """A text around where it begins to differ."""
    begin = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return repr(text[max(0, begin - 40) : begin + 40])


def test_generated_questions_get_the_same_json_here_and_in_the_browser(calculator: Calculator) -> None:
    asked = list(requests())
    assert len(asked) >= 200
    with ThreadPoolExecutor(1) as beside:  # the browser has a core of its own
        answers = beside.submit(lambda: [in_cpython(request) for request in asked])
        there = [json.loads(text) for text in calculator.page.evaluate(ASK_ALL, asked)]
        here = answers.result()
    found = Comparison()
    for request, one, other in zip(asked, here, there, strict=True):
        found.look(one, other, json.dumps(request)[:300])
    assert found.differences == []
    answered = Counter(each["view"] for each in here if "error" not in each)
    print(
        f"\n{len(asked)} questions, of which {dict(answered)} were answered: all texts and integers the same; of "
        f"{found.num_floats} other numbers {found.num_unequal} not to the last bit, {found.furthest:.1e} apart at most"
    )
    for view, count in COUNTS.items():
        assert answered[view] >= count / 3, "too few of these questions have answers"
    assert sum(answered.values()) < len(asked), "none of these questions is odd"
    assert not [each for each in here if "mistake of this program" in json.dumps(each.get("error"))]
