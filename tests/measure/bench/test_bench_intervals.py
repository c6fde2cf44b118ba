"""Busy and idle times, against counting nanoseconds one by one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from racegate.measure.bench.intervals import DeviceSpan, covered, idle_of, union

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def places(intervals: list[tuple[int, int]]) -> set[int]:
    return {place for first, end in intervals for place in range(first, end)}


@given(INTERVALS)
def test_a_union_covers_the_same_and_lies_apart(intervals: list[tuple[int, int]]) -> None:
    merged = union(intervals)
    assert places(merged) == places(intervals)
    assert all(first < end for first, end in merged)
    assert all(end < later for (_, end), (later, _) in pairwise(merged))


@given(INTERVALS, st.integers(0, 40), st.integers(0, 40))
def test_covered_counts_what_lies_inside(
    intervals: list[tuple[int, int]], first: int, end: int
) -> None:
    inside = places(intervals) & set(range(first, end))
    assert covered(union(intervals), first, end) == len(inside)


@st.composite
def traces(draw: st.DrawFn) -> list[DeviceSpan]:
    """Steps of a compute stream, kernel after kernel, with anything beside it."""
    spans, now = [], 0
    for _ in range(draw(st.integers(2, 5))):
        for name in ("layer", "layer", "last"):
            first = now + draw(st.integers(0, 3))
            now = first + draw(st.integers(1, 4))
            spans.append(DeviceSpan(name, 1, first, now))
    for first, end in draw(INTERVALS):
        spans.append(DeviceSpan("copy", 2, first, max(first, end), is_kernel=False))
    return draw(st.permutations(spans))


@given(traces())
def test_idle_is_what_no_operation_covers(spans: list[DeviceSpan]) -> None:
    idle = idle_of(spans, last="last")
    assert idle is not None
    ends = sorted(span.end for span in spans if span.name == "last")
    window = set(range(ends[0], ends[-1]))
    busy = places([(span.first, span.end) for span in spans])
    starts = sorted(span.first for span in spans if span.stream == 1)
    gaps = {p for e in ends[:-1] for p in range(e, min(s for s in starts if s >= e))}
    assert (idle.steps, idle.total) == (len(ends) - 1, len(window))
    assert idle.busy == len(window & busy)
    assert idle.between == len(gaps - busy)
    assert 0.0 <= idle.between_share <= idle.idle_share <= 1.0


def test_skipped_steps_do_not_count() -> None:
    ends = (10, 100, 110, 120)
    spans = [DeviceSpan("last", 1, end - 5, end) for end in ends]
    every, late = idle_of(spans, last="last"), idle_of(spans, last="last", skip=1)
    assert every is not None and late is not None
    assert (every.steps, every.total, late.steps, late.total) == (3, 110, 2, 20)
    assert late.between == 10


def test_without_two_ends_nothing_is_known() -> None:
    assert idle_of([], last="last") is None
    assert idle_of([DeviceSpan("last", 1, 0, 5), DeviceSpan("layer", 1, 6, 7)], last="last") is None
    assert idle_of([DeviceSpan("last", 1, 0, 5, is_kernel=False)] * 3, last="last") is None
