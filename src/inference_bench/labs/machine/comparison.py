"""Do PyTorch and NumPy find the same ceilings here, and if not, what differs?

In:   LabProducts of both, the probe's ProbeResult, what each library says of itself
Out:  ceilings by library, pairs row by row, Agreements with their reasons; which rows lie above the roof
Leaves out: timing
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from inference_bench.labs.machine.result import (
    Agreement,
    LabCeilings,
    LabProduct,
    Library,
    LibraryIdentity,
    Orientation,
    ProductPair,
)
from inference_bench.measure.ceilings import BandwidthRow, ProbeResult, ProductRow, fastest_product, fastest_read
from inference_bench.units import format_fraction, format_number

BANDWIDTH_AGREES: Final = 0.15
PEAK_AGREES: Final = 0.25
_NOTED: Final = (
    0.07  # of a ratio that names a reason; two of them together stay below the least that is called a difference
)
AnyRow = TypeVar("AnyRow", BandwidthRow, ProductRow)


@dataclass(frozen=True, slots=True)
class Rows:
    """Everything that was timed in float32, and by whom."""

    products: Sequence[LabProduct]
    one_thread: Sequence[LabProduct]
    probe: ProbeResult
    libraries: Sequence[LibraryIdentity]
    num_threads: int

    def of(self, library: Library) -> list[LabProduct]:
        """The rows of one library on all threads."""
        return [each for each in self.products if each.library is library]


def fastest(row: AnyRow) -> AnyRow:
    """A row with the rate of its fastest value instead of its median.

    Where:  other work on the machine only ever lowers a rate, so the fastest value is the nearest to what the machine can do; a median
            over two threads of which one was kept waiting is that of one thread
    """
    seconds = min(row.timing.values_s)
    gain = row.seconds / seconds
    if isinstance(row, ProductRow):
        row = replace(row, flops_per_s=row.flops_per_s * gain)
    return replace(row, seconds=seconds, bytes_per_s=row.bytes_per_s * gain)


def ceilings_of(products: Sequence[LabProduct]) -> LabCeilings:
    """Bandwidth from B = 1, peak from the fastest row of any B; of each row its fastest value."""
    at_best = [replace(each, row=fastest(each.row)) for each in products]
    read = max((each for each in at_best if each.row.batch == 1), key=lambda each: each.row.bytes_per_s)
    product = max(at_best, key=lambda each: each.row.flops_per_s)
    source = f"{_name(read)} at B = 1, {_name(product)} at B = {product.row.batch}"
    return LabCeilings(read.row.bytes_per_s, product.row.flops_per_s, "fp32", source)


def _name(product: LabProduct) -> str:
    return f"{product.library} {product.orientation}"


def highest(ceilings: Sequence[LabCeilings]) -> LabCeilings:
    """The higher of each, by whichever library: what this machine was seen to do at most."""
    read = max(ceilings, key=lambda each: each.bandwidth_bytes_per_s)
    product = max(ceilings, key=lambda each: each.peak_flops_per_s)
    source = read.source if read is product else f"bandwidth by {read.source}; peak by {product.source}"
    return LabCeilings(read.bandwidth_bytes_per_s, product.peak_flops_per_s, "fp32", source)


def probe_ceilings(probe: ProbeResult) -> LabCeilings:
    """The ceilings of a probe, by the same rule: the fastest value of its rows, where the probe itself tells medians."""
    read, product = (
        fastest_read(list(map(fastest, probe.bandwidth_rows))),
        fastest_product(list(map(fastest, probe.rows))),
    )
    source = f"probe: {read.method}, product at B = {product.batch}"
    return LabCeilings(read.bytes_per_s, product.flops_per_s, "fp32", source, probe.elapsed_s)


def mark_above(products: Iterable[LabProduct], ceilings: LabCeilings) -> tuple[LabProduct, ...]:
    """Each row with how far it lies above the roof at its intensity; nothing is clamped to it.

    Formula:  rate / min(P_peak, I·BW) - 1, where that is above 0; beyond its spread where it is larger than that
    """
    marked = []
    for each in products:
        roof = ceilings.roof.attainable_flops_per_s(each.row.intensity_flops_per_byte)
        above = None if roof is None else each.row.flops_per_s / roof - 1
        if above is None or above <= 0:
            marked.append(each)
            continue
        is_beyond = above > (each.row.spread_fraction or 0.0)
        marked.append(replace(each, above_roof_fraction=above, is_above_by_more_than_spread=is_beyond))
    return tuple(marked)


def pair_rows(rows: Rows) -> tuple[ProductPair, ...]:
    """Row by row: each library's faster orientation at each B, and the probe's own row."""
    probe = {row.batch: row for row in rows.probe.rows}
    pairs = []
    for batch in sorted({each.row.batch for each in rows.products}):
        mine, theirs = (_fastest(rows.of(library), batch) for library in Library)
        allowed = BANDWIDTH_AGREES if batch == 1 else PEAK_AGREES
        ratio = mine.flops_per_s / theirs.flops_per_s
        spreads = [row.spread_fraction for row in (mine, theirs) if row.spread_fraction is not None]
        pairs.append(
            ProductPair(
                batch=batch,
                torch_s=mine.seconds,
                numpy_s=theirs.seconds,
                probe_s=_same_size(probe.get(batch), mine),
                torch_flops_per_s=mine.flops_per_s,
                numpy_flops_per_s=theirs.flops_per_s,
                torch_over_numpy=ratio,
                allowed_fraction=allowed,
                is_within=_is_within(ratio, allowed),
                noise_fraction=sum(spreads) if spreads else None,
            )
        )
    return tuple(pairs)


def _same_size(probed: ProductRow | None, mine: ProductRow) -> float | None:
    """The probe's time where it multiplied a matrix of the same size."""
    return probed.seconds if probed is not None and probed.counted_flops == mine.counted_flops else None


