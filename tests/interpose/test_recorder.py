"""The recorder against reachability in a graph of everything that the program did."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from racegate.history.schedule import place_of
from racegate.order.findings import NamedConflict, race_of, races_of
from racegate.order.memory import Access
from racegate.order.recorder import Recorder

STREAMS, THREADS, EVENTS, BYTES = 3, 2, 2, 8
step = st.one_of(
    st.tuples(
        st.just("issue"),
        st.integers(0, THREADS - 1),
        st.integers(0, STREAMS - 1),
        st.integers(0, BYTES - 1),
        st.integers(1, 4),
        st.booleans(),
    ),
    st.tuples(
        st.just("host"),
        st.integers(0, THREADS - 1),
        st.integers(0, BYTES - 1),
        st.integers(1, 4),
        st.booleans(),
    ),
    st.tuples(
        st.just("record"),
        st.integers(0, EVENTS - 1),
        st.integers(0, THREADS - 1),
        st.integers(0, STREAMS - 1),
    ),
    st.tuples(
        st.just("wait"),
        st.integers(0, EVENTS - 1),
        st.integers(0, THREADS - 1),
        st.integers(0, STREAMS - 1),
    ),
    st.tuples(st.just("sync"), st.integers(0, EVENTS - 1), st.integers(0, THREADS - 1)),
    st.tuples(st.just("stream sync"), st.integers(0, STREAMS - 1), st.integers(0, THREADS - 1)),
    st.tuples(st.just("hand over"), st.integers(0, THREADS - 1)),
)


@dataclass
class Graph:
    """Every access with all that is before it; threads remember what their next step follows.

    given: of each stream what it was given, as the point where a thread gave it, which touches
    nothing, and all that is over when it is done
    """

    threads: list[set[int]] = field(default_factory=lambda: [set() for _ in range(THREADS)])
    given: list[list[tuple[int, set[int]]]] = field(
        default_factory=lambda: [[] for _ in range(STREAMS)]
    )
    events: dict[int, set[int]] = field(default_factory=dict)
    accesses: list[tuple[set[int], range, bool]] = field(default_factory=list)

    def add(self, before: set[int], low: int, size: int, *, is_write: bool) -> int:
        self.accesses.append((set(before), range(low, low + size), is_write))
        return len(self.accesses) - 1

    def known(self, thread: int, stream: int) -> set[int]:
        """What a stream has done when all is done that the thread knows it was given."""
        known = self.threads[thread]
        return known.union(*(done for at, done in self.given[stream] if at in known))

    def give(self, thread: int, stream: int) -> set[int]:
        """A thread gives a stream something, which comes after this; others may be added."""
        done = self.known(thread, stream)
        at = self.add(done, 0, 0, is_write=False)
        self.threads[thread].add(at)
        self.given[stream].append((at, done))
        return done

    def has_race(self) -> bool:
        for second, (before, bytes_, is_write) in enumerate(self.accesses):
            for first, (_, others, other_writes) in enumerate(self.accesses[:second]):
                meets = set(bytes_) & set(others)
                if meets and (is_write or other_writes) and first not in before:
                    return True
        return False


def run(steps: list[tuple[object, ...]], places: list[int] | None = None) -> tuple[Recorder, Graph]:
    """places: the line of each step, its number if not given"""
    recorder, graph = Recorder(), Graph()
    recorder.memory.add(0, 2 * BYTES)
    threads = [recorder.add_thread(f"thread {i}") for i in range(THREADS)]
    streams = [recorder.add_stream(f"stream {i}") for i in range(STREAMS)]
    for number, (kind, *rest) in enumerate(steps):
        stack = (("program.py", number if places is None else places[number], "main"),)
        if kind == "issue":
            thread, stream, low, size, is_write = rest
            ranges = ((low, low + size),)
            parts = ((), ranges) if is_write else (ranges, ())
            label = recorder.label("op", stack)
            recorder.issue(threads[thread], streams[stream], label, stack, *parts)
            done = graph.give(thread, stream)
            done.add(graph.add(done, low, size, is_write=is_write))
        elif kind == "host":
            thread, low, size, is_write = rest
            ranges = ((low, low + size),)
            parts = ((), ranges) if is_write else (ranges, ())
            recorder.host(threads[thread], recorder.label("host", stack), stack, *parts)
            access = graph.add(graph.threads[thread], low, size, is_write=is_write)
            graph.threads[thread].add(access)
        elif kind == "record":
            event, thread, stream = rest
            recorder.record(event, threads[thread], streams[stream], stack)
            graph.events[event] = graph.known(thread, stream)
        elif kind == "wait":
            event, thread, stream = rest
            recorder.make_wait(threads[thread], streams[stream], event, stack)
            if event in graph.events:
                done = graph.give(thread, stream)
                done |= graph.events[event]
        elif kind == "sync":
            event, thread = rest
            recorder.wait(threads[thread], event, stack)
            graph.threads[thread] |= graph.events.get(event, set())
        elif kind == "stream sync":
            stream, thread = rest
            recorder.wait_stream(threads[thread], streams[stream], stack)
            graph.threads[thread] |= graph.known(thread, stream)
        else:
            (thread,) = rest
            recorder.take(threads[1 - thread], recorder.hand_on(threads[thread]))
            graph.threads[1 - thread] |= graph.threads[thread]
    return recorder, graph


@given(st.lists(step, max_size=14))
def test_a_race_is_found_exactly_if_there_is_one(steps: list[tuple[object, ...]]) -> None:
    recorder, graph = run(steps)
    assert bool(recorder.conflicts) == graph.has_race()


def test_legacy_default_stream_orders_blocking_streams_only() -> None:
    recorder = Recorder()
    recorder.memory.add(0, 8)
    host = recorder.add_thread("host")
    default = recorder.add_stream("default", is_legacy=True)
    blocking = recorder.add_stream("blocking", is_blocking=True)
    other = recorder.add_stream("pool")
    recorder.issue(host, default, "a@x:1#1", (), (), ((0, 4),))
    recorder.issue(host, blocking, "b@x:2#1", (), (), ((0, 4),))
    recorder.issue(host, default, "c@x:3#1", (), ((0, 4),), ())
    assert not recorder.conflicts
    recorder.issue(host, other, "d@x:4#1", (), ((0, 4),), ())
    assert [conflict.second.label for conflict in recorder.conflicts.values()] == ["d@x:4#1"]


def finding(steps: list[tuple[object, ...]]) -> str:
    recorder, _ = run(steps)
    (conflict,) = recorder.conflicts.values()
    return race_of(conflict, recorder.lanes, buffer="x").edge


def test_the_edge_says_what_a_maintainer_would_write() -> None:
    write, read = ("issue", 0, 0, 0, 4, True), ("host", 0, 0, 4, False)
    assert finding([write, read]) == (
        "record an event after program.py:0 on stream 0 and wait for it before program.py:1 "
        "(event.synchronize())"
    )
    assert finding([("record", 0, 0, 0), write, ("sync", 0, 0), read]).startswith(
        "thread 0 waits for stream 0 only up to program.py:0, which stands before program.py:1"
    )
    late = [write, ("record", 0, 0, 0), read, ("sync", 0, 0)]
    assert finding(late) == (
        "the wait at program.py:3 stands too late: move it before program.py:2"
    )
    for is_recorded_behind in ([("record", 0, 0, 0)], [("record", 0, 0, 0), ("sync", 0, 0)]):
        assert finding([write, read, *is_recorded_behind]) == finding([write, read])
    assert finding([write, read, ("stream sync", 0, 0)]).endswith(
        "before program.py:1 (event.synchronize()); only the wait for stream 0 at program.py:2 "
        "orders them, behind program.py:1"
    )
    assert "hand over after program.py:0" in finding(
        [("host", 0, 0, 4, True), ("host", 1, 0, 4, True)]
    )
    of_two_threads = [write, ("record", 0, 0, 0), ("issue", 1, 0, 0, 4, True), ("wait", 0, 1, 0)]
    assert finding(of_two_threads).startswith(
        "two threads give stream 0 work in either order, which no event on it changes: the thread "
        "of program.py:0 has to hand over after it, and the thread of program.py:2 to take over"
    )


LINE = re.compile(r"program\.py:(\d+)")


@st.composite
def waiting_late(draw: st.DrawFn) -> list[tuple[object, ...]]:
    """A copy, its record, an access and a wait for the copy, in this order or nearly, among
    anything else.
    """
    stream, other = draw(st.permutations(range(STREAMS)))[:2]
    event, is_host = draw(st.integers(0, EVENTS - 1)), draw(st.booleans())
    steps: list[tuple[object, ...]] = [
        ("issue", 0, stream, 0, 4, True),
        ("record", event, 0, stream),
        ("host", 0, 0, 4, False) if is_host else ("issue", 0, other, 0, 4, False),
        ("sync", event, 0) if is_host else ("wait", event, 0, other),
    ]
    if draw(st.booleans()):
        steps = draw(st.permutations(steps))
    for another in draw(st.lists(step, max_size=4)):
        steps.insert(draw(st.integers(0, len(steps))), another)
    return steps


@given(st.lists(step, max_size=9) | waiting_late(), st.integers(1, 3))
@settings(max_examples=300)
def test_an_edge_that_is_named_orders_every_pair(
    steps: list[tuple[object, ...]], turns: int
) -> None:
    """In a loop, put into the recorded order in every turn: the conflict is gone. What is waited
    for has been recorded there, so that the new edge points forward and closes no circle.
    """
    places = [*range(len(steps))] * turns
    recorder, _ = run(steps * turns, places)
    for key, conflict in recorder.conflicts.items():
        edge = race_of(conflict, recorder.lanes, buffer="x").edge
        lines = (_line(conflict.first), _line(conflict.second))
        assert key not in _repaired(edge, lines, steps, places), edge


# The wait at the end would order the first pair if it stood before it, and not the second one.
RECORDED_BETWEEN = [
    ("issue", 0, 0, 0, 4, True),
    ("record", 0, 0, 0),
    ("issue", 0, 0, 4, 4, True),
    ("host", 0, 0, 4, False),
    ("host", 0, 4, 4, False),
    ("sync", 0, 0),
]


@given(st.lists(step, max_size=12))
@example(RECORDED_BETWEEN)
def test_the_edge_of_a_cause_orders_all_of_its_pairs(steps: list[tuple[object, ...]]) -> None:
    recorder, _ = run(steps)
    found = [NamedConflict(conflict, "x") for conflict in recorder.conflicts.values()]
    races = races_of(found, recorder.lanes)
    for cause in {race.cause for race in races if race.cause}:
        both = zip(recorder.conflicts, races, strict=True)
        keys = {key for key, race in both if race.cause == cause}
        assert len(keys) > 1
        first, second = map(int, LINE.findall(cause)[-2:])
        left = _repaired(cause, (first, second), steps, [*range(len(steps))])
        assert not left & keys, cause


NEW_EVENT = EVENTS  # which the program does not use
Placed = tuple[tuple[object, ...], int]
Key = tuple[str, bool, str, bool]


def _repaired(
    edge: str, lines: tuple[int, int], steps: list[tuple[object, ...]], places: list[int]
) -> set[Key]:
    """The conflicts of the program with what the advice puts in."""
    repaired = [part for place in places for part in _advised(edge, lines, steps, place)]
    again, _ = run([step for step, _ in repaired], [place for _, place in repaired])
    return set(again.conflicts)


def _advised(
    edge: str, lines: tuple[int, int], steps: list[tuple[object, ...]], place: int
) -> list[Placed]:
    """One step of the program with what the advice puts before and behind it."""
    first, second = lines
    if "too late" in edge:
        wait, before = map(int, LINE.findall(edge))
        assert before == second
        assert steps[wait][0] in ("wait", "sync")
        moved = [] if place != second else [(steps[wait], wait)]
        return [*moved, *([] if place == wait else [(steps[place], place)])]
    if "hand over" in edge:
        thread = steps[first][1]
        handed = [(("hand over", thread), -1)]
        return [(steps[place], place), *(handed if place == first else [])]
    issuer, on = steps[first][1:3]
    record = [(("record", NEW_EVENT, issuer, on), -1)]
    kind, at, stream = steps[second][:3]
    wait_for = ("sync", NEW_EVENT, at) if kind == "host" else ("wait", NEW_EVENT, at, stream)
    return [
        *([(wait_for, -1)] if place == second else []),
        (steps[place], place),
        *(record if place == first else []),
    ]


def _line(access: Access) -> int:
    return int(access.stack[0][1])


def test_the_signature_is_of_the_places_not_of_the_run() -> None:
    steps = [("issue", 0, 0, 0, 4, True), ("issue", 0, 1, 0, 4, False)]
    signatures = []
    for lead in ([], [("hand over", 0)]):
        recorder, _ = run([*steps, *lead])
        (conflict,) = recorder.conflicts.values()
        signatures.append(race_of(conflict, recorder.lanes, buffer="x").signature)
    assert signatures[0] == signatures[1]


def test_a_race_says_where_its_memory_and_its_streams_were_made() -> None:
    recorder, _ = run([("issue", 0, 0, 0, 4, True), ("issue", 0, 1, 0, 4, False)])
    (conflict,) = recorder.conflicts.values()
    named = NamedConflict(conflict, "x", allocated=(("program.py", 7, "main"),))
    (race,) = races_of([named], recorder.lanes, made=lambda lane: (("streams.py", lane, "make"),))
    assert race.allocated == named.allocated
    lanes = (conflict.first.lane, conflict.second.lane)
    assert [side.made[0][1] for side in (race.first, race.second)] == list(lanes)


@pytest.mark.parametrize("line", [5, 6])
def test_frames_of_libraries_are_shown_where_those_of_the_program_do_not_tell_sides_apart(
    line: int,
) -> None:
    recorder = Recorder()
    recorder.memory.add(0, 8)
    host, stream = recorder.add_thread("host"), recorder.add_stream("stream")
    stacks = [(("program.py", at, "main"), ("caller.py", at, "run")) for at in (5, line)]
    recorder.issue(host, stream, "a@x:1#1", stacks[0], (), ((0, 8),))
    recorder.host(host, "b@x:2#1", (*stacks[1], ("top.py", 1, "go")), ((0, 8),), ())
    (conflict,) = recorder.conflicts.values()
    race = race_of(conflict, recorder.lanes, buffer="x", within=lambda stack: stack[-1:])
    shown = (("caller.py", 5, "run"), ("top.py", 1, "go")) if line == 5 else ()
    assert (*race.first.within, *race.second.within) == shown


def test_memory_that_is_no_more_has_no_history() -> None:
    recorder = Recorder()
    recorder.memory.add(0, 8)
    host, stream = recorder.add_thread("host"), recorder.add_stream("stream")
    recorder.issue(host, stream, "a@x:1#1", (), (), ((0, 8),))
    recorder.memory.remove(0)
    recorder.memory.add(0, 8)
    recorder.host(host, "b@x:2#1", (), ((0, 8),), ())
    assert not recorder.conflicts


def test_an_operation_keeps_its_name_when_lines_move() -> None:
    def labels(moved: int) -> list[str]:
        recorder = Recorder()
        lines = [(5, "Loader.next"), (7, "Loader.next"), (5, "Loader.next"), (20, "step")]
        stacks = [(("/a/demo.py", line + moved, name),) for line, name in lines]
        return [recorder.label("h2d", stack) for stack in stacks]

    assert labels(0) == labels(11)
    assert labels(0) == [
        "h2d@demo.py:Loader.next#1",
        "h2d@demo.py:Loader.next[2]#1",
        "h2d@demo.py:Loader.next#2",
        "h2d@demo.py:step#1",
    ]


def test_lines_of_one_function_are_places_of_their_own() -> None:
    recorder = Recorder()
    stacks = [(("/a/demo.py", line, "step"),) for line in (5, 6)]
    places = {place_of(recorder.label("h2d", stack)) for stack in stacks}
    assert len(places) == 2


def test_a_signature_has_no_line_in_it() -> None:
    def signature(moved: int) -> str:
        recorder = Recorder()
        host, stream = recorder.add_thread("host"), recorder.add_stream("stream")
        recorder.memory.add(0, 8)
        stack = (("/a/demo.py", 5 + moved, "step"),)
        recorder.issue(host, stream, recorder.label("d2h", stack), stack, (), ((0, 8),))
        later = (("/a/demo.py", 6 + 2 * moved, "step"),)
        recorder.host(host, recorder.label("host read", later), later, ((0, 8),), ())
        (conflict,) = recorder.conflicts.values()
        return race_of(conflict, recorder.lanes, buffer=f"memory at {moved}").signature

    assert signature(0) == signature(3)
