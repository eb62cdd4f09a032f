"""How right the predictions are: published measurements read, asked, predicted and scored.

In:   tables of measurements (docs/measurements.md)
Out:  scores by phase, source, machine, engine; refits without one machine or model
Read next by: report, cli, scripts/fit_efficiency.py.

Read in this order: rows, query, scoring, calibrated; fitting and cross_validation need NumPy.
"""