def _fastest(products: Iterable[LabProduct], batch: int) -> ProductRow:
    return max((each.row for each in products if each.row.batch == batch), key=lambda row: row.flops_per_s)


def _is_within(ratio: float, allowed: float) -> bool:
    """Whether the larger of two is at most so far above the smaller."""
    return max(ratio, 1 / ratio) <= 1 + allowed


def compare_ceilings(rows: Rows) -> tuple[Agreement, Agreement]:
    """Bandwidth and peak by both libraries and by the probe, and what explains each difference."""
    mine, theirs = (ceilings_of(rows.of(library)) for library in Library)
    probe = probe_ceilings(rows.probe)
    most = max(each.row.batch for each in rows.products)
    return (
        _agreement(
            rows, "bandwidth", 1, BANDWIDTH_AGREES,
            (mine.bandwidth_bytes_per_s, theirs.bandwidth_bytes_per_s, probe.bandwidth_bytes_per_s),
        ),
        _agreement(
            rows, "peak", most, PEAK_AGREES, (mine.peak_flops_per_s, theirs.peak_flops_per_s, probe.peak_flops_per_s)
        ),
    )  # fmt: skip


def _agreement(rows: Rows, name: str, batch: int, allowed: float, values: tuple[float, float, float]) -> Agreement:
    mine, theirs, probe = values
    ratio = mine / theirs
    alone = _one_thread_ratio(rows, batch)
    is_within = _is_within(ratio, allowed) and _is_within(mine / probe, allowed)
    return Agreement(
        name=name,
        torch_value=mine,
        numpy_value=theirs,
        probe_value=probe,
        torch_over_numpy=ratio,
        torch_over_probe=mine / probe,
        one_thread_ratio=alone,
        allowed_fraction=allowed,
        is_within=is_within,
        reasons=() if is_within else tuple(_reasons(rows, batch, ratio, theirs / probe, alone)),
    )


def _one_thread_ratio(rows: Rows, batch: int) -> float | None:
    by_library = {
        library: [each for each in rows.one_thread if each.library is library and each.row.batch == batch]
        for library in Library
    }
    if not all(by_library.values()):
        return None
    mine, theirs = (max(fastest(each.row).flops_per_s for each in by_library[library]) for library in Library)
    return mine / theirs


# ── why they differ ────────────────────────────────────────────────────────────────────────────────


def _reasons(rows: Rows, batch: int, ratio: float, numpy_over_probe: float, alone: float | None) -> Iterator[str]:
    """What differs between the two, or between NumPy's turns and the probe's, each with the figure that shows it."""
    if not _is_within(ratio, _NOTED):
        yield _kernels(rows.libraries, ratio)
        spread = sum(_spread(rows.of(library), batch) for library in Library)
        if spread > max(ratio, 1 / ratio) - 1:
            yield f"the values of the two spread by {format_fraction(spread)} together, so noise can be all of it"
        if alone is not None:
            yield (
                f"with one thread each the ratio is {format_number(alone)}, which is the kernels; {rows.num_threads} threads change it by "
                f"a factor of {format_number(ratio / alone)}, which is how each splits the work"
            )
        for library in Library:
            faster, slower, gain = _orientation(rows.of(library), batch)
            if gain > 1 + _NOTED:
                yield f"{library} computes {faster} {format_number(gain)} times as fast as {slower}"
    if not _is_within(numpy_over_probe, _NOTED):
        change = max(numpy_over_probe, 1 / numpy_over_probe) - 1
        yield (
            f"NumPy itself differs by {format_fraction(change)} between its turns beside PyTorch and the probe: the machine "
            "changed between them, or the probe reads memory in a faster way"
        )


def _spread(products: Iterable[LabProduct], batch: int) -> float:
    """The spread of the faster orientation at one B."""
    return _fastest(products, batch).spread_fraction or 0.0


def _kernels(libraries: Sequence[LibraryIdentity], ratio: float) -> str:
    named = {each.library: each for each in libraries}
    both = [
        f"{each.library} multiplies with {each.matrix_library}{f' ({each.kernels} kernels)' if each.kernels else ''}"
        for library in Library
        if (each := named.get(library)) is not None
    ]
    return f"{' and '.join(both) or 'the libraries do not say what they multiply with'}; the ratio is {format_number(ratio)}"


def _orientation(products: Iterable[LabProduct], batch: int) -> tuple[str, str, float]:
    """The faster orientation at one B, the slower, and by how much; 1 where there is only one."""
    rates: Mapping[Orientation, float] = {
        each.orientation: fastest(each.row).flops_per_s for each in products if each.row.batch == batch
    }
    faster, slower = (choose(rates, key=lambda orientation: rates[orientation]) for choose in (max, min))
    return faster, slower, rates[faster] / rates[slower]
