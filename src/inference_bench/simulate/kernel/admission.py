"""Who joins, and how much memory a step would take: over sums, without visiting those that decode.

In:   State
Out:  State, changed; bytes
Read next by: steps.
"""

from __future__ import annotations

from inference_bench.simulate.kernel.decoders import blocks_of, join, sequence_bytes
from inference_bench.simulate.kernel.state import (
    ADMISSION_LIMIT,
    AFTER,
    ASKS_WHOLE,
    BLOCK,
    BUDGET,
    BY_CHUNK,
    CULPRIT,
    DECODERS,
    FIRST_PREFILL,
    HEAD,
    IS_BARRED,
    MAX_OUTPUT,
    MAX_RUNNING,
    NEXT,
    NONE,
    NUM_CLASSES,
    RESERVED,
    RESERVES,
    RUNNING,
    STACKED,
    STATE_OF_SEQUENCE,
    STEP,
    State,
)


def num_waiting(s: State) -> int:
    """Requests that have come and do not run."""
    return s.counter[STACKED] + s.counter[NEXT] - s.counter[HEAD]


def first_waiting(s: State) -> int:
    """Who is admitted next: the one that gave way last, or else the one that came first."""
    if s.counter[STACKED] > 0:
        return s.stack[s.counter[STACKED] - 1]
    return s.counter[HEAD] if s.counter[HEAD] < s.counter[NEXT] else NONE


def take_first(s: State, request: int) -> None:
    """Out of the queue, and running."""
    if s.counter[STACKED] > 0:
        s.counter[STACKED] -= 1
    else:
        s.counter[HEAD] += 1
    join(s, request)


def admit(s: State) -> None:
    """From the queue, while all it has to read surely fits."""
    if s.counter[IS_BARRED] == 1:
        return
    request = first_waiting(s)
    if request == NONE or s.counter[RUNNING] >= s.counter[MAX_RUNNING]:
        return
    used = s.counter[RESERVED] if s.counter[RESERVES] == 1 else held_bytes(s)
    while request != NONE and s.counter[RUNNING] < s.counter[MAX_RUNNING]:
        used += charge(s, request)
        if used > s.counter[ADMISSION_LIMIT]:
            s.counter[CULPRIT] = request
            return
        take_first(s, request)
        request = first_waiting(s)


def charge(s: State, request: int) -> int:
    """What admitting a request takes, by the policy."""
    if s.counter[RESERVES] == 1:
        return sequence_bytes(s, s.prompt[request] + s.counter[MAX_OUTPUT])
    return sequence_bytes(s, s.prompt[request] + s.generated[request])


def admit_chunks(s: State) -> None:
    """From the queue with what is left of the budget, while the first chunk fits, or all there is to read."""
    request = first_waiting(s)
    if request == NONE or s.counter[RUNNING] >= s.counter[MAX_RUNNING]:
        return
    used = s.counter[AFTER]
    left = s.counter[BUDGET] - s.counter[DECODERS]
    reading = s.counter[FIRST_PREFILL]
    while reading != NONE:
        left -= min(left, s.prompt[reading] + s.generated[reading] - s.filled[reading])
        reading = s.after[reading]
    while request != NONE and s.counter[RUNNING] < s.counter[MAX_RUNNING] and left > 0:
        known = s.prompt[request] + s.generated[request]
        chunk = min(left, known)
        needed = known if s.counter[BY_CHUNK] == ASKS_WHOLE else chunk
        if used + sequence_bytes(s, needed) > s.counter[ADMISSION_LIMIT]:
            s.counter[CULPRIT] = request
            return
        used += sequence_bytes(s, chunk)
        s.counter[AFTER] = used
        take_first(s, request)
        left -= chunk
        request = first_waiting(s)


def held_bytes(s: State) -> int:
    """What those running hold now: decoders without their next position, and the one that has read a part of its prompt."""
    block, step = s.counter[BLOCK], s.counter[STEP]
    total = s.counter[STATE_OF_SEQUENCE] * s.counter[RUNNING]
    for each in range(s.counter[NUM_CLASSES]):
        total += s.block_bytes[each] * (s.blocks[each] - s.phases[each * block + (1 - step) % block])
    reading = s.counter[FIRST_PREFILL]
    if reading != NONE and s.filled[reading] > 0:
        total += sequence_bytes(s, s.filled[reading]) - s.counter[STATE_OF_SEQUENCE]
    return total


def bytes_after(s: State) -> int:
    """What those running hold once the next step is done."""
    block, num_classes, blocks, others = s.counter[BLOCK], s.counter[NUM_CLASSES], s.blocks[0], 0
    for each in range(1, num_classes):
        others += s.block_bytes[each] * s.blocks[each]
    left = s.counter[BUDGET] - s.counter[DECODERS]
    reading = s.counter[FIRST_PREFILL]
    while reading != NONE and left > 0:
        filled = s.filled[reading]
        new = min(left, s.prompt[reading] + s.generated[reading] - filled)
        blocks += (filled + new + block - 1) // block
        for each in range(1, num_classes):
            others += s.block_bytes[each] * blocks_of(min(filled + new, s.limit[each]), block)
        left -= new
        reading = s.after[reading]
    return s.counter[STATE_OF_SEQUENCE] * s.counter[RUNNING] + s.block_bytes[0] * blocks + others
