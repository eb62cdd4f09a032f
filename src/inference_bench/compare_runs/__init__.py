"""What changed between two runs of the same work, and may the second take over? Another engine, version, setting or machine.

In order: `side` (a run folder as one side), `same_work` (why two runs must not be compared), `resampling` (intervals of figures),
`differences` (figure by figure), `flow` (all of it). For a verdict: `rules` (as data), `pooled` (which requests), `proportions`
(intervals of shares), `evidence` (each rule), `decide` (promote, hold or roll back); `shadow` (a replay beside its recording).
"""
