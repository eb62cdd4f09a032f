"""The page as a folder of files: what the core answers at first, the core itself, and what runs it in a browser.

In:   bridge, the files of web/, pinned packages of the npm registry
Out:  a folder that any static host serves, from any path; on loopback, a server for it
Leaves out: every figure (bridge)
Read in this order: build, vendor, core_archive, document, forms; serve.
"""
