"""One order, twice: the Python and the compiled clocks and shadows against paths over a program's
edges, byte by byte, and against each other; and the ordering oracle on the same traces.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, zip_longest
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from python_order import mask_of, python_order, ranges_of
from racegate.history.finding import Hazard
from racegate.history.trace import HOST, Access, HostAccess, OpRecord, Recorded, Waited
from racegate.oracles.ordering import find_conflicts
from racegate.order.clocks import Clocks, OpenRecords, covers, join
from racegate.order.compiled import compiled_order
from racegate.order.findings import _in_one_function, race_of
from racegate.order.interface import Order
from racegate.order.recorder import Recorder, WaitTotal
from racegate.order.rows import Shadow
from stories import STREAMS, Statement, Story, statements, told
from threaded import LANES, SIZE, Key, Told, found_by, programs

ROOM = 64  # of a storage's rows, as bytes
MANY = 200  # more than is looked through one by one


@given(programs)
@settings(max_examples=200)
def test_conflicts_are_those_of_every_byte_by_itself(program: list[tuple[str, object]]) -> None:
    compiled, python = Recorder(compiled_order()), Recorder(python_order())
    both = Told(compiled, python)
    for kind, *details in program:
        both.tell(kind, *details)
    assert found_by(compiled) == dict(both.model.found)
    assert found_by(python) == dict(both.model.found)
    assert bool(found_by(compiled)) == both.model.has_race  # of all pairs, not only the latest


@given(programs)
def test_the_two_know_the_same_and_say_the_same(program: list[tuple[str, object]]) -> None:
    compiled, python = Recorder(compiled_order()), Recorder(python_order())
    both = Told(compiled, python)
    for kind, *details in program:
        both.tell(kind, *details)
        for lane in range(LANES):
            ours, theirs = compiled.lanes.clock(lane), python.lanes.clock(lane)
            assert covers(ours, theirs) and covers(theirs, ours)
            assert compiled.lanes.number(lane) == python.lanes.number(lane)
    assert compiled.events == python.events
    assert found_by(compiled) == found_by(python)
    for key, conflict in compiled.conflicts.items():
        assert python.conflicts[key].count == conflict.count
        assert sorted(python.conflicts[key].pairs) == sorted(conflict.pairs)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("host", "issue", "read", "adopt")),
            st.integers(0, 7),
            st.integers(0, 7),
        ),
        max_size=8,
    ),
    st.integers(0, 8),
    st.tuples(st.integers(0, 8), st.integers(0, 9)),
)
def test_bytes_are_unwritten_until_an_access_behind_the_event_writes_them(
    done: list[tuple[str, int, int]], since: int, asked: tuple[int, int]
) -> None:
    for order in (compiled_order(), python_order()):
        thread, stream = order.add_lane(True, False, False), order.add_lane(False, False, False)
        order.add_memory(0, 8, False)
        written = [0] * 8
        for kind, low, high in done:
            ranges = ((low, high),) if low < high else ()
            if kind == "adopt":
                order.adopt(thread, thread, order.clock_of(thread), low, high)
            elif kind == "read":
                order.host(thread, "reads#1", (), ranges, ())
            elif kind == "host":
                order.host(thread, "writes#1", (), (), ranges)
            else:
                order.issue(thread, order.lane_of(thread, stream), "writes#1", (), (), ranges)
            if kind in ("host", "issue"):
                written[low:high] = [order.events()] * max(0, high - low)
        expected = [byte for byte in range(8) if asked[0] <= byte < asked[1]]
        expected = [byte for byte in expected if written[byte] <= since * bool(written[byte])]
        found = order.unwritten(*asked, since)
        assert [byte for low, high in found for byte in range(low, high)] == expected
        assert all(high < low for (_, high), (low, _) in pairwise(found))


@pytest.mark.parametrize("new_order", [compiled_order, python_order])
def test_memory_is_known_from_its_first_byte_to_its_last(new_order: type[Order]) -> None:
    order = new_order()
    thread = order.add_lane(True, False, False)
    order.add_memory(8, 4, False)
    order.add_memory(12, 4, True)
    assert [order.is_memory(address) for address in (7, 8, 11, 12, 15, 16)] == [
        False, True, True, True, True, False,
    ]  # fmt: skip
    assert order.host(thread, "a#1", (), (), ((8, 12),)) is None
    assert not order.is_watched()
    order.host(thread, "b#1", (), ((12, 13),), ())
    assert order.is_watched()
    assert order.latest() == (2, thread, 1, "b#1", ())
    order.remove_memory(8)
    assert not order.is_memory(8)
    assert order.is_memory(12)


@pytest.mark.parametrize("new_order", [compiled_order, python_order])
def test_what_a_byte_no_longer_remembers_costs_nothing(new_order: type[Order]) -> None:
    recorder = Recorder(new_order())
    both = Told(recorder)
    both.hand_out(0)
    both.free(1)
    for low in range(SIZE):
        both.access(0, 1, ((), ((low, low + 1),)))
    assert recorder.memory.cells() == SIZE
    both.access(0, 1, ((), ((0, SIZE),)))
    assert recorder.memory.cells() == 1


@pytest.mark.parametrize("new_order", [compiled_order, python_order])
def test_an_event_covers_nothing_that_its_thread_does_later(new_order: type[Order]) -> None:
    recorder = Recorder(new_order())
    recorder.memory.add(0, 8)
    host, other = recorder.add_thread("host"), recorder.add_thread("other")
    first, second = recorder.add_stream("first"), recorder.add_stream("second")
    recorder.host(host, "before#1", (), (), ((0, 4),))
    recorder.record(0, host, first, ())
    recorder.host(host, "behind#1", (), (), ((4, 8),))
    recorder.issue(host, first, "put behind#1", (), ((4, 8),), ())
    recorder.wait(second, 0, ())
    recorder.issue(other, second, "reads#1", (), ((0, 4),), ())
    assert not recorder.conflicts
    recorder.issue(other, second, "writes#1", (), (), ((4, 8),))
    firsts = {conflict.first.label for conflict in recorder.conflicts.values()}
    assert firsts == {"behind#1", "put behind#1"}


@pytest.mark.parametrize("new_order", [compiled_order, python_order])
def test_a_wait_for_a_blocking_stream_is_none_for_the_legacy_one(new_order: type[Order]) -> None:
    recorder = Recorder(new_order())
    recorder.memory.add(0, 8)
    host = recorder.add_thread("host")
    legacy = recorder.add_stream("legacy", is_legacy=True)
    blocking = recorder.add_stream("blocking", is_blocking=True)
    recorder.issue(host, legacy, "download#1", (), (), ((0, 4),))
    recorder.wait_stream(host, blocking, ())
    recorder.host(host, "read#1", (), ((0, 4),), ())
    assert len(recorder.conflicts) == 1
    recorder.issue(host, blocking, "download#2", (), (), ((4, 8),))
    recorder.wait_stream(host, legacy, ())
    recorder.host(host, "read#2", (), ((4, 8),), ())
    assert len(recorder.conflicts) == 1


@pytest.mark.parametrize("new_order", [compiled_order, python_order])
def test_a_record_on_the_legacy_stream_stands_between_blocking_ones(new_order: type[Order]) -> None:
    recorder = Recorder(new_order())
    recorder.memory.add(0, 4)
    host = recorder.add_thread("host")
    legacy = recorder.add_stream("legacy", is_legacy=True)
    first, second = (recorder.add_stream(name, is_blocking=True) for name in ("first", "second"))
    recorder.issue(host, first, "writes#1", (), (), ((0, 4),))
    recorder.record(0, host, legacy, ())
    recorder.issue(host, second, "writes#2", (), (), ((0, 4),))
    assert not recorder.conflicts


@pytest.mark.parametrize("new_order", [compiled_order, python_order])
def test_every_pair_of_two_places_counts(new_order: type[Order]) -> None:
    recorder = Recorder(new_order())
    recorder.memory.add(0, MANY)
    host, stream = recorder.add_thread("host"), recorder.add_stream("stream")
    for byte in range(MANY):
        recorder.issue(host, stream, f"writes@a#{byte}", (), (), ((byte, byte + 1),))
    recorder.host(host, "reads@b#0", (), ((0, MANY),), ())
    (conflict,) = recorder.conflicts.values()
    found = race_of(conflict, recorder.lanes, buffer="x")
    assert found.count == MANY
    assert set(found.pairs) == {(f"writes@a#{byte}", "reads@b#0") for byte in range(MANY)}
    assert found.nbytes == 1  # of the first pair


@pytest.mark.parametrize("new_order", [compiled_order, python_order])
def test_an_access_ends_where_its_memory_does(new_order: type[Order]) -> None:
    recorder = Recorder(new_order())
    recorder.memory.add(0, 4)
    host, stream = recorder.add_thread("host"), recorder.add_stream("stream")
    recorder.issue(host, stream, "writes#1", (), (), ((2, 9),))
    recorder.host(host, "reads#1", (), ((0, 8),), ())
    assert [conflict.nbytes for conflict in recorder.conflicts.values()] == [2]


def test_a_race_says_what_is_touched_how_and_which_parts_of_a_graph_can_be_held() -> None:
    recorder = Recorder(python_order())
    recorder.memory.add(0, 8)
    host, stream = recorder.add_thread("host"), recorder.add_stream("stream")
    for number in (1, 2):
        recorder.issue(host, stream, f"graph@a#{number}", (), (), ((number, number + 1),))
    recorder.host(host, "reads@b#1", (), ((0, 8),), ())
    (conflict,) = recorder.conflicts.values()
    parts = {
        f"graph@a#{number}": [f"part {number}.{place}" for place in range(9)] for number in (1, 2)
    }
    found = race_of(conflict, recorder.lanes, buffer="x", parts=parts)
    inner = [first for first, _ in found.pairs if first.startswith("part")]
    assert inner == [f"part 1.{place}" for place in range(6)]
    assert (found.hazard, len(found.signature)) == (Hazard.READ_AFTER_WRITE, 12)
    assert (found.first.is_write, found.second.is_write, found.second.is_host) == (
        True,
        False,
        True,
    )


@given(st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(0, 3), max_size=4))
def test_a_clock_that_learns_covers_both(one: list[int], other: list[int]) -> None:
    clock = list(one)
    join(clock, other)
    assert clock == [max(pair) for pair in zip_longest(one, other, fillvalue=0)]
    assert covers(clock, one) and covers(clock, other)


def test_a_lane_that_comes_later_is_known_to_nobody() -> None:
    clocks = Clocks(1)
    clocks.tick(0)
    other = clocks.add()
    assert clocks.known(0) == (1, 0)
    assert clocks.issue(0, other) == (1, (1, 0))
    assert clocks.known(0) == (2, 0)
    clocks.learn(0, clocks.known(other))
    assert clocks.known(0) == (2, 1)


def one_of_each(statement: Statement) -> Statement:
    """An operation that reads all it reads before it writes, as every one does on bytes."""
    if statement[0] != "op":
        return statement
    _, lane, accesses = statement
    masks: Counter[tuple[bool, int]] = Counter()
    assert isinstance(accesses, list)
    for access in accesses:
        masks[access.is_write, access.storage] |= access.rows
    made = [
        Access(f"b{storage}", storage, rows, is_write)
        for (is_write, storage), rows in sorted(masks.items())
    ]
    return ("op", lane, made)


def as_bytes(accesses: tuple[Access, ...], *, is_write: bool) -> tuple[tuple[int, int], ...]:
    """Rows as bytes, storage beside storage."""
    return tuple(
        (ROOM * access.storage + first, ROOM * access.storage + end)
        for access in accesses
        if access.is_write is is_write
        for first, end in ranges_of(access.rows)
    )


def on_bytes(story: Story, order: Order) -> dict[Key, int]:
    """The trace of a device, told to a program's recorder: rows by pair of places."""
    recorder = Recorder(order)
    recorder.add_thread("host")
    for name in STREAMS:
        recorder.add_stream(name)
    for storage in range(2):
        recorder.memory.add(ROOM * storage, ROOM)
    names: dict[str, int] = {}
    for place, event in enumerate(story.recorder.events):
        match event:
            case OpRecord() | HostAccess():
                reads = as_bytes(event.accesses, is_write=False)
                writes = as_bytes(event.accesses, is_write=True)
                if event.lane == HOST:
                    recorder.host(HOST, f"{place}#1", (), reads, writes)
                else:
                    recorder.issue(HOST, event.lane, f"{place}#1", (), reads, writes)
            case Recorded():
                recorder.record(names.setdefault(event.event, len(names)), HOST, event.lane, ())
            case Waited(is_dropped=False):
                recorder.wait(event.lane, names[event.event], ())
    return found_by(recorder)


