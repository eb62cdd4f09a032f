"""How long a step of a real server takes, as a formula with few numbers, fitted to steps that were measured one by one.

In order: `observations` (what was measured), `forms` (the formulas that are tried), `fitting` (their numbers, and which of
them is right on what it has not seen).
"""
