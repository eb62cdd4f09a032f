"""The grammar lab as a page: `marimo edit docs/labs/notebooks/grammar.py`, or run as a script."""

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
        # What does a schema guarantee, and what do its masks cost?

        A grammar made of a JSON Schema says before each token which may come next. The next cell writes documents with such masks and
        without, goes through each with a second matcher, and validates it with `jsonschema`. It is the quick mode: two schemas, two
        prompts each.
        """
    )
    return


@app.cell
def _():
    from inference_bench import GrammarRequest, LabSettings, lab_grammar

    result = lab_grammar(GrammarRequest(LabSettings(is_quick=True)))
    return (result,)


@app.cell
def _(result):
    from inference_bench.notebook import show

    show(result)
    return


@app.cell
def _(mo, result):
    from inference_bench.labs.grammar.result import Way

    masked = [each for each in result.documents if each.way is Way.CONSTRAINED]
    forced = sum(each.num_forced for each in masked) / sum(each.num_tokens for each in masked)
    mask = sum(
        part.share_fraction for part in result.step_parts if part.is_constrained and part.name == "compute the mask"
    )
    mo.md(
        f"""
        ## Is a mask expensive?

        Computing one takes **{mask:.1%}** of the time of a step with masks. It can pay: at **{forced:.0%}** of the steps of these documents
        just one token was allowed. An engine that writes such tokens at once asks the model at the other {1 - forced:.0%} only.
        """
    )
    return


@app.cell
def _(mo, result):
    mo.ui.table(
        [
            {
                "schema": each.schema,
                "how": each.way.value,
                "tokens": each.num_tokens,
                "valid": each.is_valid,
                "text": each.text,
            }
            for each in result.documents
        ],
        selection=None,
    )
    return


if __name__ == "__main__":
    app.run()
