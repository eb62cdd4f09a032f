"""Decoding sequences as sums: what they attend, what they hold, and when each ends.

In:   State
Out:  State, changed
Read next by: admission, steps.

A decoder of context t (its next token included) adds min(t, W) to the positions of each class of layers. From step to step every
context grows by one, so each sum grows by the number of decoders within that class's window, and its blocks by the number that
stand at the start of a block.
"""

from __future__ import annotations

from inference_bench.simulate.kernel.state import (
    BLOCK,
    CULPRIT,
    DECODERS,
    DONE,
    FIRST_PREFILL,
    IS_BARRED,
    IS_DECODING,
    IS_READING,
    IS_WAITING,
    LAST_LATE,
    LONE,
    LONGEST,
    MAX_OUTPUT,
    NEWEST,
    NONE,
    NOW,
    NUM_CLASSES,
    OLDEST,
    PREEMPTED_NOW,
    PREEMPTIONS,
    RELEASED,
    RESERVED,
    RESERVES,
    RING,
    RUNNING,
    STACKED,
    STATE_OF_SEQUENCE,
    STEP,
    THINK,
    TOTAL,
    WINDOW_RING,
    State,
)


def blocks_of(positions: int, block: int) -> int:
    """Blocks that hold so many positions."""
    return (positions + block - 1) // block


