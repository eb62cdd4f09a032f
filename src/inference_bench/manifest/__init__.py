"""What exactly is served? Every component by hash, what it is run by and how, in one record with one digest.

In:   model files, an engine's identity and figures, a server's own answers
Out:  Manifest; what differs between two; what a running server says against one
Leaves out: whether it works (operate) and how fast it is (loadtest, verify)
Read next by: loadtest, verify, operate, report, cli.

In this order: `components` (the record and its digest), `canonical` (the bytes that are hashed), `store` (the file); `folder` and
`hashing` (files), `from_files`, `from_gguf`, `lineage`, `adapters` and `from_server` (what they say), `conversation` (a template as
token ids), `create`, `compare` and `check` (the three questions), `run` (in a run folder), `outputs` (of each answer), `export`.
"""
