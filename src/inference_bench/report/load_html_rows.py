"""Under which conditions did a load run come about? Names and values of its arrivals, its client and its surroundings.

In:   Shown and its parts
Out:  rows of texts
Leaves out: how they look (load_html)
Read next by: load_html.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inference_bench.arrival_proof import ArrivalProof
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.machine_identity import MachineIdentity
from inference_bench.report.load_page_input import Shown
from inference_bench.report.load_page_words import CLOSED, NO_DOUBT, in_flight_said, worst_bound
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)
from inference_bench.workload import ClosedLoop, Workload, summarise_arrivals


def workload_words(workload: Workload, num_measured: int) -> str:
    """How requests were sent, how many of them count, and how long they are."""
    arrival, requests = workload.arrival, workload.requests
    if isinstance(arrival, ClosedLoop):
        how = f"closed loop of {arrival.concurrency}"
        how += f", {format_seconds(arrival.think_s)} of thinking" if arrival.think_s else ""
    else:
        rate = summarise_arrivals(arrival)
        asked = rate.realised_rate if rate.nominal_rate is None else rate.nominal_rate
        how = f"open loop, {rate.process}, {format_number(asked)} requests/s"
    return (
        f"{how}; {format_count(num_measured)} measured requests of {_lengths(requests.prompt_tokens)} prompt and "
        f"{_lengths(requests.output_tokens)} output tokens"
    )


def workload_kind(workload: Workload) -> str:
    """How requests come, whatever the rate, and how long they are."""
    arrival, requests = workload.arrival, workload.requests
    how = CLOSED if isinstance(arrival, ClosedLoop) else f"{summarise_arrivals(arrival).process} arrivals"
    return f"{how}; {_lengths(requests.prompt_tokens)} prompt and {_lengths(requests.output_tokens)} output tokens"


def _lengths(lengths: Sequence[int]) -> str:
    low, high = min(lengths), max(lengths)
    if low == high:
        return format_count(low)
    return f"{format_count(low)} to {format_count(high)} (mean {format_number(sum(lengths) / len(lengths))})"


def client_rows(run: Shown) -> Iterator[tuple[str, str]]:
    """What the client says about itself."""
    client, floor, pauses, worst = run.client, run.floor, run.client["gc"], worst_bound(run.client)
    is_kernel = client["stamp_source"] == StampSource.KERNEL.value
    delays = (format_seconds(client[name]) for name in ("read_delay_p50_s", "read_delay_p99_s"))
    yield (
        "stamps",
        "the kernel's, when bytes reached this machine" if is_kernel else "this program's own, once it had read",
    )
    yield "chunks without a stamp of the kernel", format_fraction(client["user_stamped_fraction"])
    yield "chunks that share a stamp", format_fraction(client["censored_fraction"])
    yield "read after the stamp, p50 and p99", ", ".join(delays)
    yield "sent after its plan, p99", format_seconds(client["send_delay_p99_s"])
    yield "event loop late, p99", format_seconds(client["loop_lag_p99_s"])
    yield "garbage collections", f"{format_count(pauses['count'])}, the longest {format_seconds(pauses['longest_s'])}"
    yield "processor time", f"{format_fraction(client['cpu_share'])} of a core"
    yield "floor of TTFT, against a server that does nothing", format_seconds(floor.ttft_s)
    yield "processor time a chunk", format_seconds(floor.chunk_cpu_s)
    if worst is not None:
        yield "largest error bound", f"{format_fraction(worst[1], 2)}, {worst[0]}" if worst[1] else NO_DOUBT


def proof_rows(proof: ArrivalProof) -> Iterator[tuple[str, str]]:
    """What the verdict on the arrivals rests on."""
    yield "verdict", str(proof.verdict)
    yield "process", proof.process
    is_closed = proof.process.startswith(CLOSED)
    if not is_closed:
        yield (
            "rate",
            f"{format_number(proof.realised_rate)} requests/s sent, {format_number(proof.asked_rate)} asked for",
        )
    if proof.lateness is not None:
        late = proof.lateness
        times = (format_seconds(value) for value in (late.p50_s, late.p99_s, late.max_s))
        yield "sent after its plan, p50, p99 and most", ", ".join(times)
        yield "drift", format_fraction(None if late.drift_fraction is None else round(late.drift_fraction, 6))
    if is_closed:
        yield "in flight", in_flight_said(proof)
    elif (here := proof.concurrency) is not None:
        yield "in flight, mean and most", f"{format_number(here.mean)}, {format_count(here.peak)}"
    for name, fit in (("plan", proof.plan_fit), ("sends", proof.send_fit)):
        if fit is not None:
            values = (
                f"Kolmogorov-Smirnov {format_number(fit.ks, 2)}, rate {format_number(fit.rate, 2)}, "
                f"dispersion {format_number(fit.dispersion, 2)} (index {format_number(fit.dispersion_index)}), "
                f"repeats {format_number(fit.repeats, 2)}, shortest {format_number(fit.shortest, 2)}"
            )
            yield f"{name} against the process, p-values", values
    yield from (("not judged", note) for note in proof.notes)


def condition_rows(run: Shown) -> Iterator[tuple[str, str]]:
    """On what, with what, and from what seed."""
    workload = run.workload
    yield "server", run.target
    yield "model it names", run.model or NOT_AVAILABLE
    yield "route", run.endpoint
    yield "workload", f"{workload.name}: {workload_words(workload, run.metrics.requests.sent)}"
    yield "seed", str(workload.seed)
    yield from machine_rows(run.machine)
    yield "raw samples", str(run.run_dir)


def machine_rows(machine: MachineIdentity) -> Iterator[tuple[str, str]]:
    """Where this client ran."""
    yield "client machine", f"{machine.cpu_model or 'unnamed processor'}, {machine.architecture}, {machine.system}"
    yield "cores it may use", format_count(machine.num_usable_cores)
    yield "memory", format_bytes_binary(machine.memory_bytes)
    yield "load average before", format_number(machine.load_average_1min)
