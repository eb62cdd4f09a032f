"""Rounds made by hand."""

from __future__ import annotations

from dataclasses import replace

from inference_bench.operate.watch.states import Alive, Counts, Figures, Proof, Ready, Room, Round, View

FIGURES = Figures(
    age_s=0.5, window_s=60.0, running=8.0, waiting=12.0, cache_used_fraction=0.95, cache_headroom_tokens=800.0, free_requests=0.0,
    queue_growth_per_s=0.25, output_tokens_per_s=1234.5, prompt_tokens_per_s=99.0, preemptions_per_s=0.125, prefix_hit_fraction=0.5,
    ttft_mean_s=1.5,
)  # fmt: skip
WELL = View(
    name="big", base_url="http://127.0.0.1:8000", alive=Alive.YES, ready=Ready.YES, room=Room.SATURATED,
    reasons=("12 requests wait, and some did at every look",), engine="vLLM", version="0.33.0", model="m", figures=FIGURES,
    proof=Proof(3.0, 0.25), token_age_s=2.0, queue=(0.0, 3.0, 6.0, 12.0),
    counts=Counts(num_scrapes=40, num_scrape_failures=3, num_scrape_timeouts=2, num_probes=5, num_probe_failures=1, num_restarts=1),
)  # fmt: skip
DOWN = View("gone", "http://127.0.0.1:9", Alive.NO, Ready.NO, Room.UNKNOWN, ("no connection (connection refused)",))
UNSURE = View("unsure", "http://127.0.0.1:7", Alive.YES, Ready.UNKNOWN, Room.UNKNOWN)


def a_round(*views: View) -> Round:
    return Round(7, "2026-11-30T12:00:00.000+00:00", 14.0, views or (WELL, DOWN, UNSURE))


def named(view: View, name: str) -> View:
    return replace(view, name=name)
