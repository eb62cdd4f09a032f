"""The batch lab as a page: `marimo edit docs/labs/notebooks/batch.py`, or run as a script."""

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
        # What does a batch gain, and does it change what each prompt gets?

        Prompts of different lengths are padded on the left and decoded together. Each batch is timed and held against what its work takes
        at least on this machine. Then each prompt is decoded alone, and its logits are compared with those it got in the batch; and six
        mistakes that are easily made with padding are planted, to see what shows them.
        """
    )
    return


@app.cell
def _():
    from inference_bench import BatchRequest, LabSettings, lab_batch

    result = lab_batch(BatchRequest(LabSettings(is_quick=True)))
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
        ## What one more sequence costs

        The weights are read once for all sequences of a step, so a second sequence should cost little. From one batch to the next: how
        much longer a step takes, for each sequence that was added.
        """
    )
    return


@app.cell
def _(mo, result):
    from itertools import pairwise

    points = result.runs[0].points
    rows = [
        {
            "from": before.batch,
            "to": after.batch,
            "ms for each more": round(1e3 * (after.step_s - before.step_s) / (after.batch - before.batch), 2),
            "ms of a step alone": round(1e3 * points[0].step_s, 2),
        }
        for before, after in pairwise(points)
    ]
    mo.ui.table(rows, selection=None)
    return


if __name__ == "__main__":
    app.run()
