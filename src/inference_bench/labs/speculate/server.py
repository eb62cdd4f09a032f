"""Does a real server keep its output with its own speculation on, and is it faster?

In:   a .gguf file, the fixed prompts
Out:  ServerResult
Leaves out: how it drafts: that is the engine's; vLLM and SGLang, whose option is --speculative-config and its kin
Read next by: flow.

The same prompts go greedily to the same engine started twice, without and with its option, in turn, so that whatever else the machine
does meets both. Asked one by one, its own counts and times are read; then a closed loop sends them from one or two clients at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from inference_bench.engines.base import LLAMA_CPP, FlagValue, RunningServer
from inference_bench.engines.start import EngineSettings, start_engine
from inference_bench.errors import MeasurementError
from inference_bench.labs.logits import common_length
from inference_bench.labs.speculate.result import ServerAnswer, ServerLoad, ServerResult
from inference_bench.loadtest.flow import LoadRequest, measure_load
from inference_bench.measure.prompt_files import FilePrompt, FilePrompts
from inference_bench.measure.sender import post_json
from inference_bench.measure.target import Target
from inference_bench.measure.target_body import Message
from inference_bench.units import KILO
from inference_bench.workload.generate import closed_loop

SPECULATION: Final = "ngram_simple"
MATCH_TOKENS: Final = 3
_PROMPT_ROOM: Final = 512  # tokens that any of the fixed prompts takes at most

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the server is asked: prompts by name, how long each answer is, and how many tokens it may draft."""

    prompts: Mapping[str, str]
    num_tokens: int
    draft_tokens: int
    num_threads: int
    concurrencies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Servers:
    """The same engine twice, without its option and with it, so that both are asked at about the same time."""

    off: RunningServer
    on: RunningServer
    asked: Asked
    scratch: Path
    say: Say


def measure_server(gguf: Path, asked: Asked, say: Say) -> ServerResult:
    """The same prompts with the engine's speculation off and on.

    Raises:  MissingExtraError, ServerStartError, ServerError, MeasurementError
    """
    on: dict[str, FlagValue] = {
        "speculation": SPECULATION,
        "speculation_tokens": asked.draft_tokens,
        "speculation_match_tokens": MATCH_TOKENS,
    }
    with (
        TemporaryDirectory() as scratch,
        _started(gguf, asked, {}, Path(scratch) / "off.log", say) as without,
        _started(gguf, asked, on, Path(scratch) / "on.log", say) as with_it,
    ):
        servers = _Servers(without, with_it, asked, Path(scratch), say)
        return ServerResult(
            engine=LLAMA_CPP,
            version=without.identity.version,
            option=f"{SPECULATION}, n-grams of {MATCH_TOKENS}, up to {asked.draft_tokens} tokens a draft",
            answers=tuple(_answer(servers, name) for name in asked.prompts),
            loads=tuple(_loads(servers, each) for each in asked.concurrencies),
        )


def _started(gguf: Path, asked: Asked, flags: Mapping[str, FlagValue], log: Path, say: Say) -> RunningServer:
    settings = EngineSettings(
        context_tokens=asked.num_tokens + _PROMPT_ROOM,
        num_slots=max(asked.concurrencies),
        num_threads=asked.num_threads,
        flags=flags,
    )
    say(f"starting a server, speculation {'on' if flags else 'off'}")
    server = start_engine(LLAMA_CPP, gguf, settings, log_path=log, progress=say)
    try:
        _ask(Target(server.base_url), next(iter(asked.prompts.values())), asked.num_tokens)  # warm
    except BaseException:
        server.stop()
        raise
    return server


def _ask(target: Target, text: str, num_tokens: int, **more: object) -> dict[str, Any]:
    """One greedy answer, with its token ids and the server's own times.

    Raises:  ServerError; MeasurementError for a reply without them
    """
    body = {
        "prompt": text,
        "n_predict": num_tokens,
        "temperature": 0,
        "cache_prompt": False,
        "ignore_eos": True,
        "return_tokens": True,
        **more,
    }
    reply = post_json(target, "/completion", body)
    if not isinstance(reply, dict) or not isinstance(reply.get("tokens"), list):
        raise MeasurementError("the server answered without the token ids that it was asked for")
    return reply


def _first_difference(first: Sequence[int], second: Sequence[int]) -> int | None:
    return None if list(first) == list(second) else common_length(first, second)


def _gap(target: Target, text: str, num_tokens: int, place: int) -> float | None:
    """How far the first choice lay above the second at one token of a plain answer, in nats."""
    listed = _ask(target, text, num_tokens, n_probs=2).get("completion_probabilities")
    if not isinstance(listed, list) or place >= len(listed):
        return None
    two = listed[place].get("top_logprobs", [])
    return float(two[0]["logprob"] - two[1]["logprob"]) if len(two) == 2 else None


def _answer(servers: _Servers, name: str) -> ServerAnswer:
    """One prompt asked of both; where the answers differ, how near the plain one's choice was."""
    servers.say(f"server, {name}")
    text, num_tokens = servers.asked.prompts[name], servers.asked.num_tokens
    plain, drafted = (_ask(Target(each.base_url), text, num_tokens) for each in (servers.off, servers.on))
    place = _first_difference(plain["tokens"], drafted["tokens"])
    times = drafted.get("timings", {})
    return ServerAnswer(
        prompt=name,
        num_tokens=len(plain["tokens"]),
        is_same_text=plain["content"] == drafted["content"],
        off_s_per_token=_s_per_token(plain),
        on_s_per_token=_s_per_token(drafted),
        num_proposed=times.get("draft_n", 0),
        num_accepted=times.get("draft_n_accepted", 0),
        first_difference=place,
        gap_nats=None if place is None else _gap(Target(servers.off.base_url), text, num_tokens, place),
    )


def _s_per_token(reply: Mapping[str, Any]) -> float | None:
    value = reply.get("timings", {}).get("predicted_per_token_ms")
    return float(value) / KILO if isinstance(value, int | float) and value > 0 else None


def _loads(servers: _Servers, concurrency: int) -> ServerLoad:
    off, on = (_load(each.base_url, servers, concurrency) for each in (servers.off, servers.on))
    return ServerLoad(concurrency, len(servers.asked.prompts), off, on)


def _load(url: str, servers: _Servers, concurrency: int) -> float | None:
    """Tokens a second of a closed loop over the same prompts."""
    asked = servers.asked
    entries = tuple(FilePrompt((Message("user", text),), asked.num_tokens) for text in asked.prompts.values())
    prompts = FilePrompts("fixed prompts", entries)
    request = LoadRequest(
        url,
        workload=closed_loop("fixed prompts", prompts.shapes(), concurrency, len(entries)),
        prompt_source=prompts,
        extra_body={"cache_prompt": False},
        runs=servers.scratch / "runs",
    )
    return measure_load(request, servers.say).metrics.output_tokens_per_s
