"""What stands where in the arrays of the fast engine.

In:   nothing; names of places
Out:  State, and the indices of its counters
Read next by: decoders, admission, steps, batches, engine.

A request is a number. It waits, reads its prompt (a chain of them, in order of admission, behind all that decode), or decodes.
A decoder that has given g tokens of its answer by step n keeps g - n, which stays the same from step to step; so do the step it
ends at and its place within a block.
"""

from __future__ import annotations

import math
from collections.abc import MutableSequence, Sequence
from typing import Final, NamedTuple

# counters (State.counter)
TOTAL: Final = 0  # requests
RELEASED: Final = 1  # of which so many have a time of arrival
NEXT: Final = 2  # the next to arrive
HEAD: Final = 3  # the first that has arrived and not been admitted
STACKED: Final = 4  # preempted, waiting in front of all others
RUNNING: Final = 5
DECODERS: Final = 6
STEP: Final = 7  # steps since the start: tells decoders how far they are
OLDEST: Final = 8  # ends of the list of those running
NEWEST: Final = 9
FIRST_PREFILL: Final = 10  # the first that still reads its prompt; -1 none
DONE: Final = 11
PREEMPTIONS: Final = 12
PREEMPTED_NOW: Final = 13  # in the step being planned
IS_BARRED: Final = 14  # nobody is admitted any more in the step being planned
LAST_LATE: Final = 15  # the last step with a pause over the objective
NUM_GAPS: Final = 16
NUM_POINTS: Final = 17  # of the timeline
SEEN_POINTS: Final = 18
STRIDE: Final = 19
RESERVED: Final = 20  # bytes kept for the longest answers
PEAK: Final = 21  # bytes
CULPRIT: Final = 22  # the request an error is about
MAX_RUNNING: Final = 23
BUDGET: Final = 24  # positions a step
ADMISSION_LIMIT: Final = 25  # bytes
MEMORY: Final = 26  # bytes
STATE_OF_SEQUENCE: Final = 27  # bytes
BLOCK: Final = 28  # positions
NUM_CLASSES: Final = 29
RING: Final = 30  # buckets of steps at which decoders end
WINDOW_RING: Final = 31
LONGEST: Final = 32  # positions of the longest request
RESERVES: Final = 33  # 1 where the longest answer is kept free
BY_CHUNK: Final = (
    34  # 0 admitted before the step is planned; 1 within it, by the first chunk; 2 within it, by all to read
)
MAX_OUTPUT: Final = 35
GAP_ROOM: Final = 36
POINT_ROOM: Final = 37
MAX_BATCH: Final = 39
PADS: Final = 40
CHECKS_MEMORY: Final = 41
AFTER: Final = 42  # bytes once the step being planned is done
NUM_COUNTERS: Final = 43
ASKS_WHOLE: Final = 2  # BY_CHUNK

# clocks (State.clock)
NOW: Final = 0
IN_SYSTEM: Final = 1  # requests × seconds
BUSY: Final = 2
MAX_GAP: Final = 3
THINK: Final = 4
TIMEOUT: Final = 5
NUM_CLOCKS: Final = 6

# why `advance` returned
FINISHED: Final = 0
MORE: Final = 1
NEVER_ADMITTED: Final = 2
LONE: Final = 3

NEVER: Final = math.inf
NONE: Final = -1
IS_WAITING: Final = 0
IS_READING: Final = 1
IS_DECODING: Final = 2

Ints = MutableSequence[int]
Floats = MutableSequence[float]


class State(NamedTuple):
    """All of a server's state: lists in plain Python, NumPy arrays where it is compiled.

    Where:  by request: arrival .. preempted; before and after link those running, bucket_before and bucket_after those that end
            at the same step; by class of layers (0: those that attend everything): limit .. reach; phases[class · block + p]
            counts decoders within their window by (context - step) modulo block; leaving[class · ring + step] those that fill
            their window then; gaps and gap_counts are the pauses of steps not yet taken away
    """

    counter: Ints
    clock: Floats
    coefficients: Sequence[float]
    table: Sequence[float]
    arrival: Floats
    prompt: Sequence[int]
    output: Sequence[int]
    generated: Ints
    filled: Ints
    offset: Ints
    began: Ints
    phase: Ints
    before: Ints
    after: Ints
    bucket_before: Ints
    bucket_after: Ints
    stamp: Ints
    first_s: Floats
    last_s: Floats
    late: Ints
    preempted: Ints
    stack: Ints
    bucket: Ints
    limit: Sequence[int]
    block_bytes: Sequence[int]
    read_bytes: Sequence[float]
    pair_flops: Sequence[float]
    context: Ints
    blocks: Ints
    within: Ints
    phases: Ints
    leaving: Ints
    reads: Ints
    pairs: Ints
    gaps: Floats
    gap_counts: Ints
    point_time: Floats
    point_waiting: Ints
    point_running: Ints
    point_bytes: Ints
