"""The speculate lab, in the order of reading: `request` (what is asked), `result` (what came out), `flow` (the order of it)."""
