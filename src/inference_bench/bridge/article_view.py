"""What does the standard KV-cache formula get wrong, and by how much: the article, counted anew for its reader.

In:   Values: a length, a cache format, an order
Out:  the article as HTML and charts, and every model's figures as JSON
Read next by: bridge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inference_bench.bridge.drawings import chart_specs, csv_rows
from inference_bench.bridge.fields import Field, Group, Json, Values, View, Width, at
from inference_bench.predict.fit import cache_format
from inference_bench.predict.naive_rows import Order
from inference_bench.predict.naive_study import study_naive_error
from inference_bench.report.article import TITLE, article
from inference_bench.report.article_html import article_html
from inference_bench.report.article_json import article_json, article_status

OWN_LIMIT: Final = "own"
_ORDERS: Final = {
    Order.FACTOR: "the factor",
    Order.MODEL: "the name",
    Order.TRUE: "the true cache",
    Order.USUAL: "the usual figure",
    Order.DATE: "the date",
}
_FIELDS: Final = Group(
    "Count it for",
    (
        Field("length", "Context", "32k", f"tokens, such as 4k, 32k, 128k; {OWN_LIMIT}: each model's own limit"),
        Field("cache", "Cache", "fp16", "fp16, fp8, q8_0, or q8_0/fp16", listed="cache-formats"),
        Field("order", "Models by", "factor", options=tuple((str(order), said) for order, said in _ORDERS.items())),
    ),
)


def _answer(values: Values, width: Width) -> Iterator[Json]:
    context = None if values.text("length") == OWN_LIMIT else values.tokens("length")
    with at("cache"):
        fmt = cache_format(values.optional("cache"))
    with at("length"):
        study = study_naive_error(context, fmt, Order(values.choice("order")))
    written = article(study)
    yield {
        "answer": article_json(study),
        "status": article_status(study),
        "html": article_html(written, has_title=False),
        "charts": chart_specs({picture.name: picture.drawing for picture in written.pictures}, width),
        "tables": {rows.name: csv_rows(rows.table) for rows in written.tables},
        "command": None,
        "files": {},
    }


ARTICLE: Final = View(
    "article",
    "The usual formula",
    TITLE,
    (_FIELDS,),
    _answer,
    is_shown_first=True,
)
