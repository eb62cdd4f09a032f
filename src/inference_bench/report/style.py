"""How does the page look? Its whole style sheet: one column, two themes, any width, paper.

In:   the palette of the charts, so that page and drawings change theme together
Out:  CSS
Read next by: html.
"""

from __future__ import annotations

from typing import Final

from inference_bench.charts import NARROW_PX, PALETTE, WIDE_PX


def _variables(theme: int) -> str:
    return "".join(f"--{role}:{colours[theme]};" for role, colours in PALETTE.items())


_THEMES: Final = f"""
:root {{ color-scheme: light dark; {_variables(0)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(1)} }} }}
@media print {{ :root {{ color-scheme: light; {_variables(0)} }} }}
"""

_PAGE: Final = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 79rem; padding: 1.5rem max(10px, min(4vw, 2.5rem)) 4rem;
  background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; }
header { padding-bottom: .4rem; }
h1 { font-size: clamp(1.35rem, 1rem + 1.6vw, 2rem); line-height: 1.2; font-weight: 650; letter-spacing: -.015em;
  margin: .2rem 0 .5rem; text-wrap: balance; }
h1 small { font-size: .62em; font-weight: 450; letter-spacing: 0; color: var(--muted); display: block;
  margin-top: .35rem; }
h2 { font-size: 1.2rem; font-weight: 650; letter-spacing: -.01em; margin: 3.2rem 0 .9rem; padding-top: .7rem;
  border-top: 1px solid var(--grid); }
h3 { font-size: 1rem; font-weight: 600; margin: 2rem 0 .5rem; }
p, ul { margin: .5rem 0; max-width: 46rem; }
ul { padding-left: 1.15rem; }
li { margin: .3rem 0; }
a { color: inherit; text-decoration-color: var(--muted); text-underline-offset: .2em; }
nav { font-size: .875rem; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: 1.1rem 0 0; }
.quiet { color: var(--muted); font-size: .875rem; }
.kicker { margin: 0; }
"""

_FIGURES: Final = """
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.6rem, 1fr)); gap: 1.4rem 1.5rem;
  margin: 1.4rem 0 0; padding: 0; }
.figures .filled { display: block; width: 100%; height: 3px; margin-bottom: .7rem; fill: var(--grid); }
.figures .filled .line { fill: var(--ink); }
.figures .finding .filled .line { fill: var(--finding); }
.figures dt { font-size: .875rem; color: var(--muted); }
.figures dd { margin: 0; font-size: .8125rem; line-height: 1.45; color: var(--muted); }
.figures dd.value { display: flex; flex-wrap: wrap; align-items: baseline; column-gap: .3em; color: var(--ink);
  font-size: 1.75rem; line-height: 1.25; font-weight: 600; letter-spacing: -.02em; }
.figures .long dd.value { font-size: 1.25rem; line-height: 1.5; }
.figures dd.beside { font-size: .875rem; font-weight: 600; color: var(--ink); }
.figures .finding dd.beside { color: var(--finding); }
.figures dd.value span { font-size: .9rem; font-weight: 450; letter-spacing: 0; }
.tag { display: inline-block; font-size: .6875rem; line-height: 1.5; font-weight: 500; letter-spacing: .02em;
  padding: 0 .4em; border: 1px solid; border-radius: .25em; color: var(--muted); white-space: nowrap; }
.tag.measured { color: var(--decode); } .tag.bound, .tag.estimate { border-style: dashed; }
.origins { display: flex; flex-wrap: wrap; gap: .35rem 1.2rem; margin: 0 0 1.2rem; padding: 0; list-style: none;
  max-width: none; font-size: .8125rem; color: var(--muted); }
.origins li { margin: 0; }
@media (min-width: 60rem) { .figures:has(> :nth-child(7)):not(:has(> :nth-child(9))) {
  grid-template-columns: repeat(4, minmax(0, 1fr)); } }
.findings { border-left: 3px solid var(--finding); padding: .1rem 0 .1rem 1rem; margin: 1.8rem 0 0; }
.findings h2 { border: 0; margin: 0; padding: 0; font-size: 1rem; color: var(--finding); }
.reading li:first-child { font-size: 1.0625rem; }
.reading { list-style: none; padding: 0; }
.reading li { margin: .6rem 0; }
.command { margin: .6rem 0 1rem; padding: .7rem .9rem; border: 1px solid var(--grid); border-radius: .3em;
  white-space: pre-wrap; overflow-wrap: anywhere; font: .875rem/1.5 ui-monospace, "SFMono-Regular", Menlo, Consolas,
  "Liberation Mono", monospace; }
.command code { font: inherit; } .command span { display: inline-block; max-width: 100%; }
"""

_ANSWERS: Final = """
.answers { margin: 1.2rem 0 0; border-top: 1px solid var(--grid); }
.answers > div { display: grid; grid-template-columns: 14.5rem 13rem minmax(0, 1fr); gap: .1rem 1.5rem; align-items: baseline;
  padding: .65rem 0; border-bottom: 1px solid var(--grid); }
