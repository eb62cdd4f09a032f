"""The parts of benchmarks/load_client.py: a server of known pace, the clients, and what each part measures."""
