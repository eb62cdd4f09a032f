"""Does speculative decoding keep its output, and what does it gain? In the order of reading:

`request` (what is asked), `result` (what came out), `prompts` (what is decoded), `drafts` (who proposes: `lookup`, `early_exit`,
a model whose `vocabulary` is the target's), `greedy` (the loop), `planted` (a cache that is rolled back wrongly), `compare` (equal,
a near tie, or a fault), `costs` (c and v), `account` (predicted against measured, and why they differ), `sampling` and
`stochastic` (the same with a temperature), `server` (an engine's own option, off and on), `checks`, `flow` (the order of it).
"""
