"""Is what is served known, well, and safe to fail? What people put in front of any OpenAI-compatible server, and what proves it.

In:   addresses of servers, run folders, a person's objectives
Out:  typed results: a contract that was exercised, a watch, a client's answers, a drill's table, a ledger, a rollout's verdict
Leaves out: what is served, by hash (manifest); how fast it is (loadtest, verify)
Read next by: report, cli.

`answers` is what the others share: one request, every attempt at it, and who answered. Then one package each: `contract` (check),
`watch`, `client`, `drill`, `ledger`, `rollout`.
"""
