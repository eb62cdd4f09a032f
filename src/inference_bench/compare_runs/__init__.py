"""What changed between two runs of the same work: another engine, version, setting or machine.

In order: `side` (a run folder as one side), `same_work` (why two runs must not be compared), `differences` (figure by
figure, with intervals), `flow` (all of it).
"""
