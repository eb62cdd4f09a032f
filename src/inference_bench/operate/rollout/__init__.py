"""Is the new version fit to take over? Real arrivals recorded without text, replayed against it; a suite of known answers.

In:   run folders or traces; the address of a second server; a suite of prompts with the answers that are expected
Out:  a trace that `load` reads; a shadow run; a suite's outcome
Leaves out: the verdict, canary against baseline (compare_runs)
Read next by: compare_runs, report, cli.

In order: `recorder` (one's own service as a trace), `replay` (a run or a trace as a schedule), `same_server` (never the primary),
`shadow` (the schedule sent), `suite_file`, `suite_outcome` and `suite` (known answers).
"""
