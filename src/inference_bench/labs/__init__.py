"""What does a real model do here? Six experiments on its own weights, each with the check that would catch it being wrong.

In:   a LabSettings and what one lab asks besides
Out:  one lab's typed result: a LabHead, its figures, and its Checks
Leaves out: servers and their schedulers (verify, loadtest), except where a lab holds one of its figures against one
Read next by: charts, report, cli.

Shared, in the order of reading: `settings` (what is asked), `subject` (which model, and whether it fits), `model` (loading it),
`cached_network` (its cache, which can be rolled back), `text` and `windows` (what it reads), `perplexity`, `logits`, `session`
(who measured what, where, when), `checks`. Then one package a lab, each with `result` (what came out, without PyTorch), `flow` (the
order of it), and a module for each thing it does: `machine`, `cache`, `quantise`, `speculate`, `batch`, `grammar`.

Everything named `result`, and `settings`, `checks` and `head`, uses only the standard library.
"""
