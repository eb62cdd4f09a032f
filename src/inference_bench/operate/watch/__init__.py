"""Are the servers alive, are they ready, and have they room? Three questions, asked apart and again and again.

In:   addresses of model servers
Out:  a Round each interval, with one View a server; the same as Prometheus metrics; alert rules and a dashboard as files
Leaves out: what load they could take (loadtest, capacity), whether what they serve is right (check, manifest)
Read next by: report.watch_report, cli.

In order: `states` (the words and figures), `targets` (names and addresses), `fetch` (one question to a server), `page` (what its metrics
say), `history` (what they come to over a window), `evidence` (what one server has shown so far), `judge` (the three answers),
`observer` (asks one server), `flow` (asks them all), `exporter`, `rule_files`.
"""
