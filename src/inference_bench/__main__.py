"""`python -m inference_bench` is the command line."""

from inference_bench.cli.main import entry_point

entry_point()
