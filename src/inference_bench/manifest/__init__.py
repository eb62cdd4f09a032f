"""What exactly is served? Every component by hash, what it is run by and how, in one record with one digest.

In:   model files, an engine's identity and figures, a server's own answers
Out:  Manifest; what differs between two; what a running server says against one
Leaves out: whether it works (operate) and how fast it is (loadtest, verify)
Read next by: loadtest, verify, operate, report, cli.
"""
