"""What a token costs: paced, as a server sends them, and as fast as a server can."""

from __future__ import annotations

from statistics import median

from inference_bench.errors import MeasurementError
from load_parts.clients import OWN, Client, Work, all_clients, cost_of
from load_parts.findings import Finding, Plan, at_least, at_most, show_table
from load_parts.truth import Truth

STREAMS, TOKENS, FEW, MANY = 64, 256, 64, 320
FIREHOSE_FEW, FIREHOSE_MANY = 256, 2048
PACE = "paced"  # its own numbers; some tools split addresses at commas
SLOW_ROUNDS = 2  # of a peer that takes long to start
TARGET_US, TARGET_PER_CPU_S = 26.0, 200_000.0
# peer, how many times our cost it has at least to have
PEERS = (("sglang-rs", 1 / 0.9), ("vllm", 4.0), ("aiperf", 10.0), ("guidellm", 10.0))


def per_token_s(client: Client, url: str, few: int, many: int) -> float:
    """Processor time of a long run less that of a short one, over the tokens between."""
    costs = [cost_of(client, Work(url, number, TOKENS, STREAMS)).cpu_s for number in (few, many)]
    return (costs[1] - costs[0]) / (TOKENS * (many - few))


def measure_paced(plan: Plan) -> list[Finding]:
    """Every client in turn, round after round; medians."""
    print(
        f"paced: {STREAMS} streams of {TOKENS} tokens every 10 ms; processor time of {MANY} requests less that of {FEW}"
    )
    with Truth() as truth:
        print(f"  the server runs at {truth.priority} priority")
        found = _rounds(plan, truth.url(PACE), FEW, MANY)
    own_s = found[OWN]
    findings = [at_most("processor time a paced token", own_s * 1e6, TARGET_US, "µs")]
    for name, least in PEERS:
        what, target = f"{name}'s cost over ours, paced", f"at least {least:.3g}"
        if name in found:
            ratio = found[name] / own_s
            findings.append(Finding(what, target, f"{ratio:.2f}", ratio >= least))
        else:
            findings.append(Finding(what, target, "left out", None))
    return findings


def measure_firehose(plan: Plan) -> list[Finding]:
    """The same as fast as the server sends."""
    print(
        f"firehose: {STREAMS} streams as fast as they come; processor time of {FIREHOSE_MANY} requests less that of {FIREHOSE_FEW}"
    )
    with Truth(real_time=False) as truth:
        found = _rounds(plan, truth.url("firehose"), FIREHOSE_FEW, FIREHOSE_MANY)
    return [at_least("tokens a CPU second, firehose", 1 / found[OWN], TARGET_PER_CPU_S, "tokens")]


def _rounds(plan: Plan, url: str, few: int, many: int) -> dict[str, float]:
    """Processor time a token of every client, the median of its rounds; those left out are said."""
    chosen = [each for each in all_clients() if not plan.peers or each.name in (OWN, *plan.peers)]
    left_out = {each.name: each.absent for each in chosen if each.absent is not None}
    costs: dict[str, list[float]] = {each.name: [] for each in chosen}
    for number in range(plan.rounds):
        for client in chosen:
            if client.name in left_out or (client.is_slow and number >= SLOW_ROUNDS):
                continue
            try:
                if client.is_slow and not number:
                    cost_of(client, Work(url, few, TOKENS, STREAMS))  # files and caches are warm from here on
                costs[client.name].append(per_token_s(client, url, few, many))
            except MeasurementError as error:
                left_out[client.name] = str(error)
    _show({name: values for name, values in costs.items() if name not in left_out})
    for name, why in left_out.items():
        print(f"  left out: {name}, {why}")
    return {name: median(values) for name, values in costs.items() if name not in left_out}


def _show(costs: dict[str, list[float]]) -> None:
    own_s = median(costs[OWN])
    rows = []
    for name, values in costs.items():
        cost_s = median(values)
        rate = f"{1 / cost_s:,.0f}" if cost_s > 0 else "n/a"
        each_us = ", ".join(f"{value * 1e6:.1f}" for value in values)
        rows.append((name, f"{cost_s * 1e6:.1f}", rate, f"{cost_s / own_s:.2f}", each_us))
    show_table(("client", "µs a token", "tokens a CPU s", "× ours", "each round"), rows)
