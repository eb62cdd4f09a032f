"""The referee convicts runs that cannot be and says why, and acquits every honest one."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from random import Random

import pytest

from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.load import known_loaded_model
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.referee import Cause, Measure, Refereed, Subject, Verdict, referee, subject_for
from referee.runs import Server, merged, shares, streams, subject
from shapes import HERE

# grouped queries, latents, sliding windows, recurrent layers with experts, experts alone
PLACES = (
    ("Meta-Llama-3.1-8B", "H100 SXM5 80GB", 1),
    ("DeepSeek-V3", "H200 SXM 141GB", 8),
    ("gemma-3-27b-it", "A100 SXM4 80GB", 2),
    ("Qwen3-Next-80B-A3B-Instruct", "H100 SXM5 80GB", 4),
    ("Qwen3-30B-A3B", "RTX 4090", 2),
    ("Llama-4-Scout-17B-16E-Instruct", "B200", 2),
)
LLAMA = PLACES[0]


def llama(
    seed: int = 0, count: int = 12, bandwidth: float = 0.7, **changes: object
) -> tuple[Subject, list[RequestRecord]]:
    """An honest run at a concurrency of about one, at 70 % of the bandwidth and half of the compute."""
    of, rng = subject(*LLAMA[:2]), Random(seed)
    asked = streams(rng, count, (2000, 4000), (40, 80), spread_s=count * 1.0)
    return of, Server(shares(of, bandwidth, 0.5), **changes).run(asked, rng)  # type: ignore[arg-type]


def only(found: Refereed) -> Cause:
    assert found.verdict is Verdict.ABOVE
    assert len(found.flags) == 1, [(flag.cause, flag.evidence) for flag in found.flags]
    return found.flags[0].cause


def test_a_bound_is_the_one_worked_out_by_hand() -> None:
    # Llama 3.1 8B in bf16: all but the input table is read, 2 bytes each, and 131072 bytes of cache a position
    read = 2 * (8_030_261_248 - 128_256 * 4096)
    of = subject(*LLAMA[:2])
    step_s = [(read + 2 * 4096 + 131_072 * context) / 3.35e12 for context in (1001, 1002)]
    # a prompt of 1000: 2 FLOPs for each matrix weight, the head once, and 4·32·128 for each of 500500 pairs a layer
    flops = 2 * (8_030_261_248 - 2 * 128_256 * 4096) * 1000 + 2 * 128_256 * 4096 + 32 * 4 * 4096 * 500_500
    record = RequestRecord(
        "r", Origin.MEASURED, Stage.MEASURE, RequestStatus.COMPLETED, 0.0, 0.0, 1.0, (0.5, 0.51, 0.52),
        prompt_tokens=1000, output_tokens=3, token_count_source=TokenCountSource.SERVER_USAGE,
    )  # fmt: skip
    (only_class,) = referee([record], of).classes
    assert only_class.least_tpot_s == pytest.approx(sum(step_s) / 2, rel=1e-4)
    assert only_class.shortest_tpot_s == pytest.approx(0.01)
    assert only_class.least_ttft_s == pytest.approx(flops / 989.4e12, rel=0.02)  # priced at a length up to 1.6 % below
    assert (only_class.prompt_tokens, only_class.output_tokens) == ((1000, 1000), (3, 3))
    found = referee([record], of)
    assert found.verdict is Verdict.POSSIBLE
    assert found.mbu is not None
    assert found.mbu.p50 == pytest.approx(sum(step_s) / 0.02, rel=1e-3)
    assert found.mfu is not None
    assert found.mfu.p50 == pytest.approx(flops / 989.4e12 / 0.5, rel=0.02)


def test_one_token_of_a_mixture_reads_the_experts_it_chooses_and_no_more() -> None:
    # 128 experts of which 8 are chosen, in 48 layers: 2048 · 768 · 3 values each
    of = subject("Qwen3-30B-A3B", "H100 SXM5 80GB")
    expert = 48 * 3 * 2048 * 768 * 2
    record = llama()[1][0]
    (found,) = referee([replace(record, chunk_times_s=(1.0, 2.0), output_tokens=2)], of).classes
    everything = of.served.weights.read_per_step
    assert found.least_tpot_s is not None
    context = 131_072 * 0 + 48 * 2 * 4 * 128 * 2 * ((record.prompt_tokens or 0) + 1)
    assert found.least_tpot_s * 3.35e12 == pytest.approx(everything - 120 * expert + context, rel=1e-3)


@pytest.mark.parametrize(("model", "machine", "devices"), PLACES)
def test_no_honest_run_is_flagged_whatever_the_batch(model: str, machine: str, devices: int) -> None:
    of = subject(model, machine, devices=devices)
    num_flagged, num_requests = 0, 0
    for seed in range(167):  # over all models 1002 runs
        rng = Random(f"{model} {seed}")
        asked = streams(
            rng,
            rng.choice((1, 2, 4, 8)),
            rng.choice(((1, 60), (100, 600), (2000, 9000))),
            rng.choice(((1, 6), (8, 24))),
            spread_s=rng.choice((0.0, 0.3)),
            cached=rng.choice((0.0, 0.0, 0.9)),
        )
        server = Server(shares(of, rng.uniform(0.4, 1.0), rng.uniform(0.3, 1.0)), rng.choice((256, 512, 8192)))
        records = server.run(asked, rng)
        if rng.random() < 0.4:
            records = [merged(record, rng, 4, rng.random() < 0.5) for record in records]
        found = referee(records, of)
        num_flagged += found.verdict is not Verdict.POSSIBLE
        num_requests += found.num_judged
        assert found.num_judged == len(asked)
        assert found.run is None or found.run.factor <= 1.0
    assert num_flagged == 0
    assert num_requests > 300


def test_usage_credited_as_the_requested_tokens_is_caught() -> None:
    of, records = llama()
    rng = Random(1)
    credited = []
    for record in records:  # each stops early, and is credited with 2 to 4 times what came
        asked = len(record.chunk_times_s) * rng.randint(2, 4) + 3
        credited.append(replace(record, output_tokens=asked, requested_output_tokens=asked, finish_reason="stop"))
    assert only(referee(credited, of)) is Cause.REQUESTED_COUNT
    silent = [replace(r, finish_reason=None, token_count_source=TokenCountSource.UNKNOWN) for r in credited]
    found = referee(silent, of)
    assert only(found) is Cause.REQUESTED_COUNT
    assert found.flags[0].num_requests == found.num_above >= len(records) - 1
    assert "asked for" in " ".join(found.flags[0].evidence)


def test_tokens_counted_twice_are_caught() -> None:
    of, records = llama()
    twice = [
        replace(record, output_tokens=2 * (record.output_tokens or 0), requested_output_tokens=None)
        for record in records
    ]
    found = referee(twice, of)
    assert only(found) is Cause.COUNTED_TWICE
    assert Cause.SPECULATION in found.flags[0].alternatives


def test_a_count_that_its_own_chunks_contradict_is_caught() -> None:
    of, records = llama()
    odd = [
        replace(r, output_tokens=3 * len(r.chunk_times_s), chunk_tokens=(1,) * len(r.chunk_times_s)) for r in records
    ]
    assert only(referee(odd, of)) is Cause.WRONG_COUNT


def test_a_warm_prefix_cache_is_caught_where_the_server_is_silent_and_noted_where_it_says_so() -> None:
    of, rng = subject(*LLAMA[:2]), Random(3)
    asked = streams(rng, 10, (6000, 8000), (20, 30), spread_s=20.0)
    for one in asked:
        one.cached_tokens = one.prompt_tokens - 64
    server = Server(shares(of, 0.7, 0.5), admits_cache=False)
    silent = server.run(asked, rng)
    found = referee(silent, of)
    assert only(found) is Cause.WARM_PREFIX_CACHE
    assert set(found.flags[0].measures) <= {Measure.TTFT, Measure.E2E}
    assert found.num_above == 10
    honest = [replace(r, cached_prompt_tokens=(r.prompt_tokens or 0) - 64) for r in silent]
    told = referee(honest, of)
    assert told.verdict is Verdict.POSSIBLE
    assert "prompt tokens of 10 requests came from its cache" in told.notes[0]


def test_a_first_token_that_comes_49_times_sooner_is_a_warm_cache() -> None:
    of, rng = subject(*LLAMA[:2]), Random(4)
    records = Server(shares(of, 0.8, 0.6)).run(streams(rng, 8, (16000, 20000), (12, 20), spread_s=30.0), rng)
    warm = []
    for record in records:
        first_s = record.chunk_times_s[0] - record.sent_s
        gained_s = first_s - first_s / 49
        times_s = tuple(time_s - gained_s for time_s in record.chunk_times_s)
        warm.append(replace(record, chunk_times_s=times_s, end_s=record.end_s - gained_s, cached_prompt_tokens=None))
    found = referee(warm, of)
    assert only(found) is Cause.WARM_PREFIX_CACHE
    assert found.num_above == 8


def test_a_chunk_before_any_token_could_be_is_not_taken_for_a_warm_cache() -> None:
    of, records = llama()
    early = [
        replace(r, chunk_times_s=(r.sent_s + 0.0002, *r.chunk_times_s), output_tokens=len(r.chunk_times_s) + 1)
        for r in records
    ]
    found = referee(early, of)
    assert only(found) is Cause.EARLY_CHUNK
    assert found.flags[0].measures == (Measure.TTFT,)


@pytest.mark.parametrize("format_name", ["fp8", "int4-g128"])
def test_weights_in_fewer_bits_than_declared_are_caught(format_name: str) -> None:
    of, rng = subject(*LLAMA[:2]), Random(5)
    smaller = of.served.weights.read_per_step / subject(*LLAMA[:2], format_name).served.weights.read_per_step
    server = Server(shares(of, 0.85, 0.4, format_name))
    found = referee(server.run(streams(rng, 8, (500, 900), (40, 60), spread_s=10.0), rng), of)
    assert only(found) is Cause.WRONG_FORMAT
    assert f"{of.served.weights.bits_per_weight:.3g}" in found.flags[0].evidence[1]
    assert found.flags[0].factor == pytest.approx(0.85 * smaller, rel=0.1)
    assert (
        referee(
            server.run(streams(rng, 8, (500, 900), (40, 60), spread_s=10.0), rng), subject(*LLAMA[:2], format_name)
        ).verdict
        is Verdict.POSSIBLE
    )


def test_a_faster_machine_than_declared_is_caught() -> None:
    slow, fast, rng = subject("Meta-Llama-3.1-8B", "A100 SXM4 80GB"), subject("Meta-Llama-3.1-8B", "B200"), Random(6)
    server = Server(shares(fast, 0.8, 0.7))
    records = server.run(streams(rng, 8, (6000, 9000), (40, 60), spread_s=10.0), rng)
    found = referee(records, slow)
    assert only(found) is Cause.FASTER_MACHINE
    assert set(found.flags[0].measures) == {Measure.TTFT, Measure.TPOT, Measure.E2E}
    assert referee(records, fast).verdict is Verdict.POSSIBLE


@pytest.mark.parametrize("says_tokens", [True, False])
def test_speculation_is_caught_and_told_from_a_count(says_tokens: bool) -> None:
    of, rng = subject(*LLAMA[:2]), Random(7)
    asked = streams(rng, 12, (1000, 2000), (60, 90), spread_s=15.0)
    records = Server(shares(of, 0.8, 0.5), draft=4).run(asked, rng)
    tokens = {one.index: tuple(one.tokens) for one in asked}
    if says_tokens:
        records = [replace(r, chunk_tokens=tokens[int(r.request_id[1:])]) for r in records]
    found = referee(records, of)
    assert only(found) is Cause.SPECULATION
    assert found.num_above > 8


def test_speculation_that_sends_each_token_in_an_event_of_its_own_is_seen_by_its_bursts() -> None:
    of, rng = subject(*LLAMA[:2]), Random(8)
    asked = streams(rng, 12, (1000, 2000), (60, 90), spread_s=15.0)
    apart = []
    for record, one in zip(Server(shares(of, 0.8, 0.5), draft=4).run(asked, rng), asked, strict=True):
        times_s = tuple(t + 1e-5 * i for t, count in zip(one.times_s, one.tokens, strict=True) for i in range(count))
        apart.append(replace(record, chunk_times_s=times_s))
    assert only(referee(apart, of)) is Cause.SPECULATION


def test_a_proxy_that_holds_tokens_back_raises_no_alarm() -> None:
    of, records = llama()
    held = []
    for record in records:
        flushes = [
            record.chunk_times_s[min(at // 20 * 20 + 19, len(record.chunk_times_s) - 1)]
            for at in range(len(record.chunk_times_s))
        ]
        held.append(replace(record, chunk_times_s=tuple(flushes)))
    assert referee(held, of).verdict is Verdict.POSSIBLE


def test_several_answers_to_a_prompt_share_its_steps() -> None:
    of, records = llama(bandwidth=0.9)
    both = [
        replace(
            record,
            chunk_times_s=tuple(time_s for time_s in record.chunk_times_s for _ in range(2)),
            output_tokens=2 * (record.output_tokens or 0),
        )
        for record in records
    ]
    assert referee(both, of, answers=2).verdict is Verdict.POSSIBLE
    assert only(referee(both, of)) is Cause.SPECULATION
    with pytest.raises(RequestError, match="at least 1"):
        referee(both, of, answers=0)


def test_a_stored_answer_is_not_a_computed_one() -> None:
    of, records = llama()
    stored = [
        replace(
            r,
            chunk_times_s=tuple(r.sent_s + 0.0003 + 1e-6 * at for at in range(50)),
            end_s=r.sent_s + 0.0005,
            output_tokens=50,
        )
        for r in records
    ]
    assert only(referee(stored, of)) is Cause.NOT_COMPUTED


def test_a_run_is_held_to_its_bound_where_each_request_is_possible() -> None:
    # 64 at once take about twice as long a step as one: tokens counted 1.5 times are possible for each, but not for all
    of, rng = subject("Meta-Llama-3.1-8B", "H100 SXM5 80GB"), Random(9)
    asked = streams(rng, 64, (8000, 8200), (60, 60))
    for one in asked:
        one.cached_tokens = one.prompt_tokens - 1
    records = Server(shares(of, 0.95, 0.9), chunk_tokens=1).run(asked, rng)
    honest = referee(records, of)
    assert honest.verdict is Verdict.POSSIBLE
    assert honest.run is not None
    assert 0.4 < honest.run.factor < 1.0
    assert honest.run.peak_in_flight == 64
    inflated = [replace(r, output_tokens=int(2.5 * (r.output_tokens or 0))) for r in records]
    found = referee(inflated, of)
    assert found.num_above == 0
    assert only(found) is Cause.WRONG_COUNT
    assert found.flags[0].measures == (Measure.RUN,)


def test_small_weights_that_fit_into_caches_are_not_called_a_wrong_format() -> None:
    of, rng = subject("SmolLM2-135M", "H100 SXM5 80GB"), Random(10)
    records = Server(shares(of, 1.0, 0.5), delay_s=1e-6).run(streams(rng, 4, (100, 200), (400, 500), spread_s=1.0), rng)
    quick = [
        replace(r, chunk_times_s=tuple(r.chunk_times_s[0] + (t - r.chunk_times_s[0]) * 0.5 for t in r.chunk_times_s))
        for r in records
    ]
    assert only(referee(quick, of, stamp_error_s=1e-5)) is Cause.ON_CHIP


def test_without_rates_or_requests_nothing_is_said() -> None:
    of, records = llama()
    bare = Subject(of.served, HardwareSpec("bare", None, None, {}, HERE))
    assert referee(records, bare).verdict is Verdict.UNKNOWN
    failed = [replace(record, status=RequestStatus.TRUNCATED) for record in records]
    assert referee(failed, of).verdict is Verdict.NOTHING
    assert referee([], of).verdict is Verdict.NOTHING
    with pytest.raises(RequestError, match="at least 1"):
        Subject(of.served, of.machine, 0)


def test_requests_without_counts_are_judged_by_what_is_known() -> None:
    of, records = llama()
    found = referee([replace(r, output_tokens=None, prompt_tokens=None) for r in records], of)
    assert found.verdict is Verdict.POSSIBLE
    assert found.mbu is None
    assert len(found.notes) == 2


def test_a_measured_ceiling_is_allowed_to_be_half_of_the_true_one() -> None:
    of, records = llama(bandwidth=1.0)
    half = replace(of.machine, bandwidth_bytes_per_s=of.machine.bandwidth_bytes_per_s / 1.8, origin=Origin.MEASURED)  # type: ignore[operator]
    assert referee(records, replace(of, machine=half)).verdict is Verdict.POSSIBLE
    assert referee(records, replace(of, machine=replace(half, origin=Origin.PUBLISHED))).verdict is Verdict.ABOVE


def test_the_result_is_json_and_names_what_was_judged() -> None:
    of, records = llama()
    told = json.loads(json.dumps(dataclasses.asdict(referee(records, of))))
    assert (told["model"], told["machine"], told["weights"]) == ("Meta-Llama-3.1-8B", "H100 SXM5 80GB", "bf16")
    assert told["num_judged"] == len(records)
    assert told["mbu"]["p50"] == pytest.approx(0.7, abs=0.05)


def test_a_subject_is_made_of_a_loaded_model_and_names_of_formats() -> None:
    made = subject_for(known_loaded_model("Meta-Llama-3.1-8B"), subject(*LLAMA[:2]).machine, "fp8", "fp8", 2)
    assert made.served.weights.format_name == "fp8"
    assert made.ceiling.bandwidth_bytes_per_s == 2 * 3.35e12
    assert (made.ceiling.peak_flops_per_s, made.ceiling.compute_format) == (2 * 1_978_900_000_000_000, "fp8")


def test_a_processor_whose_narrow_arithmetic_is_unknown_has_no_compute_bound() -> None:
    of = subject("SmolLM2-135M", "H100 SXM5 80GB", "q8_0")
    probed = HardwareSpec("here", None, 2e10, {"fp32": 1e11}, HERE, Origin.MEASURED)
    assert replace(of, machine=probed).ceiling.peak_flops_per_s is None
    assert (
        replace(of, machine=replace(probed, peak_flops_per_s={"fp32": 1e11, "int8": 4e11})).ceiling.peak_flops_per_s
        == 4e11
    )
    wide = subject("SmolLM2-135M", "H100 SXM5 80GB", "fp32")
    assert replace(wide, machine=probed).ceiling.peak_flops_per_s == 1e11
    assert of.ceiling.peak_flops_per_s == 1_978_900_000_000_000  # 8-bit weights may be computed with in 8 bits


def test_a_ceiling_that_is_not_known_is_named_with_what_to_do() -> None:
    of, records = llama()
    no_rate = dataclasses.replace(of, machine=dataclasses.replace(of.machine, peak_flops_per_s={}))
    (note,) = (note for note in referee(records, no_rate).notes if "known" in note)
    assert note == (
        f"of {of.machine.name} no compute rate for these weights is known: only its bandwidth binds; name a machine file with it"
    )
    here = dataclasses.replace(no_rate.machine, bandwidth_bytes_per_s=None, origin=Origin.MEASURED)
    (note,) = (note for note in referee(records, dataclasses.replace(of, machine=here)).notes if "neither" in note)
    assert note.endswith("; measure this machine with `probe`")
