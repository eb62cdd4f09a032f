"""Batches over arrays: static, static within memory, dynamic. The rules are in `simulate.batches`.

In:   State
Out:  State, changed; why it stopped
Read next by: engine.
"""

from __future__ import annotations

from inference_bench.simulate.kernel.decoders import free_user, sequence_bytes
from inference_bench.simulate.kernel.pricing import attended_pairs, cached_reads, step_seconds
from inference_bench.simulate.kernel.state import (
    ADMISSION_LIMIT,
    CHECKS_MEMORY,
    CULPRIT,
    DONE,
    FINISHED,
    GAP_ROOM,
    HEAD,
    IN_SYSTEM,
    LAST_LATE,
    MAX_BATCH,
    MAX_GAP,
    MAX_OUTPUT,
    MORE,
    NEVER,
    NEVER_ADMITTED,
    NEXT,
    NOW,
    NUM_CLASSES,
    NUM_GAPS,
    PADS,
    RELEASED,
    STEP,
    TIMEOUT,
    TOTAL,
    State,
)
from inference_bench.simulate.kernel.steps import keep_point, note_gap, pass_time, take_arrivals


def advance_batches(s: State, most_requests: int) -> int:
    """Run until all are done, or so many more are, or the room for pauses is full; why it stopped."""
    target = min(s.counter[TOTAL], s.counter[DONE] + most_requests)
    while s.counter[DONE] < target:
        take_arrivals(s)
        size = batch_size(s)
        if size < 0:
            return NEVER_ADMITTED
        if size == 0:
            wait(s)
            continue
        if s.counter[NUM_GAPS] + longest_output(s, size) > s.counter[GAP_ROOM]:
            return MORE
        serve(s, s.counter[HEAD], size)
    return FINISHED if s.counter[DONE] == s.counter[TOTAL] else MORE


def due_s(s: State) -> float:
    """When the oldest has waited enough."""
    if s.counter[HEAD] == s.counter[NEXT]:
        return NEVER
    return s.arrival[s.counter[HEAD]] + s.clock[TIMEOUT]


def batch_size(s: State) -> int:
    """How many to send off now: 0 while it is too early, -1 where not even the first fits."""
    head, waiting = s.counter[HEAD], s.counter[NEXT] - s.counter[HEAD]
    most = min(waiting, s.counter[MAX_BATCH])
    size = most
    if s.counter[CHECKS_MEMORY] == 1:
        used, size = 0, 0
        while size < most:
            used += sequence_bytes(s, s.prompt[head + size] + s.counter[MAX_OUTPUT])
            if used > s.counter[ADMISSION_LIMIT]:
                break
            size += 1
        if size == 0 and waiting > 0:
            s.counter[CULPRIT] = head
            return -1
    if size == s.counter[MAX_BATCH] or size < waiting or s.clock[NOW] >= due_s(s):
        return size
    return 0


def wait(s: State) -> None:
    """Until somebody comes, or the oldest has waited enough."""
    until = due_s(s)
    if s.counter[NEXT] < s.counter[RELEASED]:
        until = min(until, s.arrival[s.counter[NEXT]])
    s.clock[IN_SYSTEM] += (s.counter[NEXT] - s.counter[HEAD]) * (until - s.clock[NOW])
    s.clock[NOW] = until


def longest_output(s: State, size: int) -> int:
    """Tokens of the longest answer of the batch at the head of the queue."""
    longest = 0
    for request in range(s.counter[HEAD], s.counter[HEAD] + size):
        longest = max(longest, s.output[request])
    return longest


def serve(s: State, head: int, size: int) -> None:
    """A batch from its prompts to its longest answer.

    Where:  given tokens are the same for all of it, so a slot's context is its prompt and as many
    """
    s.counter[HEAD] = head + size
    step_of_batch(s, head, size, 0, size, True)
    for request in range(head, head + size):
        s.first_s[request] = s.clock[NOW]
        s.began[request] = s.counter[STEP]
    active, given = end_finished(s, head, size, 1, size), 1
    while active > 0:
        until = next_end(s, head, size, given)
        if s.counter[NUM_CLASSES] == 1:
            given = decode_batch(s, head, size, given, until, active)
        while given < until:
            step_of_batch(s, head, size, given, active, False)
            given += 1
        active = end_finished(s, head, size, given, active)


