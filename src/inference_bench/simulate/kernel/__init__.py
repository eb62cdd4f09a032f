"""The fast engine: the same rules as the readable loop, over arrays, in lines that run in plain Python and through numba.

Read in this order: pricing (the cost function), state (what stands where), decoders (sums that make a step cheap), admission,
steps (the loop), batches, engine (arrays in, Outcome out), compiled (numba).

What makes it fast: decoding sequences are never visited one by one. Each step adds the same to all of them, so their sums are
kept instead: how many there are, the positions they attend, the blocks they hold by where in a block they stand, and in a ring
of buckets which of them end at which step.
"""