def sequence_bytes(s: State, positions: int) -> int:
    """What one sequence of so many cached positions takes: `settings.KvMemory.sequence_bytes`."""
    block = s.counter[BLOCK]
    total = s.counter[STATE_OF_SEQUENCE] + s.block_bytes[0] * ((positions + block - 1) // block)
    for each in range(1, s.counter[NUM_CLASSES]):
        total += s.block_bytes[each] * blocks_of(min(positions, s.limit[each]), block)
    return total


def start_decoding(s: State, request: int) -> None:
    """A sequence has given a token and owes one position from now on."""
    step, block, longest = s.counter[STEP], s.counter[BLOCK], s.counter[LONGEST]
    s.offset[request] = s.generated[request] - step
    s.phase[request] = IS_DECODING
    s.began[request] = step
    context = s.prompt[request] + s.generated[request]
    for each in range(s.counter[NUM_CLASSES]):
        limit = s.limit[each]
        if context <= limit:
            s.within[each] += 1
            s.context[each] += context
            s.blocks[each] += blocks_of(context, block)
            s.phases[each * block + (context - step) % block] += 1
            if limit <= longest:
                ring = s.counter[WINDOW_RING]
                s.leaving[each * ring + (step + limit + 1 - context) % ring] += 1
        else:
            s.context[each] += limit
            s.blocks[each] += blocks_of(limit, block)
    place = (s.output[request] - s.offset[request]) % s.counter[RING]
    following = s.bucket[place]
    s.bucket_before[request] = NONE
    s.bucket_after[request] = following
    if following != NONE:
        s.bucket_before[following] = request
    s.bucket[place] = request
    s.counter[DECODERS] += 1


def stop_decoding(s: State, request: int) -> None:
    """A sequence decodes no longer: its answer has ended, or it gives way."""
    step, block, longest = s.counter[STEP], s.counter[BLOCK], s.counter[LONGEST]
    generated = s.offset[request] + step
    s.generated[request] = generated
    context = s.prompt[request] + generated
    for each in range(s.counter[NUM_CLASSES]):
        limit = s.limit[each]
        if context <= limit:
            s.within[each] -= 1
            s.context[each] -= context
            s.blocks[each] -= blocks_of(context, block)
            s.phases[each * block + (context - step) % block] -= 1
            if limit <= longest:
                ring = s.counter[WINDOW_RING]
                s.leaving[each * ring + (step + limit + 1 - context) % ring] -= 1
        else:
            s.context[each] -= limit
            s.blocks[each] -= blocks_of(limit, block)
    previous, following = s.bucket_before[request], s.bucket_after[request]
    if previous == NONE:
        s.bucket[(s.output[request] - s.offset[request]) % s.counter[RING]] = following
    else:
        s.bucket_after[previous] = following
    if following != NONE:
        s.bucket_before[following] = previous
    s.counter[DECODERS] -= 1
    s.last_s[request] = s.clock[NOW]
    if s.counter[LAST_LATE] >= s.began[request]:
        s.late[request] = 1


def grow_contexts(s: State) -> None:
    """A step has happened: every decoder's context is one longer."""
    step, block, ring = s.counter[STEP] + 1, s.counter[BLOCK], s.counter[WINDOW_RING]
    s.counter[STEP] = step
    for each in range(s.counter[NUM_CLASSES]):
        if each > 0:
            place = each * ring + step % ring
            gone = s.leaving[place]
            if gone > 0:
                s.leaving[place] = 0
                s.within[each] -= gone
                s.phases[each * block + (s.limit[each] + 1 - step) % block] -= gone
        s.context[each] += s.within[each]
        s.blocks[each] += s.phases[each * block + (1 - step) % block]


def end_due(s: State) -> None:
    """The answers that end with this step."""
    place = s.counter[STEP] % s.counter[RING]
    while s.bucket[place] != NONE:
        request = s.bucket[place]
        stop_decoding(s, request)
        end(s, request)


def end(s: State, request: int) -> None:
    """A request is done: its place is free, and in a closed loop its user will send another."""
    leave(s, request)
    s.last_s[request] = s.clock[NOW]
    s.counter[DONE] += 1
    free_user(s)


def free_user(s: State) -> None:
    """In a closed loop, whose answer has ended sends the next request after thinking."""
    released = s.counter[RELEASED]
    if released < s.counter[TOTAL]:
        s.arrival[released] = s.clock[NOW] + s.clock[THINK]
        s.counter[RELEASED] = released + 1


def leave(s: State, request: int) -> None:
    """Out of the list of those running."""
    previous, following = s.before[request], s.after[request]
    if previous == NONE:
        s.counter[OLDEST] = following
    else:
        s.after[previous] = following
    if following == NONE:
        s.counter[NEWEST] = previous
    else:
        s.before[following] = previous
    s.counter[RUNNING] -= 1
    s.phase[request] = IS_WAITING
    if s.counter[RESERVES] == 1:
        s.counter[RESERVED] -= sequence_bytes(s, s.prompt[request] + s.counter[MAX_OUTPUT])


def join(s: State, request: int) -> None:
    """Admitted: the newest of those running, with all of its prompt and answer so far to read."""
    newest = s.counter[NEWEST]
    s.before[request], s.after[request] = newest, NONE
    if newest == NONE:
        s.counter[OLDEST] = request
    else:
        s.after[newest] = request
    s.counter[NEWEST] = request
    s.counter[RUNNING] += 1
    s.phase[request], s.filled[request] = IS_READING, 0
    if s.counter[FIRST_PREFILL] == NONE:
        s.counter[FIRST_PREFILL] = request
    if s.counter[RESERVES] == 1:
        s.counter[RESERVED] += sequence_bytes(s, s.prompt[request] + s.counter[MAX_OUTPUT])


def give_way(s: State) -> int:
    """The newest gives way and waits in front of all others; 0, or LONE where nobody else runs."""
    request = s.counter[NEWEST]
    if s.counter[RUNNING] == 1:
        s.counter[CULPRIT] = request
        if s.phase[request] == IS_DECODING:
            s.generated[request] = s.offset[request] + s.counter[STEP]
        return LONE
    if s.phase[request] == IS_DECODING:
        stop_decoding(s, request)
    elif s.counter[FIRST_PREFILL] == request:
        s.counter[FIRST_PREFILL] = NONE
    leave(s, request)
    s.filled[request] = 0
    s.stack[s.counter[STACKED]] = request
    s.counter[STACKED] += 1
    s.counter[PREEMPTIONS] += 1
    s.counter[PREEMPTED_NOW] += 1
    s.preempted[request] += 1
    if s.stamp[request] == s.counter[STEP] + 1:
        s.counter[IS_BARRED] = 1
    s.stamp[request] = s.counter[STEP] + 1
    return 0
