"""Where a measured step's time goes, and what would help most: parts that add up, and changes computed one by one.

In order: `parts` (the values), `step_parts` (the fitted formula term by term), `part_words`, `decompose` (a step into its
parts), `proposals` (what could be changed), `changes` (what each gains), `reading` (in words).
"""
