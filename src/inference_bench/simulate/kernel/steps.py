"""The loop of the iteration-level policies, a step at a time, and many at once while all that run decode.

In:   State
Out:  State, changed; why it stopped
Read next by: engine.

While nobody reads a prompt and the head of the queue cannot be admitted, nothing changes from step to step but the sums, until an
answer ends, memory runs out, or somebody comes to an empty queue: `decode` runs such a stretch in a tight loop.
"""

from __future__ import annotations

from inference_bench.simulate.kernel.admission import admit, admit_chunks, bytes_after, num_waiting
from inference_bench.simulate.kernel.decoders import end, end_due, give_way, grow_contexts, start_decoding
from inference_bench.simulate.kernel.pricing import (
    BANDWIDTH,
    COMPUTE,
    FLOPS_PAIR,
    READ_BYTES,
    SERIAL_SHARE,
    VECTOR_S,
    attended_pairs,
    cached_reads,
    constant_bytes,
    constant_flops,
    constant_seconds,
    moved_bytes,
    overlapped,
    step_seconds,
)
from inference_bench.simulate.kernel.state import (
    AFTER,
    BLOCK,
    BUDGET,
    BUSY,
    BY_CHUNK,
    DECODERS,
    DONE,
    FINISHED,
    FIRST_PREFILL,
    GAP_ROOM,
    IN_SYSTEM,
    IS_BARRED,
    LAST_LATE,
    MAX_GAP,
    MAX_RUNNING,
    MEMORY,
    MORE,
    NEVER,
    NEVER_ADMITTED,
    NEXT,
    NONE,
    NOW,
    NUM_CLASSES,
    NUM_GAPS,
    NUM_POINTS,
    PEAK,
    POINT_ROOM,
    PREEMPTED_NOW,
    RELEASED,
    RING,
    RUNNING,
    SEEN_POINTS,
    STATE_OF_SEQUENCE,
    STEP,
    STRIDE,
    TOTAL,
    State,
)


def advance(s: State, most_requests: int) -> int:
    """Run until all are done, or so many more are, or the room for pauses is full; why it stopped."""
    target = min(s.counter[TOTAL], s.counter[DONE] + most_requests)
    while s.counter[DONE] < target:
        if s.counter[NUM_GAPS] + s.counter[MAX_RUNNING] + 2 > s.counter[GAP_ROOM]:
            return MORE
        if s.counter[RUNNING] == 0 and num_waiting(s) == 0:
            s.clock[NOW] = max(s.clock[NOW], s.arrival[s.counter[NEXT]])
        take_arrivals(s)
        stopped = plan(s)
        if stopped != 0:
            return stopped
        add_point(s)
        if s.counter[FIRST_PREFILL] != NONE:
            read_and_decode(s)
        elif s.counter[NUM_CLASSES] == 1 and s.table[0] == 0.0:
            decode(s)
        else:
            decode_step(s)
    return FINISHED if s.counter[DONE] == s.counter[TOTAL] else MORE


def take_arrivals(s: State) -> None:
    """Those that have come by now join the queue."""
    now, index = s.clock[NOW], s.counter[NEXT]
    while index < s.counter[RELEASED] and s.arrival[index] <= now:
        s.clock[IN_SYSTEM] += now - s.arrival[index]
        index += 1
    s.counter[NEXT] = index


def plan(s: State) -> int:
    """Who is in the next step; 0, or why there can be none."""
    s.counter[PREEMPTED_NOW] = 0
    s.counter[IS_BARRED] = 0
    by_chunk = s.counter[BY_CHUNK] > 0
    while True:
        if not by_chunk:
            admit(s)
        s.counter[AFTER] = bytes_after(s)
        if s.counter[RUNNING] == 0 or s.counter[AFTER] <= s.counter[MEMORY]:
            break
        stopped = give_way(s)
        if stopped != 0:
            return stopped
    if by_chunk and s.counter[PREEMPTED_NOW] == 0:
        admit_chunks(s)
    return NEVER_ADMITTED if s.counter[RUNNING] == 0 else 0


def pass_time(s: State, seconds: float, present: int) -> float:
    """The clock moves on by a step; how far it really moved."""
    began = s.clock[NOW]
    s.clock[NOW] = began + seconds
    moved = s.clock[NOW] - began
    s.clock[IN_SYSTEM] += present * moved
    s.clock[BUSY] += moved
    return moved


