"""The ordering oracle on hand-made traces: the algebra of clocks, rows and edges."""

from __future__ import annotations

from racegate.device.recorder import Recorder
from racegate.history.trace import HOST, Access, Trace
from racegate.oracles.ordering import find_conflicts, has_unordered_query

S0, S1 = 1, 2


class Story:
    """Tells a recorder what a program does."""

    def __init__(self) -> None:
        self.recorder = Recorder(("s0", "s1"))

    def op(self, lane: int, *accesses: Access) -> None:
        self.recorder.issue(lane, f"op{len(self.recorder.events)}", 0, accesses)

    def host(self, access: Access) -> None:
        self.recorder.host_access(access)

    def edge(self, source: int, target: int, *, is_dropped: bool = False) -> None:
        version = self.recorder.record(source, "e", 1)
        self.recorder.wait(target, version, "edge", step=0, is_dropped=is_dropped)

    def conflicts(self) -> int:
        trace = Trace(lanes=self.recorder.lanes, events=tuple(self.recorder.events))
        return len(find_conflicts(trace))


def read(rows: int = 1, storage: int = 0) -> Access:
    return Access("b", storage, rows, False)


def write(rows: int = 1, storage: int = 0) -> Access:
    return Access("b", storage, rows, True)


def test_write_then_read_on_another_stream() -> None:
    story = Story()
    story.op(S0, write())
    story.op(S1, read())
    assert story.conflicts() == 1


def test_an_edge_orders_them() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, S1)
    story.op(S1, read())
    assert story.conflicts() == 0


def test_a_dropped_edge_orders_nothing() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, S1, is_dropped=True)
    story.op(S1, read())
    assert story.conflicts() == 1


def test_two_reads_do_not_conflict() -> None:
    story = Story()
    story.op(S0, read())
    story.op(S1, read())
    assert story.conflicts() == 0


def test_disjoint_rows_do_not_conflict() -> None:
    story = Story()
    story.op(S0, write(0b0011))
    story.op(S1, write(0b1100))
    assert story.conflicts() == 0


def test_overlapping_rows_conflict() -> None:
    story = Story()
    story.op(S0, write(0b0110))
    story.op(S1, read(0b1100))
    assert story.conflicts() == 1


def test_other_storage_does_not_conflict() -> None:
    story = Story()
    story.op(S0, write(storage=1))
    story.op(S1, write(storage=2))
    assert story.conflicts() == 0


def test_host_access_before_the_issue_is_ordered() -> None:
    story = Story()
    story.host(write())
    story.op(S0, read())
    assert story.conflicts() == 0


def test_host_access_after_the_issue_is_not() -> None:
    story = Story()
    story.op(S0, read())
    story.host(write())
    assert story.conflicts() == 1


def test_host_read_under_a_device_read_is_harmless() -> None:
    story = Story()
    story.op(S0, read())
    story.host(read())
    assert story.conflicts() == 0


def test_a_host_wait_orders_what_follows() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, HOST)
    story.host(read())
    story.host(write())
    assert story.conflicts() == 0


def test_order_passes_through_the_host_to_another_stream() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, HOST)
    story.op(S1, write())
    assert story.conflicts() == 0


def test_a_record_covers_only_what_precedes_it() -> None:
    story = Story()
    version = story.recorder.record(S0, "e", 1)
    story.op(S0, write())
    story.recorder.wait(S1, version, "edge", step=0, is_dropped=False)
    story.op(S1, read())
    assert story.conflicts() == 1


def test_each_unordered_reader_of_a_write_is_reported() -> None:
    story = Story()
    story.op(S0, write())
    story.op(S1, read())
    story.host(read())
    assert story.conflicts() == 2


def test_a_reader_hidden_behind_a_later_reader_of_its_lane_still_counts() -> None:
    # The later read is unordered as well, and stands for the earlier one.
    story = Story()
    story.op(S0, read())
    story.op(S0, read())
    story.op(S1, write())
    assert story.conflicts() == 1


def test_an_unordered_query_is_a_branch() -> None:
    story = Story()
    story.op(S0, write())
    version = story.recorder.record(S0, "e", 1)
    story.recorder.query(version)
    events = tuple(story.recorder.events)
    assert has_unordered_query(Trace(lanes=story.recorder.lanes, events=events))


def test_a_query_behind_a_wait_is_not() -> None:
    story = Story()
    story.op(S0, write())
    version = story.recorder.record(S0, "e", 1)
    story.recorder.wait(HOST, version, "edge", step=0, is_dropped=False)
    story.recorder.query(version)
    events = tuple(story.recorder.events)
    assert not has_unordered_query(Trace(lanes=story.recorder.lanes, events=events))
