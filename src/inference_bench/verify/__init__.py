"""Measured against ceilings, in one flow: machine, model, bounds, engine, measured points, comparison."""
