"""The edge that is named is the one that the pair lacks, not the first that is for its buffer."""

from __future__ import annotations

import pytest

from racegate.history.edge import Edge
from racegate.oracles.missing_edge import edge_finder, late_wait
from racegate.oracles.ordering import find_conflicts
from racegate.targets.adapters.conformance import KIT
from racegate.targets.adapters.reader import HistoryReader
from racegate.targets.adapters.wire import (
    SCHEMA,
    AccessEntry,
    BufferLine,
    HelloAnswer,
    HistoryLine,
    HostLine,
    OpLine,
    RecordLine,
    WaitLine,
)

EDGES = tuple(
    Edge(name=name, before="", after="", buffers=("x",), reason="") for name in ("landed", "read")
)
HELLO = HelloAnswer(
    to=0, schema=SCHEMA, engine="e", version="1", lanes=("copy", "compute"), edges=EDGES
)
WRITE = (AccessEntry(buffer="x", write=True),)
READ = (AccessEntry(buffer="x"),)


def copied(step: int) -> list[HistoryLine]:
    """A copy to the host."""
    return [
        OpLine(name=f"d2h:x@{step}", lane="copy", accesses=WRITE),
        RecordLine(event="copied", lane="copy"),
    ]


def landed(*, dropped: bool = False) -> HistoryLine:
    return WaitLine(edge="landed", event="copied", dropped=dropped)


def taken(step: int) -> HistoryLine:
    return HostLine(name=f"host:take@{step}", accesses=READ)


def computed(step: int) -> list[HistoryLine]:
    """A kernel that reads behind a copy, which the next copy has to wait for."""
    return [
        WaitLine(edge="read", event="copied", lane="compute"),
        OpLine(name=f"kernel:k@{step}", lane="compute", accesses=READ),
        RecordLine(event="computed", lane="compute"),
        WaitLine(edge="read", event="computed", lane="copy"),
    ]


ORDERED = [*copied(0), landed(), taken(0), *computed(0)]
# A history, and what is named of its first conflict.
HISTORIES: dict[str, tuple[list[HistoryLine], list[str]]] = {
    "dropped": ([*copied(0), landed(dropped=True), *computed(0), taken(1)], ["landed"]),
    "missing once": ([*ORDERED, *copied(1), *computed(1), taken(1)], ["landed"]),
    "too late": ([*copied(0), taken(0), landed(), *computed(0)], ["landed"]),
    "never waited for": ([*copied(0), *computed(0), taken(0)], ["landed"]),
    "nothing waits": ([*copied(0), taken(0)], ["landed", "read"]),
    "of another pair": (
        [*ORDERED, OpLine(name="kernel:other@1", lane="compute", accesses=WRITE), taken(1)],
        [],
    ),
}


@pytest.mark.parametrize("case", HISTORIES)
def test_the_edge_of_a_pair_is_named(case: str) -> None:
    lines, named = HISTORIES[case]
    reader = HistoryReader(HELLO, KIT)
    for line in [BufferLine(name="x", rows=1), *lines]:
        reader.take(line)
    trace = reader.trace()
    conflict = find_conflicts(trace)[0]
    assert [edge.name for edge in edge_finder(trace, EDGES)(conflict)] == named
    late = late_wait(trace, conflict.first, conflict.second)
    assert (late is not None) is (case == "too late")
    # One that says of which operations it is, is for them.
    sided = Edge(name="sided", before="", after="", buffers=("x",), reason="", first=("*:*",))
    assert edge_finder(trace, (sided,))(conflict) == [sided]