@given(st.lists(statements.map(one_of_each), min_size=2, max_size=24))
@settings(max_examples=150)
def test_rows_of_a_storage_are_bytes_of_a_memory(program: list[Statement]) -> None:
    story = told(program)
    places = {id(event): place for place, event in enumerate(story.recorder.events)}
    found: Counter[Key] = Counter()
    for one in find_conflicts(story.trace()):
        pair = (places[id(one.first)], one.first_writes, places[id(one.second)], one.second_writes)
        found[pair] += one.rows.bit_count()
    assert on_bytes(story, compiled_order()) == found
    assert on_bytes(story, python_order()) == found


@given(st.integers(0, 1 << 70))
def test_ranges_of_a_mask_are_its_runs(mask: int) -> None:
    ranges = ranges_of(mask)
    assert mask_of(ranges) == mask
    bounds = [bound for pair in ranges for bound in pair]
    assert bounds == sorted(set(bounds))


EVENTS = st.integers(0, 3)
MAKERS = st.tuples(st.integers(0, 1), st.integers(0, 1))
RECORDS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), EVENTS, MAKERS, st.lists(st.integers(0, 2), max_size=3)),
        st.tuples(st.just("forget"), EVENTS),
        st.tuples(st.just("learn"), st.lists(st.integers(0, 9), max_size=3)),
    ),
    max_size=120,
)


