"""What changed between two runs of the same work, and may the second take over? Another engine, version, setting or machine.

In order: `side` (a run folder as one side), `same_work` (why two runs must not be compared), `differences` (figure
by figure, with intervals), `flow` (all of it). For a verdict: `rules` (as data), `pooled` (which requests), `resampling` and
`proportions` (intervals), `evidence` (each rule), `decide` (promote, hold or roll back); `shadow` (a replay beside its recording).
"""
