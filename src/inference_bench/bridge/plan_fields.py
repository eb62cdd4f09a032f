"""What can a reader say of a plan? Its fields, and where each stands in a scenario.

In:   Values
Out:  groups of fields; the scenario they describe
Leaves out: the model and the machines (subject), what the scenario means (predict.scenario)
Read next by: plan_view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inference_bench.bridge.fields import Field, FieldError, Group, Values
from inference_bench.bridge.subject import COMPUTE_FIELD, MACHINE_GROUP, MODEL_GROUP, OWN_MODEL_GROUP
from inference_bench.errors import RequestError
from inference_bench.predict.scenario import Scenario, scenario_from_mapping

MAX_OTHERS: Final = 4
_MACHINES: Final = Group(
    MACHINE_GROUP.title,
    (
        *MACHINE_GROUP.fields,
        Field("others", "Beside these machines", "", "up to four names, with commas between", "--compare", listed="machines"),
    ),
)  # fmt: skip
_TRAFFIC: Final = Group(
    "Traffic",
    (
        Field("prompt", "Prompt tokens", "4000", "tokens of a request", "--prompt"),
        Field("output", "Output tokens", "500", "tokens of a request", "--output"),
        Field("prefix", "Prefix tokens", "1000", "tokens that every prompt begins with; empty: none", "--prefix"),
        Field("requests_per_day", "Requests a day", "1M", "such as 20k; empty: no replicas are counted", "--requests-per-day"),
        Field("peak_factor", "Peak over mean rate", "3", "1 or more; empty: 1", "--peak-factor"),
    ),
)  # fmt: skip
_OBJECTIVES: Final = Group(
    "What is promised",
    (
        Field("ttft", "Time to the first token", "1s", "of one request alone; empty: not promised", "--ttft"),
        Field("tpot", "Time of each further token", "40ms", "empty: not promised", "--tpot"),
        Field("e2e", "Time of the whole request", "", "empty: not promised", "--e2e"),
        Field(
            "judged_by",
            "held against",
            "full_load",
            option="--judged-by",
            implied="step",
            options=(("step", "decode steps alone"), ("full_load", "the pace with prompts in between")),
        ),
    ),
)
_PRICES: Final = Group(
    "Prices, USD",
    (
        Field(
            "usd_per_hour",
            "Price of a device hour",
            "5",
            "an example, put in your own; with commas for several machines",
            "--usd-per-hour",
            is_example=True,
        ),
        Field("utilisation", "Share of the hours that is busy", "30%", "empty: not said", "--utilisation"),
        Field(
            "hosted_input",
            "Hosted price of a million input tokens",
            "0.10",
            "an example; empty: no break-even",
            "--hosted-input",
            is_example=True,
        ),
        Field(
            "hosted_output",
            "Hosted price of a million output tokens",
            "0.40",
            "an example",
            "--hosted-output",
            is_example=True,
        ),
        Field(
            "hosted_cached",
            "Hosted price of a million cached tokens",
            "",
            "empty: as other input",
            "--hosted-cached",
        ),
    ),
)
_ASSUMPTIONS: Final = Group(
    "Engine and shares",
    (
        Field(
            "engine",
            "Engine",
            "none",
            option="--engine",
            implied="none",
            options=(
                ("none", "none: shares of the peaks"),
                ("vllm", "vLLM"),
                ("sglang", "SGLang"),
                ("llama.cpp", "llama.cpp"),
                ("tensorrt-llm", "TensorRT-LLM"),
            ),
        ),
        Field(
            "speed",
            "Its speed",
            "",
            option="--speed",
            options=(
                ("", "expected of the engine, where one is named alone"),
                ("shares", "shares of the peaks"),
                ("expected", "expected of the engine"),
            ),
        ),
        Field("mfu", "Share of the compute", "", "empty: 0.5", "--mfu"),
        Field("bandwidth_share", "Share of the bandwidth", "", "empty: 0.8", "--bandwidth-share"),
        COMPUTE_FIELD,
        Field("overhead", "Runtime overhead", "2.5GB", "on each device", "--overhead"),
        Field("max_batch", "Largest batch", "", "that the engine allows; empty: none", "--max-batch"),
        Field("target_utilisation", "A replica at the peak", "80%", "how busy it may be", "--target-utilisation", "80%"),
        Field("think_time", "Think time", "", "between an answer and the next request; empty: users are not counted", "--think-time"),
    ),
    is_folded=True,
)  # fmt: skip
GROUPS: Final = (MODEL_GROUP, OWN_MODEL_GROUP, _MACHINES, _TRAFFIC, _OBJECTIVES, _PRICES, _ASSUMPTIONS)

# field → the table of a scenario it stands in
_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("weights", "kv", "devices", "engine", "speed"),
    "traffic": ("prompt", "output", "prefix", "requests_per_day", "peak_factor", "think_time", "target_utilisation"),
    "objectives": ("ttft", "tpot", "e2e", "judged_by"),
    "prices": ("usd_per_hour", "utilisation", "hosted_input", "hosted_output", "hosted_cached"),
    "assumptions": ("overhead", "mfu", "bandwidth_share", "max_batch"),
}
_CHOICES: Final = frozenset({"engine", "speed", "judged_by"})
_SAY_NOTHING_WITHOUT: Final = {
    "utilisation": "usd_per_hour",
    "peak_factor": "requests_per_day",
    "hosted_output": "hosted_input",
    "hosted_cached": "hosted_input",
}


def scenario_of(values: Values, machines: Sequence[str], compute: str | None) -> Scenario:
    """The scenario that the fields describe, on machines of these names.

    Raises:  FieldError
    """
    _require_named(values)
    described: dict[str, Any] = {"model": "the model", "machine": list(machines)}
    described |= {} if compute is None else {"compute": compute}
    for section, names in _SECTIONS.items():
        said = _said(values, names)
        described |= {section: said} if section else said
    prices = described["prices"].get("usd_per_hour", "").split(",")
    if len(prices) > 1:
        described["prices"]["usd_per_hour"] = prices
    try:
        return scenario_from_mapping(described)
    except RequestError as error:
        raise _of_field(values, str(error)) from None


def _require_named(values: Values) -> None:
    """What no plan can do without.

    Raises:  FieldError
    """
    for name in ("prompt", "output"):
        if not values.text(name):
            raise FieldError(name, f"how many {name} tokens a request has is empty; give a number, such as 4000 or 4k")
    if values.text("hosted_input") and not values.text("hosted_output"):
        raise FieldError(
            "hosted_output", "the hosted price of output tokens is empty; give it, or none for input either"
        )


def unused(values: Values) -> tuple[str, ...]:
    """Fields that say nothing as long as another is empty."""
    judged = values.text("tpot") or values.text("e2e")
    alone = tuple(name for name, needed in _SAY_NOTHING_WITHOUT.items() if not values.text(needed))
    return alone if judged else (*alone, "judged_by")


def _said(values: Values, names: Sequence[str]) -> dict[str, str]:
    for name in names:
        if name in _CHOICES:
            values.choice(name)
    left_out = unused(values)
    return {name: values.text(name) for name in names if values.text(name) and name not in left_out}


def _of_field(values: Values, message: str) -> FieldError:
    """The error with the field that it is about, which it names first: as a scenario's key in its section."""
    for section, names in _SECTIONS.items():
        for name in names:
            key = f"[{section}] {name} " if section else f"{name} "
            if message.startswith(key):
                label = next(each.label for each in values.view.fields if each.name == name)
                return FieldError(name, f"{label[0].lower()}{label[1:]} {message.removeprefix(key)}")
    return FieldError(None, message)


def others_of(values: Values) -> list[str]:
    """The names of the machines beside the one that is asked about.

    Raises:  FieldError
    """
    names = [name.strip() for name in values.text("others").split(",") if name.strip()]
    if len(names) > MAX_OTHERS:
        raise FieldError("others", f"{len(names)} machines were named; at most {MAX_OTHERS} are compared beside it")
    return names