@given(RECORDS)
def test_open_records_are_those_that_nobody_has_covered(story: list[tuple[Any, ...]]) -> None:
    records, naive = OpenRecords(), dict[int, tuple[int, list[int]]]()
    clocks: dict[tuple[int, int], list[int]] = {}
    for number, (kind, *details) in enumerate(story):
        match kind:
            case "add":
                event, by, more = details
                clock = clocks.setdefault(by, [0, 0, 0])
                clock[: len(more)] = [a + b for a, b in zip(clock, more, strict=False)]
                records.add(event, number, list(clock), by=by)
                naive[event] = (number, list(clock))
            case "forget":
                records.forget(details[0])
                naive.pop(details[0], None)
            case "learn":
                found = {event for event, (_, clock) in naive.items() if covers(details[0], clock)}
                wanted = {(event, naive.pop(event)[0]) for event in found}
                assert set(records.take_covered(details[0])) == wanted


def test_records_that_are_no_more_take_no_room() -> None:
    records = OpenRecords()
    for number in range(10_000):
        records.add(number, number, [number], by=(0, 1))
        records.forget(number)
    assert sum(map(len, records._queues.values())) < 100


def test_open_records_are_not_gone_through_again_with_each_one() -> None:
    """A program that waits for nothing has many, and none of them can be left out."""
    records, by = OpenRecords(), (0, 1)
    records.add(0, 0, [0], by=by)
    queue = records._queues[by]
    for number in range(1, 200):
        records.add(number, number, [number], by=by)
    assert records._queues[by] is queue


