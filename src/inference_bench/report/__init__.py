"""What the answers look like: text for a terminal, JSON for a program, one HTML file for a person.

In:   a result whose every number was computed before
Out:  text, dicts and HTML; no file is written here
Leaves out: arithmetic, files, and drawing (render)
Read next by: cli.

Nothing is imported here, so that a small answer does not load the parts of a large one.
"""
