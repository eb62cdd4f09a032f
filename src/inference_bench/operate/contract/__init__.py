"""What does a server do with each part of a request? Its contract, exercised and not assumed.

In:   a Target
Out:  Contract: a row for each question, with what was seen and what somebody who moves to this server should do
Leaves out: how fast it answers (loadtest, verify), and what is served (manifest)
Read next by: report, cli.

`catalog` has every question; `wire` asks, `server` phrases requests, `reading` picks answers apart. One module a subject asks and
judges: `routes`, `limits`, `streaming`, `stops`, `structured`, `keywords`, `features`, `context`, `characters`, `cancelling`,
`template`, `mistakes`, `greedy`. `flow` runs them in order and keeps what was found when a server goes away.
"""