def note_gap(s: State, gap: float, count: int) -> None:
    """So many answers paused for so long."""
    place = s.counter[NUM_GAPS]
    s.gaps[place] = gap
    s.gap_counts[place] = count
    s.counter[NUM_GAPS] = place + 1


def read_and_decode(s: State) -> None:
    """A step in which prompts are read, beside all that decode."""
    num_decoders = s.counter[DECODERS]
    positions, sequences = num_decoders, num_decoders
    cached, pairs = s.context[0] - num_decoders, s.context[0]
    for each in range(1, s.counter[NUM_CLASSES]):
        s.reads[each] = s.context[each] - num_decoders
        s.pairs[each] = s.context[each]
    left = s.counter[BUDGET] - num_decoders
    reading = s.counter[FIRST_PREFILL]
    last, last_new = NONE, 0
    while reading != NONE and left > 0:
        filled = s.filled[reading]
        last, last_new = reading, min(left, s.prompt[reading] + s.generated[reading] - filled)
        positions += last_new
        sequences += 1
        cached += filled
        pairs += last_new * filled + last_new * (last_new + 1) // 2
        for each in range(1, s.counter[NUM_CLASSES]):
            s.reads[each] += cached_reads(filled, s.limit[each])
            s.pairs[each] += attended_pairs(filled, last_new, s.limit[each])
        left -= last_new
        reading = s.after[reading]
    extra_bytes, extra_flops = 0.0, 0.0
    for each in range(1, s.counter[NUM_CLASSES]):
        extra_bytes += s.read_bytes[each] * s.reads[each]
        extra_flops += s.pair_flops[each] * s.pairs[each]
    seconds = step_seconds(
        s.coefficients,
        s.table,
        positions,
        sequences,
        cached,
        pairs,
        extra_bytes,
        extra_flops,
        num_decoders,
        s.context[0],
    )
    after_step(s, seconds)
    apply_reading(s, last, last_new)


def after_step(s: State, seconds: float) -> None:
    """A step has happened to all that decode."""
    gap = pass_time(s, seconds, s.counter[RUNNING] + num_waiting(s))
    num_decoders = s.counter[DECODERS]
    if num_decoders > 0:
        note_gap(s, gap, num_decoders)
        if gap > s.clock[MAX_GAP]:
            s.counter[LAST_LATE] = s.counter[STEP]
    grow_contexts(s)
    end_due(s)


def apply_reading(s: State, last: int, last_new: int) -> None:
    """A step has happened to those that read: all but the last of them have read everything."""
    reading = s.counter[FIRST_PREFILL]
    while True:
        following = s.after[reading]
        owed = s.prompt[reading] + s.generated[reading] - s.filled[reading]
        new = last_new if reading == last else owed
        s.filled[reading] += new
        if new == owed:
            s.counter[FIRST_PREFILL] = following
            give_token(s, reading)
        if reading == last:
            return
        reading = following


def give_token(s: State, request: int) -> None:
    """A sequence that has read all gives a token: its first, or its next after it gave way."""
    now = s.clock[NOW]
    if s.generated[request] == 0:
        s.first_s[request] = now
    else:
        gap = now - s.last_s[request]
        note_gap(s, gap, 1)
        if gap > s.clock[MAX_GAP]:
            s.late[request] = 1
    s.generated[request] += 1
    if s.generated[request] == s.output[request]:
        end(s, request)
    else:
        start_decoding(s, request)


def decode_step(s: State) -> None:
    """One step in which all that run decode, for layers with windows and for tables of times."""
    num_decoders = s.counter[DECODERS]
    extra_bytes, extra_flops = 0.0, 0.0
    for each in range(1, s.counter[NUM_CLASSES]):
        extra_bytes += s.read_bytes[each] * (s.context[each] - num_decoders)
        extra_flops += s.pair_flops[each] * s.context[each]
    context = s.context[0]
    seconds = step_seconds(
        s.coefficients,
        s.table,
        num_decoders,
        num_decoders,
        context - num_decoders,
        context,
        extra_bytes,
        extra_flops,
        num_decoders,
        context,
    )
    after_step(s, seconds)


