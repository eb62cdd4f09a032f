"""What was paid for, what was computed, and what did a user get? A recorder for a service, and the account of what it and runs wrote.

In:   Answers, as they end; folders of recorders and of runs; prices
Out:  files of one line a request; Ledger; the same requests as CSV, Parquet or a DuckDB file
Leaves out: prompts, answers, keys and addresses (docs/privacy.md); what a table looks like (report.ledger_report)
Read next by: report, cli, and a service that serves requests.

In order: `entry` (one request), `names` (which words are let in), `recorder` (writes), `content_log` (text, only where it was asked for),
`fork_lock` (a child of a fork waits for nobody), `lines` (reads what recorders wrote), `run_folders` (reads runs), `busy` (the union
of times), `repeats` (ids that come again), `totals` (sums), `money` (prices), `flow` (all of it), `export`.
"""

from inference_bench.operate.ledger.content_log import Content, ContentLog, purge_content
from inference_bench.operate.ledger.recorder import Recorder

__all__ = ["Content", "ContentLog", "Recorder", "purge_content"]
