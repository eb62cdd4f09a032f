"""The quantise lab as a page: `marimo edit docs/labs/notebooks/quantise.py`, or run as a script."""

import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import marimo as mo

    from inference_bench import LabSettings, QuantiseRequest, lab_quantise
    from inference_bench.notebook import show

    return LabSettings, QuantiseRequest, lab_quantise, mo, show


@app.cell
def _(mo):
    mo.md(
        """
        # What do fewer bits cost in quality, and which way of saving them costs least?

        The matrices of a real model are rounded in a dozen ways, one after another, and each time the same text is foretold and the
        matrices are put back. The rounding is simulated: values lie on the grid of few bits and are multiplied as floats. Two real
        files of the same model are served by a real engine beside it.
        """
    )


@app.cell
def _(LabSettings, QuantiseRequest, lab_quantise):
    result = lab_quantise(QuantiseRequest(LabSettings(is_quick=True)))
    return (result,)


@app.cell
def _(result, show):
    show(result)


@app.cell
def _(mo):
    mo.md(
        """
        ## A small error of the weights is not a small loss

        GPTQ moves the matrices further than plain rounding does, and loses less: it moves them where the inputs do not look. The
        table is sorted by the error of the weights; were that what counts, the last column would be sorted too.
        """
    )


@app.cell
def _(mo, result):
    errors = [
        {"method": row.name, "error of the weights": round(row.weight_error, 4), "perplexity": round(row.perplexity, 2)}
        for row in sorted(result.methods, key=lambda row: row.weight_error or 0.0)
        if row.weight_error and row.bits_per_weight < 5
    ]
    mo.ui.table(errors, selection=None)
    return (errors,)


@app.cell
def _(mo, result):
    plain = next(row for row in result.methods if row.name == "float32")
    rounded = next(row for row in result.methods if row.name == "int4 channel")
    mo.md(
        f"""
        ## What perplexity does not say

        Four bits with one scale a channel multiply the perplexity by {rounded.perplexity / plain.perplexity:.2f}. Of tokens that stood in
        the text before, float32 copies {plain.exact_copy_fraction:.0%} and the rounded network {rounded.exact_copy_fraction:.0%}; of its
        answers in JSON, {plain.json_valid_fraction:.0%} and {rounded.json_valid_fraction:.0%} are valid.
        """
    )


if __name__ == "__main__":
    app.run()
