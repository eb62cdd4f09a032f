"""Real servers: start, wait until the model answers, identify, read their own figures, stop.

In order: `base` (what every server offers), `answers` (what one says over HTTP, read without believing it), `attach` (which
engine is it; `llama_cpp_report`, `vllm_report`, `sglang_report`), `process` and `keeper` (nothing outlives this program),
`startup` (until a token comes back), `llama_cpp`, `vllm`, `sglang` (one each; their logs in `..._log`), `start` (any by name).
"""
