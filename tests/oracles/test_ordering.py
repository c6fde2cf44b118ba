"""The ordering oracle on hand-made traces, and against brute force on random ones."""

from __future__ import annotations

import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.history.trace import HOST, Conflict, Misowned, Queried, Trace, TraceEvent
from racegate.oracles.ordering import find_conflicts, has_unordered_query
from stories import (
    ROWS,
    S0,
    S1,
    S2,
    Pair,
    Story,
    all_pairs,
    listed_pairs,
    nearest_pairs,
    read,
    stories,
    stories_of_ranks,
    wide_stories,
    write,
)


def conflicts_of(story: Story) -> int:
    return len(find_conflicts(story.trace()))


def test_write_then_read_on_another_stream() -> None:
    story = Story()
    story.op(S0, write())
    story.op(S1, read())
    assert conflicts_of(story) == 1


def test_every_access_of_many_is_remembered() -> None:
    """More than are looked through one by one, of one row each and of all rows."""
    story = Story()
    for row in range(200):
        story.op(S0, write(1 << row))
    story.op(S1, read((1 << 200) - 1))
    assert conflicts_of(story) == 200
    story.op(S2, write((1 << 200) - 1))
    assert conflicts_of(story) == 401


def test_an_edge_orders_them() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, S1)
    story.op(S1, read())
    assert conflicts_of(story) == 0


def test_a_dropped_edge_orders_nothing() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, S1, is_dropped=True)
    story.op(S1, read())
    assert conflicts_of(story) == 1


def test_two_reads_do_not_conflict() -> None:
    story = Story()
    story.op(S0, read())
    story.op(S1, read())
    assert conflicts_of(story) == 0


def test_disjoint_rows_do_not_conflict() -> None:
    story = Story()
    story.op(S0, write(0b0011))
    story.op(S1, write(0b1100))
    assert conflicts_of(story) == 0


def test_overlapping_rows_conflict() -> None:
    story = Story()
    story.op(S0, write(0b0110))
    story.op(S1, read(0b1100))
    assert conflicts_of(story) == 1


def test_other_storage_does_not_conflict() -> None:
    story = Story()
    story.op(S0, write(storage=1))
    story.op(S1, write(storage=2))
    assert conflicts_of(story) == 0


def test_host_access_before_the_issue_is_ordered() -> None:
    story = Story()
    story.host(write())
    story.op(S0, read())
    assert conflicts_of(story) == 0


def test_host_access_after_the_issue_is_not() -> None:
    story = Story()
    story.op(S0, read())
    story.host(write())
    assert conflicts_of(story) == 1


def test_host_read_under_a_device_read_is_harmless() -> None:
    story = Story()
    story.op(S0, read())
    story.host(read())
    assert conflicts_of(story) == 0


def test_a_host_wait_orders_what_follows() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, HOST)
    story.host(read())
    story.host(write())
    assert conflicts_of(story) == 0


def test_order_passes_through_the_host_to_another_stream() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, HOST)
    story.op(S1, write())
    assert conflicts_of(story) == 0


def test_a_record_covers_only_what_precedes_it() -> None:
    story = Story()
    story.record(S0)
    story.op(S0, write())
    story.wait(S1)
    story.op(S1, read())
    assert conflicts_of(story) == 1


def test_each_unordered_reader_of_a_write_is_reported() -> None:
    story = Story()
    story.op(S0, write())
    story.op(S1, read())
    story.host(read())
    assert conflicts_of(story) == 2


def test_a_reader_hidden_behind_a_later_reader_of_its_lane_still_counts() -> None:
    # The later read is unordered as well, and stands for the earlier one.
    story = Story()
    story.op(S0, read())
    story.op(S0, read())
    story.op(S1, write())
    assert conflicts_of(story) == 1


def test_a_read_covers_only_its_rows_and_its_lane() -> None:
    story = Story()
    story.op(S0, read(0b01))
    story.op(S1, read(0b11))
    story.op(S0, read(0b10))
    story.op(S2, write(0b11))
    # Rows by reader: S0 twice, S1 once.
    assert pairs_of(story) == {
        Pair(0, 0, 0, False, 3, True),
        Pair(0, 0, 1, False, 3, True),
        Pair(1, 0, 1, False, 3, True),
        Pair(1, 0, 2, False, 3, True),
    }


