"""The speculate lab as a page: `marimo edit docs/labs/notebooks/speculate.py`, or run as a script."""

import marimo

app = marimo.App(width="medium", app_title="Speculative decoding")


@app.cell
def _():
    import marimo as mo

    from inference_bench import LabSettings, SpeculateRequest, lab_speculate
    from inference_bench.notebook import show

    return LabSettings, SpeculateRequest, lab_speculate, mo, show


@app.cell
def _(mo):
    mo.md(
        """
        # Does speculative decoding keep its output, and what does it gain?

        A draft proposes γ tokens. The model reads all of them in one step and keeps those that it would have said itself.
        Its own choice takes the place of the first wrong one, and everything behind is taken out of the KV cache.

        Two drafts are tried here: a lookup of what followed the same words earlier in the context, and the first two
        thirds of the model's own layers. Every answer is held against plain greedy decoding, token by token and logit by
        logit. Then tokens are drawn with a temperature, and their distribution is held against the model's own.
        Last, a real server answers the same prompts with its own speculation off and on.
        """
    )
    return


@app.cell
def _(LabSettings, SpeculateRequest, lab_speculate):
    result = lab_speculate(SpeculateRequest(LabSettings(is_quick=True)))
    return (result,)


@app.cell
def _(result, show):
    show(result)
    return


@app.cell
def _(mo):
    mo.md(
        """
        ## Where the formula is wrong

        The formula takes one acceptance α for every place of the draft. A lookup is not like that: where its first token
        is right it has found a passage that repeats, and the next ones are right far more often. The table shows α place
        by place, for each draft's longest γ.
        """
    )
    return


@app.cell
def _(mo, result):
    longest = {run.draft: run for run in sorted(result.runs, key=lambda run: run.gamma)}
    by_place = [
        {
            "draft": run.draft,
            "place": place.position,
            "judged": place.num_trials,
            "right": place.num_accepted,
            "share": round(place.num_accepted / place.num_trials, 3) if place.num_trials else None,
        }
        for run in longest.values()
        for place in run.by_position
    ]
    mo.ui.table(by_place, selection=None)
    return


@app.cell
def _(mo, result):
    verifying = ", ".join(
        f"{taken_s / result.costs.step_s:.2f} plain steps for γ = {gamma}"
        for gamma, taken_s in result.costs.verify_s.items()
    )
    mo.md(
        f"""
        ## What decides whether it gains

        On an accelerator a step that verifies a few tokens costs about as much as a plain one, since both read all weights
        once. Here it costs {verifying}. A round gains only where it gives more tokens than it costs plain steps.
        """
    )
    return


if __name__ == "__main__":
    app.run()
