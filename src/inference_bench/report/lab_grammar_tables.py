"""Which tables does the grammar lab print?

In:   GrammarResult
Out:  Tables
Read next by: lab_grammar.
"""

from __future__ import annotations

from inference_bench.labs.grammar.result import DocumentRun, GrammarResult, Outcome, SchemaFacts, Way
from inference_bench.origin import Origin
from inference_bench.report.table import Column, Table
from inference_bench.stats import Interval
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds

_MEASURED = Origin.MEASURED.value


def rates_table(result: GrammarResult) -> Table:
    """How many documents of each way fit."""
    columns = (
        Column("documents", "l"),
        Column("number"),
        Column("cut off"),
        Column("JSON"),
        Column("valid"),
        Column("95 % interval"),
        Column("valid inside"),
    )
    rows = tuple(
        (
            rate.way.value,
            format_count(rate.num_documents),
            format_count(rate.num_truncated),
            format_count(rate.num_json),
            format_count(rate.num_valid),
            _interval(rate.valid_interval),
            format_count(rate.num_valid_inside),
        )
        for rate in result.rates
    )
    note = (
        "Valid is by jsonschema, of finished documents. Valid inside counts an object or list in the text, whatever stands around it. "
        "The intervals (Wilson) take documents as independent; those of one prompt are alike."
    )
    return Table("Validity", columns, rows, note)


def steps_table(result: GrammarResult) -> Table:
    """Where the time of a step goes."""
    columns = (
        Column("part of a step", "l"),
        Column("masks", "l"),
        Column("steps"),
        Column("median", origin=_MEASURED),
        Column("90th percentile", origin=_MEASURED),
        Column("longest", origin=_MEASURED),
        Column("share"),
    )
    rows = tuple(
        (
            part.name,
            "with" if part.is_constrained else "without",
            format_count(part.num_steps),
            format_seconds(part.median_s),
            format_seconds(part.p90_s),
            format_seconds(part.max_s),
            format_fraction(part.share_fraction),
        )
        for part in result.step_parts
    )
    return Table("Time of a step, the first of each document apart", columns, rows)


def schemas_table(result: GrammarResult) -> Table:
    """Each schema, its grammar, and what budget suffices."""
    columns = (
        Column("schema", "l"),
        Column("compile", origin=_MEASURED),
        Column("first mask", origin=_MEASURED),
        Column("short"),
        Column("enough"),
        Column("forced"),
        Column("across"),
        Column("split"),
    )
    rows = tuple(_schema_row(schema, result) for schema in result.schemas)
    note = (
        "In tokens: a short document, and a budget that always suffices, since a token is at least one byte; n/a where documents have "
        "no end. Of constrained documents: steps that allow one token, tokens across parts of JSON, tokens that split a character."
    )
    return Table("Schemas", columns, rows, note)


def _schema_row(schema: SchemaFacts, result: GrammarResult) -> tuple[str, ...]:
    own = [each for each in result.documents if each.schema == schema.name and each.way is Way.CONSTRAINED]
    tokens = sum(each.num_tokens for each in own)
    forced = sum(each.num_forced or 0 for each in own)
    return (
        schema.name,
        format_seconds(schema.compile_s),
        format_seconds(schema.first_mask_s),
        format_count(schema.num_short_tokens),
        format_count(schema.most_document_bytes),
        NOT_AVAILABLE if not tokens else format_fraction(forced / tokens),
        format_count(sum(each.num_spanning for each in own)),
        format_count(sum(each.num_partial_utf8 for each in own)),
    )


def unenforced_table(result: GrammarResult) -> Table:
    """What the grammar does not hold a document to, and how many documents broke it."""
    columns = (Column("schema", "l"), Column("keyword", "l"), Column("at", "l"), Column("why", "l"))
    rows = tuple(
        (schema.name, each.keyword, each.pointer, each.reason)
        for schema in result.schemas
        for each in schema.unenforced
    )
    finished = [each for each in result.documents if each.num_outside == 0 and each.is_finished]
    broken = sum(not each.is_valid for each in finished)
    note = f"{broken} of {len(finished)} finished documents that the grammar took are not valid by jsonschema."
    return Table("Keywords that the grammar does not enforce", columns, rows, note, marked=frozenset(range(len(rows))))


def keywords_table(result: GrammarResult) -> Table:
    """What becomes of every keyword."""
    columns = (Column("keyword", "l"), Column("outcome", "l"), Column("what it says", "l"))
    rows = tuple((each.keyword, each.outcome.value, each.reason) for each in result.keywords)
    marked = frozenset(i for i, each in enumerate(result.keywords) if each.outcome is Outcome.IGNORED)
    note = "Each is asked with a document that this keyword alone forbids."
    return Table(f"Keywords of JSON Schema in {result.library}", columns, rows, note, marked)


def server_table(result: GrammarResult) -> Table:
    """A real server with and without the constraint."""
    columns = (
        Column("constraint", "l"),
        Column("documents"),
        Column("cut off"),
        Column("valid"),
        Column("95 % interval"),
        Column("tokens"),
        Column("TTFT", origin=_MEASURED),
        Column("TPOT", origin=_MEASURED),
        Column("tokens/s", origin=_MEASURED),
    )
    if result.server is None:
        return Table("A real server", columns, ())
    rows = tuple(
        (
            "with" if way.is_constrained else "without",
            format_count(way.num_documents),
            format_count(way.num_truncated),
            format_count(way.num_valid),
            _interval(way.valid_interval),
            format_count(way.num_tokens),
            format_seconds(way.ttft_s),
            format_seconds(way.tpot_s),
            format_number(way.tokens_per_s),
        )
        for way in result.server.ways
    )
    note = f"Greedy, one request at a time, {format_count(result.server.budget_tokens)} tokens at most. Its grammar may allow white space."
    return Table(f"A real server: {result.server.engine}", columns, rows, note)


def server_keywords_table(result: GrammarResult) -> Table:
    """What the server makes of schemas that nothing fits."""
    columns = (Column("keyword", "l"), Column("outcome", "l"), Column("what came", "l"))
    known = () if result.server is None else result.server.keywords
    rows = tuple((each.keyword, each.outcome.value, each.answer) for each in known)
    marked = frozenset(i for i, each in enumerate(known) if each.outcome is Outcome.IGNORED)
    return Table("The server, asked for what its schema forbids", columns, rows, marked=marked)


def faults_table(result: GrammarResult) -> Table:
    """The planted faults and the naive masks."""
    columns = (Column("planted fault", "l"), Column("caught", "l"), Column("by", "l"))
    rows = tuple((each.fault, "yes" if each.is_caught else "NO", each.caught_by) for each in result.faults)
    return Table("Masks broken on purpose", columns, rows)


def documents_table(result: GrammarResult) -> Table:
    """Every document."""
    columns = (
        Column("schema", "l"),
        Column("prompt"),
        Column("way", "l"),
        Column("seed"),
        Column("tokens"),
        Column("verdict", "l"),
        Column("forced"),
        Column("text", "l"),
    )
    return Table("Documents", columns, tuple(_document_row(each) for each in result.documents))


def _document_row(each: DocumentRun) -> tuple[str, ...]:
    verdict = "valid" if each.is_valid else "cut off" if each.is_truncated else "invalid"
    return (
        each.schema,
        format_count(each.prompt + 1),
        each.way.value,
        "greedy" if each.seed is None else format_count(each.seed),
        format_count(each.num_tokens),
        verdict,
        format_count(each.num_forced),
        each.text or "not kept",
    )


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return NOT_AVAILABLE
    return f"{format_fraction(interval.low)} – {format_fraction(interval.high)}"
