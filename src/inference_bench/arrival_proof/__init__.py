"""Did the requests arrive as they were asked to: how a run's own sends prove its arrivals.

In order: `fit_tests` (the statistics), `asked` (what a process says of each gap), `concurrency` (how many at once),
`lateness` (how late this client was), `proof` (all of it, and the verdict); and `stability` (did the server keep up).
"""

from __future__ import annotations

from inference_bench.arrival_proof.concurrency import Concurrency, realised_concurrency
from inference_bench.arrival_proof.proof import ArrivalProof, Verdict, prove_arrivals

__all__ = ["ArrivalProof", "Concurrency", "Verdict", "prove_arrivals", "realised_concurrency"]
