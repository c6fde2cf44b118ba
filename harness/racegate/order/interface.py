"""What keeps the order of a program's events: the functions that a recorder asks, whoever has them.

`compiled.compiled_order` has them in C. Tests compare it with the same in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from racegate.history.finding import Stack as Stack

Ranges = tuple[tuple[int, int], ...]  # (first byte, one past the last), sorted, not touching
RawAccess = tuple[int, int, int, str, Stack]  # index, lane, number, label, stack
# The earlier access, whether it writes, first byte, one past the last, whether the present one does
RawRace = tuple[RawAccess, bool, int, int, bool]
Raced = tuple[RawAccess, tuple[RawRace, ...]]  # an access and its races


class Order(NamedTuple):
    """Clocks of lanes, and the shadow of memory: what every byte remembers.

    add_lane: whether it is a host thread, the legacy default stream, a stream that waits for that
        one; returns the lane. A thread has begun, so its numbers do too
    lane_of: (thread, stream): the lane of what one thread gives one stream, by the stream's first
    last_number, next_number: of a lane, as it is and after one more
    clock_of, learn: what a lane knows; it comes to know a clock
    make_wait: (thread, lane of its, clock): a thread makes a stream wait for what a clock covers
    put: (thread, lane of its): it gives a stream an operation, of which nothing is remembered: its
        number
    events, count_event: how many events there were; one more
    record: a thread records an event on a stream: what the event covers
    stream_clock: (thread, stream): what a wait of the thread for the stream covers
    issue: (thread, lane of its, label, stack, reads, writes): an operation and its races, None
        without
    host: (thread, label, stack, reads, writes): an access of a thread, likewise
    latest: the access that `issue` or `host` was told last; is_watched: whether it touched memory
        that is watched
    add_memory: first byte, size, whether it is watched: bytes that remember nothing
    adopt: (thread, lane of its or itself, clock, first byte, one past the last): what the clock
        knows of these bytes is known to all who know what the lane does now
    remove_memory, is_memory: of the memory that begins at a byte; that has a byte
    unwritten: (first byte, one past the last, number of an event): what of one stretch nothing has
        written since
    count_cells: what the shadow keeps: ranges of bytes that remember the same
    """

    add_lane: Callable[[bool, bool, bool], int]
    lane_of: Callable[[int, int], int]
    last_number: Callable[[int], int]
    next_number: Callable[[int], int]
    clock_of: Callable[[int], list[int]]
    learn: Callable[[int, list[int]], None]
    make_wait: Callable[[int, int, list[int]], None]
    put: Callable[[int, int], int]
    events: Callable[[], int]
    count_event: Callable[[], int]
    record: Callable[[int, int], list[int]]
    stream_clock: Callable[[int, int], list[int]]
    issue: Callable[[int, int, str, Stack, Ranges, Ranges], Raced | None]
    host: Callable[[int, str, Stack, Ranges, Ranges], Raced | None]
    latest: Callable[[], RawAccess]
    is_watched: Callable[[], bool]
    add_memory: Callable[[int, int, bool], None]
    adopt: Callable[[int, int, list[int], int, int], None]
    remove_memory: Callable[[int], None]
    is_memory: Callable[[int], bool]
    unwritten: Callable[[int, int, int], Ranges]
    count_cells: Callable[[], int]
