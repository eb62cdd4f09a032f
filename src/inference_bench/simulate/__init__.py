"""What would happen: a scheduler serving a workload on a machine, step by step, before anybody rents one.

In:   Workload, ServerSetup (policy, limits, memory), StepTime (what a step costs)
Out:  Outcome of a run, and from it rows, capacity within objectives, sweeps
Read next by: calibrate, report, cli.

Read in this order: settings, step_time, sequence, scheduler, server (the readable loop), batches, outcome, run; then kernel (the same
in arrays), kv_blocks (shared prefixes), fleet (several servers), capacity.
"""
