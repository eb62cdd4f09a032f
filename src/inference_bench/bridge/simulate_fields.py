"""What can a reader say of a simulation? Its fields, the lists that suggest their values, and how their texts are read.

In:   Values
Out:  groups of fields; a field's text as a number, or None where it is empty
Leaves out: what the fields mean together (simulate_server, simulate_workload)
Read next by: simulate_server, simulate_workload, simulate_view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from inference_bench.bridge.fields import Field, FieldError, Group, Values, at
from inference_bench.bridge.subject import MACHINE_GROUP, MODEL_GROUP, OWN_MODEL_GROUP
from inference_bench.simulate.candidates import ALL, scheduler_names
from inference_bench.simulate.reference_profiles import reference_profiles
from inference_bench.workload import ARRIVALS_FORMS, LENGTHS_FORMS

Parsed = TypeVar("Parsed")
A_MODEL: Final = "model"
NO_ENGINE: Final = "none"
REFERENCE_PROMPTS: Final = "uniform:2000:6000"
REFERENCE_OUTPUTS: Final = "lognormal:1500:0.6:16:4000"
_MOST_CHARS: Final = 400
_OF_A_MODEL: Final = f"times={A_MODEL}"
# what a browser's lists suggest, by the name that a field calls it
LISTS: Final = {
    "schedulers": (*scheduler_names(), ALL),
    "arrivals": ("poisson", "constant", "gamma:2", "gamma:0.5", "on-off:30s:60s"),
    "lengths": (REFERENCE_PROMPTS, REFERENCE_OUTPUTS, "512", "mix:10%:32k:uniform:500:2000"),
}

TIMES_GROUP: Final = Group(
    "What serves it",
    (
        Field(
            "times",
            "Times of steps from",
            A_MODEL,
            options=(
                (A_MODEL, "this model on this machine"),
                *((name, f"the reference profile {name}") for name in reference_profiles()),
            ),
        ),
        Field(
            "engine",
            "As fast as",
            NO_ENGINE,
            option="--engine",
            implied=NO_ENGINE,
            options=(
                (NO_ENGINE, "stated shares of the machine's peaks"),
                ("vllm", "vLLM is expected to be"),
                ("sglang", "SGLang is expected to be"),
                ("llama.cpp", "llama.cpp is expected to be"),
                ("tensorrt-llm", "TensorRT-LLM is expected to be"),
            ),
            when=_OF_A_MODEL,
        ),
    ),
)
ASKED_GROUP: Final = Group(
    "What is asked of it",
    (
        Field(
            "rates",
            "Requests a second",
            "",
            "one rate, several with commas, or 0.1:0.4:0.1; empty: some around what the first policy can serve",
            "--rate",
        ),
        Field("requests", "Requests", "300", "a whole number, up to 3000", "--requests", "300"),
        Field(
            "prompt_lengths",
            "Prompt tokens",
            REFERENCE_PROMPTS,
            ", ".join(LENGTHS_FORMS),
            "--prompt-tokens",
            REFERENCE_PROMPTS,
            listed="lengths",
        ),
        Field(
            "output_lengths",
            "Output tokens",
            REFERENCE_OUTPUTS,
            "in the same forms",
            "--output-tokens",
            REFERENCE_OUTPUTS,
            listed="lengths",
        ),
        Field(
            "arrivals",
            "They arrive",
            "poisson",
            ", ".join(ARRIVALS_FORMS),
            "--arrivals",
            "poisson",
            listed="arrivals",
        ),
        Field("seed", "Seed", "0", "a whole number; another draws other requests", "--seed", "0"),
    ),
)
POLICIES_GROUP: Final = Group(
    "How it schedules",
    (
        Field(
            "policies",
            "Policies",
            "chunked, paged, reserve, static",
            f"with commas: {', '.join(scheduler_names())}; {ALL}: the first six; empty: the engine's, or {ALL}",
            "--policy",
            listed="schedulers",
        ),
        Field("max_ttft", "Longest wait of a good request", "3s", "for its first token", "--max-ttft", "3s"),
        Field("max_gap", "its longest pause", "100ms", "between any two tokens", "--max-gap", "100ms"),
        Field("shown_policy", "Over time: the policy", "", "one of the above; empty: the first", listed="schedulers"),
        Field("shown_rate", "at the rate", "", "one of the above; empty: the highest"),
    ),
)
LIMITS_GROUP: Final = Group(
    "Limits and shares",
    (
        Field("max_running", "Sequences at once", "", "empty: 256, or the engine's", "--max-running"),
        Field("token_budget", "Positions a step", "", "empty: 256, or the engine's", "--token-budget"),
        Field("max_batch", "Largest batch", "", "of static and dynamic; empty: 16", "--max-batch"),
        Field("kv_memory", "Memory of the cache", "", "such as 16GB, a device; empty: what is left", "--kv-memory"),
        Field(
            "overhead",
            "Runtime overhead",
            "",
            "such as 2.5GB, on each device; empty: 2.5GB, engines' schedulers 1.5GB",
            "--overhead",
            when=_OF_A_MODEL,
        ),
        Field("mfu", "Share of the compute", "", "empty: 0.5, or the engine's", "--mfu", when=_OF_A_MODEL),
        Field(
            "bandwidth_share",
            "Share of the bandwidth",
            "",
            "empty: 0.8, or the engine's",
            "--bandwidth-share",
            when=_OF_A_MODEL,
        ),
        Field("usd_per_hour", "USD a device hour", "", "such as 2.50; empty: no cost", "--usd-per-hour"),
    ),
    is_folded=True,
)


def _of_a_model(group: Group) -> Group:
    """A shared group whose fields are shown only where a model on a machine is simulated."""
    return replace(group, fields=tuple(replace(each, when=each.when or _OF_A_MODEL) for each in group.fields))


GROUPS: Final = (
    ASKED_GROUP,
    POLICIES_GROUP,
    TIMES_GROUP,
    *map(_of_a_model, (MODEL_GROUP, OWN_MODEL_GROUP, MACHINE_GROUP)),
    LIMITS_GROUP,
)


def reference_of(values: Values) -> str | None:
    """The reference profile that step times are from; None where a model on a machine is simulated."""
    times = values.choice("times")
    return None if times == A_MODEL else times


def given(values: Values, name: str, parse: Callable[[str, str], Parsed]) -> Parsed | None:
    """A field's text as what it stands for; None where it is empty.

    Raises:  FieldError
    """
    text, label = short_text(values, name), label_of(values, name)
    if not text:
        return None
    with at(name):
        return parse(text, label)


def needed(values: Values, name: str, parse: Callable[[str, str], Parsed]) -> Parsed:
    """The same of a field that must not be empty.

    Raises:  FieldError
    """
    found = given(values, name, parse)
    if found is None:
        raise FieldError(
            name, f"the {label_of(values, name)} field is empty; give for example {_default(values, name)}"
        )
    return found


def short_text(values: Values, name: str) -> str:
    """A field's text, which nobody writes longer than this.

    Raises:  FieldError
    """
    text = values.text(name)
    if len(text) > _MOST_CHARS:
        raise FieldError(
            name, f"{label_of(values, name)} is a text of {len(text):,} characters; at most {_MOST_CHARS} are read"
        )
    return text


def label_of(values: Values, name: str) -> str:
    """What a field is called, as it stands in a sentence."""
    label = next(each.label for each in values.view.fields if each.name == name)
    return f"{label[0].lower()}{label[1:]}"


def _default(values: Values, name: str) -> str:
    return next(each.default for each in values.view.fields if each.name == name)