def test_a_write_covers_only_its_rows() -> None:
    story = Story()
    story.op(S0, write(0b11))
    story.edge(S0, S1)
    story.op(S1, write(0b01))
    story.op(S2, read(0b11))
    assert {(pair.row, pair.first) for pair in pairs_of(story)} == {(0, 3), (1, 0)}


def pairs_of(story: Story) -> set[Pair]:
    """What the oracle reports, row by row."""
    places = {id(event): place for place, event in enumerate(story.recorder.events)}
    found = set()
    for conflict in find_conflicts(story.trace()):
        assert conflict.rows
        storage = int(conflict.buffer.removeprefix("b"))
        for row in range(conflict.rows.bit_length()):
            if conflict.rows >> row & 1:
                found.add(_pair(conflict, places, row, storage))
    return found


def _pair(conflict: Conflict, places: dict[int, int], row: int, storage: int) -> Pair:
    return Pair(
        row=row,
        storage=storage,
        first=places[id(conflict.first)],
        first_writes=conflict.first_writes,
        second=places[id(conflict.second)],
        second_writes=conflict.second_writes,
    )


@given(stories)
@settings(max_examples=250)
def test_it_reports_the_nearest_unordered_pairs_and_no_others(story: Story) -> None:
    assert pairs_of(story) == nearest_pairs(story)


def listed(story: Story) -> list[tuple[int, int, int, bool, int, bool]]:
    """What the oracle reports, as it reports it."""
    places = {id(event): place for place, event in enumerate(story.recorder.events)}
    return [
        (
            int(conflict.buffer.removeprefix("b")),
            conflict.rows,
            places[id(conflict.first)],
            conflict.first_writes,
            places[id(conflict.second)],
            conflict.second_writes,
        )
        for conflict in find_conflicts(story.trace())
    ]


@given(stories)
@settings(max_examples=250)
def test_it_lists_them_in_the_order_of_accesses(story: Story) -> None:
    assert listed(story) == listed_pairs(story)


@given(wide_stories)
@settings(max_examples=40, deadline=None)
def test_so_it_does_where_many_accesses_of_few_rows_are_indexed(story: Story) -> None:
    assert listed(story) == listed_pairs(story)


@given(stories)
@settings(max_examples=250)
def test_a_row_has_a_conflict_exactly_if_any_two_accesses_have_no_order(story: Story) -> None:
    rows = {(pair.storage, pair.row) for pair in all_pairs(story)}
    assert {(pair.storage, pair.row) for pair in pairs_of(story)} == rows


def retold(story: Story, draw: random.Random) -> Trace:
    """What each rank did, in its order, and the ranks in any: some wait for what comes later."""
    told = story.trace()
    hosts = told.hosts()
    left: dict[int, deque[TraceEvent]] = {}
    for event in told.events:
        assert not isinstance(event, Queried | Misowned)
        left.setdefault(hosts[event.lane], deque()).append(event)
    order = [host for host, queue in left.items() for _ in queue]
    draw.shuffle(order)
    return Trace(lanes=told.lanes, events=tuple(left[host].popleft() for host in order))


@given(stories_of_ranks, st.integers(0, 1 << 32).map(random.Random))
@settings(max_examples=100)
def test_ranks_are_judged_alike_however_their_histories_are_told(
    story: Story, draw: random.Random
) -> None:
    places = {id(event): place for place, event in enumerate(story.recorder.events)}
    unordered = {frozenset((pair.first, pair.second)) for pair in all_pairs(story)}
    found = find_conflicts(retold(story, draw))
    for each in found:
        assert frozenset((places[id(each.first)], places[id(each.second)])) in unordered
    rows = {(each.buffer, row) for each in found for row in range(ROWS) if each.rows >> row & 1}
    assert rows == {(f"b{pair.storage}", pair.row) for pair in all_pairs(story)}


@given(stories)
def test_a_query_is_a_branch_exactly_if_something_before_the_record_was_not_known(
    story: Story,
) -> None:
    assert has_unordered_query(story.trace()) == (not all(story.queries))


def test_an_unordered_query_is_a_branch() -> None:
    story = Story()
    story.op(S0, write())
    story.record(S0)
    story.query()
    assert has_unordered_query(story.trace())


def test_a_query_behind_a_wait_is_not() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, HOST)
    story.query()
    assert not has_unordered_query(story.trace())
