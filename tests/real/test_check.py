"""The contract of a real llama.cpp server, held to what was seen of it by hand.

Expected verdicts: its own answers to curl (role chunk first, usage in a stream only when asked, the connection closed after a
stream, HTTP 400 exceed_context_size_error with a slot's 1,024 tokens, prompts by /apply-template), and its grammar converter, which
knows pattern, minLength, maxLength and format and passes over not. The default system message of
SmolLM2 is in its chat template.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.operate.contract.flow import Wish, check_contract
from inference_bench.operate.contract.keywords import keyword_rows
from inference_bench.operate.contract.rows import Contract, Verdict
from inference_bench.operate.contract.server import Server, target_of
from inference_bench.operate.contract.structured import schema_fields
from inference_bench.operate.contract.wire import Wire

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")

GROUPS = (
    "routes", "limits", "streaming", "stops", "logprobs", "sampling", "context", "cancellation", "template", "errors", "greedy",
)  # fmt: skip
YES = {
    "routes.chat", "routes.completions", "routes.tokenize", "routes.llama_cpp", "limits.max_tokens", "limits.max_completion_tokens",
    "limits.n_predict", "streaming.events", "streaming.role_chunk", "streaming.done", "streaming.same_text", "streaming.include_usage",
    "streaming.usage_whole", "stops.string", "stops.several", "stops.left_out", "stops.across_chunks", "stops.finish_stop",
    "stops.finish_length", "logprobs.chat", "logprobs.top", "sampling.temperature_zero", "sampling.seed", "context.stated",
    "context.error", "context.not_truncated", "cancellation.stops", "template.told", "template.counted", "errors.invalid_json",
    "errors.no_prompt", "greedy.repeated",
}  # fmt: skip
NO = {
    "routes.sglang", "routes.absent_key", "streaming.usage_unasked", "streaming.continuous_usage", "streaming.keeps_connection",
    "stops.empty", "template.no_own_system", "errors.unknown_field", "errors.unknown_model",
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    model = ensure_embedded_model()
    config = HostConfig(str(model.path), model.path.stem, context_tokens_total=4096, num_slots=4, num_threads=1)
    log_path = tmp_path_factory.mktemp("engine") / "server.log"
    with LlamaCppServer.start(config, log_path=log_path, startup_timeout_s=120.0, model_sha256=model.sha256) as server:
        yield server.base_url


@pytest.fixture(scope="module")
def found(url: str) -> Contract:
    return check_contract(url, Wish(only=GROUPS, is_quick=True, timeout_s=60))


def test_the_verdicts_are_those_that_are_known_of_this_engine(found: Contract) -> None:
    assert (found.lost, found.is_interrupted) == (None, False)
    verdicts = {row.id: row.verdict for row in found.rows}
    assert {row_id: verdicts[row_id] for row_id in YES} == dict.fromkeys(YES, Verdict.YES)
    assert {row_id: verdicts[row_id] for row_id in NO} == dict.fromkeys(NO, Verdict.NO)


def test_the_error_of_a_prompt_that_is_too_long_is_in_the_engines_words(found: Contract) -> None:
    row = found.row("context.error")
    assert row is not None
    assert "exceed_context_size_error" in row.seen
    assert "1024 tokens" in row.seen


def test_a_warm_prefix_was_warm_and_no_condition_is_a_bug(found: Contract) -> None:
    for name in ("repeated", "batched", "warm"):
        row = found.row(f"greedy.{name}")
        assert row is not None
        assert row.verdict in (Verdict.YES, Verdict.PARTLY), row
    assert "prompt tokens from the cache" in row.seen
    assert " 0 prompt tokens" not in row.seen


def test_keywords_of_schemas_are_enforced_or_silently_passed_over(url: str) -> None:
    server = Server(Wire(target_of(url, None, None), timeout_s=60, budget_s=120))
    rows = islice(keyword_rows(server, lambda schema: schema_fields("json_schema", schema)), 5)
    outcomes = {row.id.partition(".")[2]: row.figures.get("outcome") for row in rows}
    assert outcomes == dict.fromkeys(("pattern", "minLength", "maxLength", "format"), "enforced") | {"not": "ignored"}
