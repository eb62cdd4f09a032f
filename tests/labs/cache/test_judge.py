"""Each check holds on a sound result, and does not on one where just that is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from inference_bench.labs.cache import judge
from inference_bench.labs.cache.faults import Fault
from inference_bench.labs.cache.result import MODEL, TOY, PathComparison, PrefixReuse, StoreRun
from inference_bench.labs.checks import Check, missed
from labs.cache.sample import TOLERANCE, boundaries, branches, comparison, planted, sizes

REUSE = PrefixReuse(128, 16, 0.5, 0.1, 0.01, 100, 1e-5)


def names(checks: Iterable[Check]) -> list[str]:
    return [check.name for check in missed(checks)]


def paths(*extra: PathComparison) -> list[str]:
    sound = (comparison(subject=TOY), comparison(subject=MODEL))
    return names(judge.check_paths((*sound, *planted(TOY), *planted(), *extra), TOLERANCE))


def test_the_toys_bytes_are_a_known_number() -> None:
    toy, model = sizes()
    assert names(judge.check_sizes((toy, model), 271, 555_008)) == []
    grown = replace(toy, num_emitted=257, num_positions=272, measured_bytes=557_056, formula_bytes=557_056)
    assert names(judge.check_sizes((grown, model), 271, 555_008)) == ["toy: bytes as known"]


def test_bytes_that_are_not_the_formulas_are_named() -> None:
    toy, model = sizes()
    assert names(judge.check_sizes((toy, replace(model, measured_bytes=1)), 271, 555_008)) == ["model: bytes = formula"]


def test_a_cache_that_holds_the_last_token_too_is_named() -> None:
    toy, model = sizes()
    fed = replace(model, num_positions=50)
    assert names(judge.check_sizes((toy, fed), 271, 555_008)) == ["model: bytes = formula"]


def test_sound_paths_and_faults_that_are_seen_pass() -> None:
    assert paths() == []


def test_logits_beyond_the_tolerance_are_named_and_just_within_it_not() -> None:
    assert paths(comparison(error=2.1e-4, over=3)) == ["model: logits as recomputed"]
    assert paths(comparison(error=2.0e-4)) == []


def test_tokens_may_part_only_where_rounding_explains_it() -> None:
    assert paths(comparison(equal=7, gap=3.9e-4)) == []
    assert paths(comparison(equal=7, gap=4.1e-4)) == ["model: tokens as recomputed"]


def test_a_fault_that_the_logits_do_not_show_is_named() -> None:
    unseen = comparison(Fault.ROTARY_STALE, error=1e-4)
    assert paths(unseen) == ["model: stale rotary is seen"]
    assert paths(replace(unseen, subject=TOY)) == ["toy: stale rotary is seen"]


def test_one_prompt_on_which_a_fault_is_not_seen_is_enough() -> None:
    assert paths(comparison(Fault.POSITION_OFF_BY_ONE, error=1e-4)) == ["model: position off by one is seen"]


def test_bytes_written_that_are_not_the_formulas_are_named() -> None:
    runs = [StoreRun("concatenating", 271, 0.1, 10, 10, 1), StoreRun("pre-allocated", 271, 0.1, 9, 10, 1)]
    assert names(judge.check_stores(runs)) == ["toy: bytes written pre-allocated"]


def test_reuse_is_right_cold_and_warm_apart_and_at_the_boundary() -> None:
    own, shared = branches()
    edges = boundaries()

    def told(
        reuse: PrefixReuse = REUSE, both: tuple = (own, shared), untouched: bool = True, cases: tuple = edges
    ) -> list[str]:  # type: ignore[type-arg]
        return names(judge.check_reuse(reuse, both, untouched, cases, TOLERANCE))

    assert told() == []
    assert told(reuse=replace(REUSE, max_logit_error=1e-3)) == ["warm = cold"]
    assert told(both=(replace(own, max_logit_error=1e-3), shared)) == ["branches of copies = cold"]
    assert told(untouched=False) == ["prefix unchanged by its copies"]
    assert told(both=(own, replace(shared, max_logit_error=1e-5))) == ["a shared cache goes wrong"]
    assert told(both=(own,)) == ["a shared cache goes wrong"]
    assert told(cases=(replace(edges[1], reused_logit_error=0.1),)) == ["reused to the boundary = cold"]