.answers dt { color: var(--muted); } .answers dd { margin: 0; max-width: 46rem; }
.answers .mark { font-size: 1.125rem; font-weight: 650; line-height: 1.35; letter-spacing: -.01em; }
.answers .good .mark { color: var(--c1); } .answers .poor .mark { color: var(--finding); }
.contents { margin-top: 1.8rem; } nav:empty { display: none; }
@media (max-width: 56rem) { .answers > div { grid-template-columns: minmax(0, 1fr); } .answers dt { font-size: .875rem; } }
"""

_CHARTS: Final = f"""
figure {{ margin: 2.2rem 0; }}
figure svg {{ display: block; width: 100%; height: auto; font-family: inherit; }}
figure .wide {{ max-width: {WIDE_PX}px; }}
figure .narrow {{ display: none; max-width: {NARROW_PX + 100}px; }}
figure .mark-text.role-mark text {{ paint-order: stroke; stroke: var(--paper); stroke-width: 3px;
  stroke-linejoin: round; }}
figcaption {{ font-size: .875rem; color: var(--muted); max-width: 46rem; }}
figcaption h3 {{ margin: 0 0 .3rem; color: var(--ink); }}
figcaption p {{ margin: .3rem 0 .8rem; }}
@media (min-width: 68rem) {{
  figure {{ display: grid; grid-template-columns: {WIDE_PX}px 1fr; gap: 0 2.4rem; align-items: start; }}
  figure figcaption {{ order: 2; padding-top: .4rem; }}
}}
@media (max-width: 47.5rem) {{ figure .wide {{ display: none; }} figure .narrow {{ display: block; }} }}
"""

_TABLES: Final = """
.scroll { overflow-x: auto; margin: .6rem 0; --shade: color-mix(in srgb, var(--ink) 28%, transparent);
  background: linear-gradient(to right, var(--paper) 40%, transparent) 0 0 / 3rem 100% local no-repeat,
  linear-gradient(to left, var(--paper) 40%, transparent) 100% 0 / 3rem 100% local no-repeat,
  linear-gradient(to right, var(--shade), transparent) 0 0 / .8rem 100% scroll no-repeat,
  linear-gradient(to left, var(--shade), transparent) 100% 0 / .8rem 100% scroll no-repeat; }
.scroll:focus-visible { outline: 2px solid var(--decode); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .8125rem; line-height: 1.4; min-width: min(100%, 44rem); }
th, td { padding: .34rem .45rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid);
  overflow-wrap: normal; }
th { font-weight: 600; vertical-align: bottom; border-bottom-color: var(--muted); }
th .tag { display: block; width: fit-content; margin: .15rem 0 0 auto; font-weight: 500; }
tbody th { font-weight: 450; border-bottom-color: var(--grid); }
th.l, td.l { text-align: left; } th.l .tag { margin-left: 0; }
tr > :first-child { padding-left: 0; position: sticky; left: 0; background: var(--paper); }
tr.finding td { color: var(--finding); } tr.finding > :first-child { color: var(--finding); }
dl.facts { display: grid; grid-template-columns: minmax(0, min(15rem, 38%)) minmax(0, 1fr); gap: .2rem 1.2rem;
  margin: .6rem 0; font-size: .875rem; }
dl.facts dt { color: var(--muted); } dl.facts dd { margin: 0; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 0 3rem; }
.pairs { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1.2rem 3rem; }
.pairs > * { min-width: 0; } .pairs > div > :first-child { margin-top: .6rem; }
.pairs table, .broad table { min-width: 100%; }
.prose tbody > tr > * { vertical-align: top; }
.prose td.l:last-child { white-space: normal; min-width: 16rem; }
.wraps tbody > tr > * { vertical-align: top; }
.wraps .wrapped { white-space: normal; overflow-wrap: break-word; min-width: 9rem; max-width: 30rem; }
@media (max-width: 47.5rem) { .wraps { min-width: 0; } .wraps .wrapped { overflow-wrap: anywhere; min-width: 6.4rem; } }
details { margin: .9rem 0; }
summary { cursor: pointer; font-size: .875rem; font-weight: 600; width: fit-content; }
summary:focus-visible { outline: 2px solid var(--decode); outline-offset: 2px; }
"""

_PRINT: Final = """
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2 { margin-top: 1.6rem; } h3 { margin-top: 1.2rem; } h2, h3, thead, .origins { break-after: avoid; }
  figure, .figures > div, tr, .findings, .command { break-inside: avoid; }
  figure { display: block; margin: 1.2rem 0; } figure .wide { display: block; max-width: 155mm; } figure .narrow { display: none; }
  .figures .filled { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .scroll { overflow: visible; background: none; }
  details::details-content { content-visibility: visible; block-size: auto; }
  table { font-size: 6.5pt; } th, td { padding: .15rem .25rem; }
  th, td.l { white-space: normal; } th .tag, td .tag { font-size: .85em; line-height: 1.3; padding: 0 .2em; }
  .few { font-size: 8pt; } .few th, .few td.l { overflow-wrap: anywhere; }
  .prose th, .prose td.l { overflow-wrap: anywhere; } .prose td.l:last-child, .wraps .wrapped { min-width: 0; }
  .answers > div { grid-template-columns: 9rem 8rem minmax(0, 1fr); break-inside: avoid; } .answers .mark { font-size: 1em; }
  .many { font-size: 6pt; } .many th, .many td { white-space: normal; padding: .1rem .12rem; }
  .many .tag { font-size: .75em; padding: 0 .1em; }
}
"""

STYLE: Final = "".join((_THEMES, _PAGE, _FIGURES, _ANSWERS, _CHARTS, _TABLES, _PRINT))