def decode(s: State) -> None:
    """Steps in which all that run decode, until something else happens."""
    num_decoders, block = s.counter[DECODERS], s.counter[BLOCK]
    bytes_before = constant_bytes(s.coefficients, num_decoders, num_decoders)
    flops_before = constant_flops(s.coefficients, num_decoders, num_decoders)
    besides = constant_seconds(s.coefficients, num_decoders, num_decoders)
    by_vector, bytes_moved = (
        s.coefficients[VECTOR_S] * num_decoders,
        moved_bytes(s.coefficients, num_decoders, num_decoders),
    )
    read_bytes, pair_flops = s.coefficients[READ_BYTES], s.coefficients[FLOPS_PAIR]
    bandwidth, compute_rate, serial = s.coefficients[BANDWIDTH], s.coefficients[COMPUTE], s.coefficients[SERIAL_SHARE]
    most_blocks = (s.counter[MEMORY] - s.counter[STATE_OF_SEQUENCE] * num_decoders) // max(1, s.block_bytes[0])
    now, began, max_gap = s.clock[NOW], s.clock[NOW], s.clock[MAX_GAP]
    step, ring, context, blocks, place = (
        s.counter[STEP],
        s.counter[RING],
        s.context[0],
        s.blocks[0],
        s.counter[NUM_GAPS],
    )
    stop_s, last_place = stretch_end(s), s.counter[GAP_ROOM] - 2
    if s.counter[PREEMPTED_NOW] > 0 or s.counter[IS_BARRED] == 1:
        last_place = place
    gaps, gap_counts, phases, bucket = s.gaps, s.gap_counts, s.phases, s.bucket
    last_late, held = s.counter[LAST_LATE], blocks
    while True:
        memory = (bytes_before + read_bytes * (context - num_decoders)) / bandwidth
        compute = (flops_before + pair_flops * context) / compute_rate
        before = now
        seconds = memory + serial * compute if memory >= compute else compute + serial * memory
        if by_vector > 0.0:
            memory = (bytes_moved + read_bytes * (context - num_decoders)) / bandwidth
            compute = pair_flops * context / compute_rate
            seconds = min(seconds, by_vector + overlapped(memory, compute, serial))
        now += seconds + besides
        gap = now - before
        gaps[place] = gap
        gap_counts[place] = num_decoders
        place += 1
        if gap > max_gap:
            last_late = step
        held = blocks
        step += 1
        context += num_decoders
        blocks += phases[(1 - step) % block]
        if bucket[step % ring] != NONE or now >= stop_s or blocks > most_blocks or place > last_place:
            break
    s.clock[NOW] = now
    s.clock[IN_SYSTEM] += (s.counter[RUNNING] + num_waiting(s)) * (now - began)
    s.clock[BUSY] += now - began
    s.counter[STEP], s.counter[NUM_GAPS], s.counter[LAST_LATE] = step, place, last_late
    s.context[0], s.blocks[0] = context, blocks
    s.counter[PEAK] = max(s.counter[PEAK], s.block_bytes[0] * held + s.counter[STATE_OF_SEQUENCE] * num_decoders)
    end_due(s)


def stretch_end(s: State) -> float:
    """When the next comes to an empty queue with room to run."""
    is_watching = num_waiting(s) == 0 and s.counter[RUNNING] < s.counter[MAX_RUNNING]
    return s.arrival[s.counter[NEXT]] if is_watching and s.counter[NEXT] < s.counter[RELEASED] else NEVER


def add_point(s: State) -> None:
    """Where the server stands before a step."""
    keep_point(s, num_waiting(s), s.counter[RUNNING], s.counter[AFTER])


def keep_point(s: State, waiting: int, running: int, used: int) -> None:
    """The timeline, thinned out whenever it is full; and the most the cache ever held."""
    s.counter[PEAK] = max(s.counter[PEAK], used)
    if s.counter[SEEN_POINTS] % s.counter[STRIDE] == 0:
        place = s.counter[NUM_POINTS]
        s.point_time[place], s.point_bytes[place] = s.clock[NOW], used
        s.point_waiting[place], s.point_running[place] = waiting, running
        s.counter[NUM_POINTS] = place + 1
        if place + 1 == s.counter[POINT_ROOM]:
            thin_points(s)
    s.counter[SEEN_POINTS] += 1


def thin_points(s: State) -> None:
    """Every second point goes."""
    half = s.counter[POINT_ROOM] // 2
    for place in range(half):
        s.point_time[place], s.point_bytes[place] = s.point_time[2 * place], s.point_bytes[2 * place]
        s.point_waiting[place], s.point_running[place] = s.point_waiting[2 * place], s.point_running[2 * place]
    s.counter[NUM_POINTS] = half
    s.counter[STRIDE] *= 2
