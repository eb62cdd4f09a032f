"""How long a step of a real server takes, as a formula with few numbers, fitted to steps that were measured one by one.

In order: `observations` (what was measured), `forms` (the formulas that are tried, and what a fit says), `columns` (what each
number of a formula multiplies in a step), `solving` (numbers within limits, whatever a few steps say), `candidates` (every
formula, fitted), `choosing` (which of them is right on what it has not seen), `intervals` (how well its numbers are told),
`reading` (what it says, in words), `fitting` (all of that, in one call).
"""
