"""What has to hold before anything here is believed, and does it?

In:   the parts of a CacheResult
Out:  Checks
Leaves out: times, which are never a check
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inference_bench.labs.cache.faults import Fault
from inference_bench.labs.cache.result import (
    MODEL,
    TOY,
    BoundaryCase,
    Branch,
    CacheBytes,
    PathComparison,
    PrefixReuse,
    StoreRun,
)
from inference_bench.labs.checks import Check
from inference_bench.units import format_count, format_number


def within(name: str, error: float, tolerance: float) -> Check:
    """Logits that may differ by rounding alone."""
    return Check(name, error <= tolerance, f"logits off by {_said(error)}", f"at most {_said(tolerance)}")


def beyond(name: str, least: float, tolerance: float) -> Check:
    """Logits that must differ by more than rounding, or what was planted was not seen."""
    return Check(name, least > tolerance, f"logits off by {_said(least)}", f"above {_said(tolerance)}")


def check_sizes(sizes: Sequence[CacheBytes], toy_positions: int, toy_bytes: int) -> Iterator[Check]:
    """The toy's size is a known number; every other one is the formula's."""
    for size in sizes:
        found = f"{format_count(size.measured_bytes)} B at {format_count(size.num_positions)} positions"
        if size.subject == TOY:
            is_known = (size.num_positions, size.measured_bytes) == (toy_positions, toy_bytes)
            allowed = f"{format_count(toy_bytes)} B at {format_count(toy_positions)} positions"
            yield Check("toy: bytes as known", is_known, found, allowed)
        expected = size.num_prompt_tokens + size.num_emitted - 1
        yield Check(
            f"{size.subject}: bytes = formula",
            size.measured_bytes == size.formula_bytes and size.num_positions == expected,
            found,
            f"{format_count(size.formula_bytes)} B at {format_count(expected)} positions",
        )


def check_paths(comparisons: Sequence[PathComparison], tolerance: float) -> Iterator[Check]:
    """Sound paths agree; every planted fault shows, on every prompt."""
    for subject in (TOY, MODEL):
        sound = [each for each in comparisons if each.subject == subject and each.fault is None]
        yield within(f"{subject}: logits as recomputed", max(each.max_logit_error for each in sound), tolerance)
        yield _tokens_equal(subject, sound, tolerance)
    for fault in Fault:
        planted = [each for each in comparisons if each.fault is fault]
        for subject in (TOY, MODEL):
            errors = [each.max_logit_error for each in planted if each.subject == subject]
            if errors:
                yield beyond(f"{subject}: {fault} is seen", min(errors), tolerance)


def _tokens_equal(subject: str, sound: Sequence[PathComparison], tolerance: float) -> Check:
    """The same tokens, or a parting where the two best logits lie within what rounding moves both by."""
    parted = [each for each in sound if each.tokens_part]
    near = [each for each in parted if each.top_two_gap is not None and each.top_two_gap <= 2 * tolerance]
    equal = sum(each.num_equal_tokens for each in sound)
    said = f"{format_count(equal)} of {format_count(sum(each.num_emitted for each in sound))} equal"
    if parted:
        gap = max(each.top_two_gap or 0.0 for each in parted)
        said += f", parted at a gap of {_said(gap)}"
    return Check(
        f"{subject}: tokens as recomputed",
        len(near) == len(parted),
        said,
        f"all, or a tie within {_said(2 * tolerance)}",
    )


def check_stores(runs: Sequence[StoreRun]) -> Iterator[Check]:
    """Bytes copied are counted from the tensors, and known by formula."""
    for run in runs:
        yield Check(
            f"toy: bytes written {run.store}",
            run.copied_bytes == run.formula_copied_bytes,
            f"{format_count(run.copied_bytes)} B",
            f"{format_count(run.formula_copied_bytes)} B",
        )


def check_reuse(
    reuse: PrefixReuse,
    branches: Sequence[Branch],
    is_untouched: bool,
    boundaries: Sequence[BoundaryCase],
    tolerance: float,
) -> Iterator[Check]:
    """Warm equals cold, copies are their own, a shared cache goes wrong, and only what is common may be reused."""
    yield within("warm = cold", reuse.max_logit_error, tolerance)
    own = [branch for branch in branches if not branch.is_shared]
    yield within("branches of copies = cold", max(branch.max_logit_error for branch in own), tolerance)
    yield Check(
        "prefix unchanged by its copies",
        is_untouched,
        "the same bits" if is_untouched else "changed",
        "the same bits",
    )
    shared = [branch.max_logit_error for branch in branches if branch.is_shared]
    yield beyond("a shared cache goes wrong", min(shared, default=0.0), tolerance)
    yield within("reused to the boundary = cold", max(case.reused_logit_error for case in boundaries), tolerance)


def _said(value: float) -> str:
    return format_number(value, 2)
