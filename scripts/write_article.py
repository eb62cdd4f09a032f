"""Write docs/kv-cache-formula.md and its pictures: what the standard KV-cache formula gets wrong, and by how much.

    python scripts/write_article.py [--out DOCS]

Words, tables and charts are those of the page, from the same code (inference_bench.report.article). The same code gives the
same page. Needs the extra [bench] for the pictures.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Final

from inference_bench.charts.grammar import WIDE_PX
from inference_bench.predict.naive_study import study_naive_error
from inference_bench.render import svg
from inference_bench.report.article import article
from inference_bench.report.article_blocks import Article
from inference_bench.report.article_markdown import article_markdown
from inference_bench.report.picture import picture_svg

DOCS: Final = Path(__file__).parent.parent / "docs"
NAME: Final = "kv-cache-formula"
NOTE: Final = (
    "Written by `scripts/write_article.py` (`make article`); do not edit. On the page of this program "
    "the same article takes any length and cache format, and each model leads to the calculator."
)


def page(found: Article) -> str:
    """docs/kv-cache-formula.md."""
    return article_markdown(found, {picture.name: f"{NAME}-{picture.name}.svg" for picture in found.pictures}, NOTE)


def pictures(found: Article) -> dict[str, str]:
    """The file of each chart, and what is in it."""
    specs = {picture.name: picture.drawing.make(WIDE_PX) for picture in found.pictures}
    return {f"{NAME}-{name}.svg": picture_svg(spec, svg(spec)) for name, spec in specs.items() if spec is not None}


def main() -> None:
    """Count, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args()
    started = time.monotonic()
    found = article(study_naive_error())
    files = {f"{NAME}.md": page(found), **pictures(found)}
    for name, content in files.items():
        (options.out / name).write_text(content, encoding="utf-8")
    print(f"{', '.join(files)} in {options.out}: {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
