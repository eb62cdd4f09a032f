"""How is another tool asked to send a few requests? Its command line, less the program's name.

In:   a ToolRun
Out:  arguments; the result is a JSON file where the run says
Leaves out: where the tool is (tool_places), what its file says (tool_results)
Read next by: tools.

The versions these were run with stand in docs/conformance.md. AIPerf is told to count tokens as the server does; by
default it counts its own. A time limit for a request is given to the tools that have one: GuideLLM and AIPerf.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROMPT: Final = "16"


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What a tool is to do: so many requests, so many at once, of so many tokens each.

    Where:    url is what /v1/... follows; file is where the result goes; tokenizer is a folder
    """

    url: str
    file: Path
    tokenizer: Path
    num_requests: int
    num_tokens: int
    concurrency: int = 1
    is_chat: bool = True
    timeout_s: float = 10.0

    @property
    def route(self) -> str:
        """The path of the requests."""
        return "/v1/chat/completions" if self.is_chat else "/v1/completions"


def vllm_command(run: ToolRun) -> list[str]:
    """`vllm bench serve`; its compiled twin takes the same words."""
    return [
        *("bench", "serve", "--backend", "openai-chat" if run.is_chat else "openai"),
        *("--base-url", run.url, "--endpoint", run.route, "--model", "conform", "--tokenizer", str(run.tokenizer)),
        *("--dataset-name", "random", "--random-input-len", _PROMPT, "--random-output-len", str(run.num_tokens)),
        *("--num-prompts", str(run.num_requests), "--max-concurrency", str(run.concurrency)),
        *("--ready-check-timeout-sec", "0", "--disable-tqdm"),
        *("--save-result", "--result-dir", str(run.file.parent), "--result-filename", run.file.name),
    ]


def sglang_command(run: ToolRun) -> list[str]:
    """SGLang's bench_serving, or its compiled twin; a range ratio of 1 asks for the whole length, not for one up to it."""
    return [
        *("--backend", "vllm-chat" if run.is_chat else "vllm", "--base-url", run.url),
        *("--model", "conform", "--tokenizer", str(run.tokenizer), "--dataset-name", "random-ids"),
        *("--random-input-len", _PROMPT, "--random-output-len", str(run.num_tokens), "--random-range-ratio", "1"),
        *("--num-prompts", str(run.num_requests), "--max-concurrency", str(run.concurrency)),
        *("--warmup-requests", "0", "--ready-check-timeout-sec", "0", "--disable-tqdm", "--output-file", str(run.file)),
    ]


def guidellm_command(run: ToolRun) -> list[str]:
    """`guidellm run`, one profile."""
    profile = "kind=synchronous" if run.concurrency == 1 else f"kind=concurrent,streams={run.concurrency}"
    backend = f"kind=openai_http,target={run.url},model=conform,request_format={run.route},timeout={run.timeout_s:g}"
    return [
        *("run", "--backend", backend, "--profile", profile),
        *("--constraint", f"kind=max_requests,count={run.num_requests}"),
        *("--tokenizer", f"kind=hf_auto,model={run.tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={_PROMPT},output_tokens={run.num_tokens}"),
        *("--output", f"kind=json,path={run.file}", "--disable-console"),
    ]


def aiperf_command(run: ToolRun) -> list[str]:
    """`aiperf profile`; it writes a file of its own name into the folder."""
    return [
        *("profile", "--url", run.url, "--endpoint-type", "chat" if run.is_chat else "completions", "--streaming"),
        *("--model", "conform", "--tokenizer", str(run.tokenizer), "--use-server-token-count"),
        *("--concurrency", str(run.concurrency), "--request-count", str(run.num_requests)),
        *("--isl", _PROMPT, "--osl", str(run.num_tokens), "--request-timeout-seconds", f"{run.timeout_s:g}"),
        *("--ui", "none", "--output-artifact-dir", str(run.file.parent)),
    ]
