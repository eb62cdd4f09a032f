"""What does a real server deliver: one flow from an address and a workload to metrics and a run folder."""
