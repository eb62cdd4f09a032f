"""Is a load generator right? A server of known behaviour, an oracle that knows what it did, and the clients held to both.

In:   the names of clients and cases
Out:  for every client and case what it should have seen, what it said, and where they differ
Leaves out: how fast a client is (benchmarks)
Read first: script and the *_cases (what the server says), server and truth_host (a process of its own), oracle (the
right answers), adapters and tools (the clients), suite.
"""
