"""What would another tool have printed of this very run: one recording, every definition.

In order: `samples` (what a request gives under each convention), `rules` (which tool means what by which word, and why
it differs), `recomputed` (all of it, from RequestRecords).
"""

from __future__ import annotations

from inference_bench.definitions.recomputed import Recomputed, recompute
from inference_bench.definitions.rules import METRICS, RULES, TOOLS

__all__ = ["METRICS", "RULES", "TOOLS", "Recomputed", "recompute"]
