"""The machine lab as a page: `marimo edit docs/labs/notebooks/machine.py`, or run as a script."""

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
        # How fast can this machine read memory and multiply matrices?

        One matrix, larger than any cache, is multiplied with more and more columns, by PyTorch and by NumPy in turns. With one column the
        time goes into reading the matrix; with many it goes into arithmetic. The two rates are the ceilings under which every step of a
        model on this machine lies.
        """
    )
    return


@app.cell
def _():
    from inference_bench import LabSettings, MachineRequest, lab_machine

    result = lab_machine(MachineRequest(LabSettings(is_quick=True)))
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
        ## Is a batch that reaches the ridge reached by these products?

        The ridge is the intensity at which memory stops being the limit. A product with B columns in float32 has about B / 2 FLOP/byte,
        so it should stop gaining at about twice the ridge.
        """
    )
    return


@app.cell
def _(mo, result):
    ridge = result.ceilings.roof.ridge_flops_per_byte
    rows = [
        {
            "B": pair.batch,
            "of the peak": f"{max(pair.torch_flops_per_s, pair.numpy_flops_per_s) / result.ceilings.peak_flops_per_s:.0%}",
            "above the ridge": "yes" if pair.batch / 2 > ridge else "no",
        }
        for pair in result.pairs
    ]
    mo.ui.table(rows, selection=None)
    return


if __name__ == "__main__":
    app.run()