@pytest.mark.parametrize("new_order", [compiled_order, python_order])
def test_what_another_thread_made_a_stream_wait_for_is_waited_for(new_order: type[Order]) -> None:
    """As far as the thread that gives the stream work knows of it, and no further."""
    recorder = Recorder(new_order())
    recorder.memory.add(0, 8)
    one, other = recorder.add_thread("one"), recorder.add_thread("other")
    first, second = recorder.add_stream("first"), recorder.add_stream("second")
    for byte in range(2):
        recorder.issue(one, first, f"writes#{byte}", (), (), ((byte, byte + 1),))
        recorder.record(byte, one, first, ())
        recorder.make_wait(one, second, byte, ())
        if byte == 0:
            recorder.take(other, recorder.hand_on(one))
    recorder.issue(other, second, "known#1", (), ((0, 1),), ())
    assert not recorder.conflicts
    recorder.issue(other, second, "unknown#1", (), ((1, 2),), ())
    (conflict,) = recorder.conflicts.values()
    assert (conflict.first.label, conflict.second.label) == ("writes#1", "unknown#1")


def test_of_many_waits_of_a_lane_the_latest_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the older half some are forgotten: a thread then knows less, and nothing else."""
    monkeypatch.setattr("python_streams.WAITS_MAX", 4)
    recorder = Recorder(python_order())
    recorder.memory.add(0, 16)
    one, other = recorder.add_thread("one"), recorder.add_thread("other")
    first, second = recorder.add_stream("first"), recorder.add_stream("second")
    for byte in range(16):
        recorder.issue(one, first, f"writes#{byte}", (), (), ((byte, byte + 1),))
        recorder.record(0, one, first, ())
        recorder.make_wait(one, second, 0, ())
        recorder.take(other, recorder.hand_on(one))
        recorder.issue(other, second, f"overwrites#{byte}", (), (), ((0, byte + 1),))
    assert not recorder.conflicts


@pytest.mark.parametrize("new_order", [compiled_order, python_order])
def test_a_wait_costs_what_it_waits_for_that_was_not_known_to_be_complete(
    new_order: type[Order],
) -> None:
    recorder = Recorder(new_order())
    recorder.price_waits()
    host = recorder.add_thread("host")
    first, second = recorder.add_stream("first"), recorder.add_stream("second")
    on_stream, on_host = (("w.py", 9, "f"),), (("w.py", 7, "f"),)
    for number in range(3):
        recorder.issue(host, first, f"op#{number}", (), (), ())
    recorder.record(0, host, first, ())
    recorder.make_wait(host, second, 0, on_stream)
    for _ in range(2):
        recorder.wait_stream(host, first, on_host)
    assert recorder.prices == {"w.py:9": WaitTotal(0, 3), "w.py:7": WaitTotal(3, 0)}


def test_who_adopts_reads_and_writes_passes_on_what_it_knew_of_its_own_rows_and_no_other() -> None:
    """Lane 1 reads rows 0 and 1, lane 2 knows that and adopts row 0: a write of lane 0 that knows
    lane 2 is behind the read of row 0, and in conflict with that of row 1.
    """
    shadow: Shadow[str] = Shadow()
    assert shadow.read("read", 1, 5, (0, 5, 0), 0b11) == []
    shadow.adopt(2, 7, (0, 5, 7), 0b01)
    assert shadow.write("known", 0, 1, (1, 0, 7), 0b01) == []
    ((touch, rows),) = shadow.write("unknown", 0, 2, (2, 0, 7), 0b10)
    assert (touch.event, rows) == ("read", 0b10)
    other: Shadow[str] = Shadow()
    other.write("write", 1, 5, (0, 5, 0), 0b1)
    other.adopt(2, 7, (0, 5, 7), 0b1)
    assert other.read("behind", 0, 1, (1, 0, 7), 0b1) == []
    assert len(other.write("beside", 3, 1, (0, 0, 0, 1), 0b1)) == 2


def test_a_wait_is_named_in_the_innermost_function_that_also_comes_to_the_access() -> None:
    """Of a function that calls itself it is the inner call that goes on to the access."""
    access = (("m.py", 4, "walk"), ("m.py", 9, "walk"), ("m.py", 20, "main"))
    helper = ("h.py", 2, "wait")
    wait = (helper, ("m.py", 6, "walk"), ("m.py", 9, "walk"), ("m.py", 20, "main"))
    assert _in_one_function(wait, access) == (wait[1:], access)
    assert _in_one_function((helper,), access) == ((helper,), access)
