"""Do the failure paths work? Break real servers on purpose, ask them through the resilient client, and count what came of it.

In:   two embedded servers that are started here, or somebody's own test servers
Out:  DrillResult: for each scenario what was sent, completed, lost, repeated or wrong, how soon the fault was seen and how soon it was over
Leaves out: the rules that are exercised (client); tests of speed (loadtest)
Read next by: report, cli.

In order: `results` (what is found out), `faults` (how a server can fail), `wire` and `proxy` (it fails so, and what it said is written
down), `servers` (processes that can be killed and started again), `traffic` (requests through the client), `accounting` (the client's
account held to the proxy's), `baseline` (what an undisturbed server says, and how fast), `scenarios` (the list), `stage` (one of them is
played), `flow` (all of them), `soak` (random kills under load), `isolation` (does one tenant's prefix speed up another's?).
"""
