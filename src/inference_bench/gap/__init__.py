"""Where a measured step's time goes, and what would help most: parts that add up, and changes computed one by one.

In order: `parts` (the values), `decompose` (a step into its parts), `changes` (counterfactuals), `reading` (in words).
"""
