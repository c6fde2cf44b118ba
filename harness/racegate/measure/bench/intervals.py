"""When a device was busy and when idle, from the operations that a profiler saw. Pure arithmetic.

A step ends with its last kernel, which is known by name. What is counted runs from the end of one
step to the end of a later one, so that it holds whole steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class DeviceSpan(msgspec.Struct, frozen=True, gc=False):
    """One operation on the device, in nanoseconds; `end` is behind it."""

    name: str
    stream: int
    first: int
    end: int
    is_kernel: bool = True


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds of a number of whole steps.

    busy: something ran, on any stream
    between: nothing ran, behind the last kernel of a step and before the next kernel of its stream
    """

    steps: int
    total: int
    busy: int
    between: int

    @property
    def idle_share(self) -> float:
        """Of the time in which nothing ran."""
        return 1.0 - self.busy / self.total

    @property
    def between_share(self) -> float:
        """Of the time in which nothing ran from one step to the next."""
        return self.between / self.total


def union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What intervals [first, end) cover together: apart, rising, none empty."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(intervals):
        if end <= first:
            continue
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((first, end))
    return merged


def covered(merged: Iterable[tuple[int, int]], first: int, end: int) -> int:
    """How much of [first, end) intervals cover that are apart."""
    return sum(max(0, min(end, stop) - max(first, start)) for start, stop in merged)


def idle_of(spans: Sequence[DeviceSpan], *, last: str, skip: int = 0) -> Idle | None:
    """Idle times over all whole steps; None if there are not two ends of a step.

    last: what the name of a step's last kernel holds
    skip: steps at the beginning that do not count
    """
    ends = sorted((s.end, s.stream) for s in spans if s.is_kernel and last in s.name)[skip:]
    if len(ends) < 2 or ends[-1][0] <= ends[0][0]:
        return None
    stream, first, end = ends[0][1], ends[0][0], ends[-1][0]
    merged = union((span.first, span.end) for span in spans)
    starts = sorted(s.first for s in spans if s.is_kernel and s.stream == stream)
    between = 0
    for step_end, _ in ends[:-1]:
        follower = next((start for start in starts if start >= step_end), end)
        between += follower - step_end - covered(merged, step_end, follower)
    return Idle(
        steps=len(ends) - 1, total=end - first, busy=covered(merged, first, end), between=between
    )