def next_end(s: State, head: int, size: int, given: int) -> int:
    """Tokens of the shortest answer that is longer than what was given."""
    shortest = 0
    for request in range(head, head + size):
        if s.output[request] > given and (shortest == 0 or s.output[request] < shortest):
            shortest = s.output[request]
    return shortest


def decode_batch(s: State, head: int, size: int, given: int, until: int, active: int) -> int:
    """Steps in which nobody ends, but for the last of them, which is left to `step_of_batch`; tokens given by then."""
    slots = size if s.counter[PADS] == 1 else active
    context = 0
    for request in range(head, head + size):
        if s.counter[PADS] == 1 or s.output[request] > given:
            context += s.prompt[request] + given
    waiting = s.counter[NEXT] - s.counter[HEAD]
    while given < until - 1:
        seconds = step_seconds(
            s.coefficients, s.table, slots, slots, context - slots, context, 0.0, 0.0, slots, context
        )
        note_batch_gap(s, pass_time(s, seconds, waiting + active), active)
        context += slots
        given += 1
    return given


def note_batch_gap(s: State, gap: float, active: int) -> None:
    """A step of the batch has happened to those that still answer."""
    note_gap(s, gap, active)
    if gap > s.clock[MAX_GAP]:
        s.counter[LAST_LATE] = s.counter[STEP]
    s.counter[STEP] += 1


def end_finished(s: State, head: int, size: int, given: int, active: int) -> int:
    """The answers that end with so many tokens; how many go on."""
    for request in range(head, head + size):
        if s.output[request] == given:
            active -= 1
            s.last_s[request] = s.clock[NOW]
            s.generated[request] = given
            s.counter[DONE] += 1
            if s.counter[LAST_LATE] >= s.began[request]:
                s.late[request] = 1
            free_user(s)
    return active


def step_of_batch(s: State, head: int, size: int, given: int, active: int, is_prompt: bool) -> None:
    """One step: all prompts, or one position of every slot that takes part."""
    positions, sequences, cached, pairs, used = 0, 0, 0, 0, 0
    decodes, context = 0, 0
    for each in range(1, s.counter[NUM_CLASSES]):
        s.reads[each], s.pairs[each] = 0, 0
    for request in range(head, head + size):
        if given > 0 and s.counter[PADS] == 0 and s.output[request] <= given:
            continue
        filled = 0 if is_prompt else s.prompt[request] + given - 1
        new = s.prompt[request] if is_prompt else 1
        positions += new
        sequences += 1
        cached += filled
        pairs += new * filled + new * (new + 1) // 2
        used += sequence_bytes(s, filled + new)
        if not is_prompt:
            decodes += 1
            context += filled + 1
        for each in range(1, s.counter[NUM_CLASSES]):
            s.reads[each] += cached_reads(filled, s.limit[each])
            s.pairs[each] += attended_pairs(filled, new, s.limit[each])
    extra_bytes, extra_flops = 0.0, 0.0
    for each in range(1, s.counter[NUM_CLASSES]):
        extra_bytes += s.read_bytes[each] * s.reads[each]
        extra_flops += s.pair_flops[each] * s.pairs[each]
    seconds = step_seconds(
        s.coefficients, s.table, positions, sequences, cached, pairs, extra_bytes, extra_flops, decodes, context
    )
    note_batch_step(s, seconds, active, used, is_prompt)


def note_batch_step(s: State, seconds: float, active: int, used: int, is_prompt: bool) -> None:
    """The step in the clocks, the pauses and the timeline."""
    waiting = s.counter[NEXT] - s.counter[HEAD]
    keep_point(s, waiting, active, used)
    gap = pass_time(s, seconds, waiting + active)
    if is_prompt:
        s.counter[STEP] += 1
    else:
        note_batch_gap(s, gap, active)
