"""The cache lab as a page: `marimo edit docs/labs/notebooks/cache.py`, or run as a script."""

import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import marimo as mo

    return (mo,)


@app.cell
def _(mo):
    mo.md(
        """
        # What does a KV cache save, and which of its faults would nobody see?

        A small decoder and a real model generate the same text twice: from a cache, and by computing everything anew for each token.
        Then six faults are planted in the cached path, one at a time. The question is not whether the logits show them, but whether
        the text would have.
        """
    )
    return


@app.cell
def _():
    from inference_bench import CacheRequest, LabSettings, lab_cache

    result = lab_cache(CacheRequest(LabSettings(is_quick=True)))
    return (result,)


@app.cell
def _(result):
    from inference_bench.notebook import show

    show(result)
    return


@app.cell
def _(mo):
    mo.md(
        """
        ## What a test that compares texts would have missed

        For each run with a fault: how many tokens were right after the logits had gone wrong. Where that is all that were left, no
        comparison of texts of this length finds the fault.
        """
    )
    return


@app.cell
def _(mo, result):
    hidden = [
        {
            "fault": str(run.fault),
            "prompt": run.prompt,
            "right tokens after wrong logits": run.num_equal_tokens - run.first_over_tolerance,
            "text differs": run.tokens_part,
        }
        for run in result.comparisons
        if run.subject == "model" and run.fault is not None and run.first_over_tolerance is not None
    ]
    mo.ui.table(hidden, selection=None)
    return (hidden,)


@app.cell
def _(hidden, mo, result):
    unseen = sum(not row["text differs"] for row in hidden)
    longest = result.lengths[-1]
    mo.md(
        f"""
        Of {len(hidden)} faulty runs {unseen} give the right text to the end. And the cache itself is worth having: without it
        {longest.num_emitted} tokens take {longest.speedup:.1f} times as long.
        """
    )
    return


if __name__ == "__main__":
    app.run()
