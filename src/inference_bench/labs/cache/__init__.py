"""The cache lab, in the order of reading: `request` (what is asked), `faults` (what is planted), `result` (what came out).

`toy` is a small decoder of our own, `stores` the two ways to keep its keys and values; `paths` generates with any model,
`toy_paths` and `model_paths` are the ways through the toy and the real model, cached, recomputed or broken; `compare` holds one
against the other. `growth` times both stores, `lengths` cached against uncached, `boundary` and `reuse` share a prefix.
`judge` makes the checks, `flow` is the order of it all.
"""
