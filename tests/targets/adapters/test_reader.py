"""From lines to traces: the clocks are those of racegate's own devices, and contradictions are
refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.device.recorder import Recorder, Version
from racegate.history.edge import Edge
from racegate.history.observe import Boundary
from racegate.history.trace import HOST, Access, HostAccess, Misowned, OpRecord, Recorded, Waited
from racegate.targets.adapters.conformance import KIT
from racegate.targets.adapters.reader import HistoryError, HistoryReader, check_introduction
from racegate.targets.adapters.wire import (
    SCHEMA,
    AccessEntry,
    BufferLine,
    HelloAnswer,
    HistoryLine,
    HostLine,
    ObservationLine,
    Offer,
    OpLine,
    OwnerLine,
    QueryLine,
    RecordLine,
    WaitLine,
)
from wire_draws import history_lines

EDGE = Edge(name="landed", before="the copy", after="the read", buffers=("x",), reason="stale")
LANES = ("copy", "compute")


def hello(*offers: Offer, boundaries: tuple[Boundary, ...] = ()) -> HelloAnswer:
    return HelloAnswer(
        to=0,
        schema=SCHEMA,
        engine="e",
        version="1",
        lanes=LANES,
        offers=offers,
        boundaries=boundaries,
        edges=(EDGE,),
    )


def read(lines: Sequence[HistoryLine], told: HelloAnswer | None = None) -> HistoryReader:
    reader = HistoryReader(told or hello(), KIT)
    for line in lines:
        reader.take(line)
    return reader


def x(*rows: int | tuple[int, int], write: bool = False) -> AccessEntry:
    return AccessEntry(buffer="x", rows=rows or None, write=write)


BUFFER = BufferLine(name="x", rows=4)
COPY = OpLine(name="d2h:x@1", lane="copy", accesses=(x(write=True),))
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["op", "host", "record", "wait", "dropped"]),
        st.integers(0, len(LANES)),
        st.sampled_from(["e", "f"]),
    ),
    max_size=25,
)


@given(actions=ACTIONS)
def test_clocks_are_those_of_the_devices(actions: Sequence[tuple[str, int, str]]) -> None:
    """The same program, told in lines and asked of a recorder."""
    recorder = Recorder(LANES)
    recorder.action = ("host:go@1", 1)
    access = Access("x", 1, 0b1111, False)
    versions: dict[str, Version] = {}
    lines: list[HistoryLine] = [BUFFER]
    for number, (action, lane, event) in enumerate(actions):
        stream = LANES[max(lane, 1) - 1]
        name = f"op:{number}@1"
        if action == "op":
            recorder.issue(max(lane, 1), name, 1, (access,))
            lines.append(OpLine(name=name, lane=stream, accesses=(x(),)))
        elif action == "host":
            recorder.host_access(access)
            lines.append(HostLine(name="host:go@1", accesses=(x(),)))
        elif action == "record":
            number = 1 + (versions[event].number if event in versions else 0)
            versions[event] = recorder.record(max(lane, 1), event, number)
            lines.append(RecordLine(event=event, lane=stream))
        else:
            is_dropped = action == "dropped"
            waiting = "host" if lane == HOST else stream
            if event in versions:
                recorder.wait(lane, versions[event], "landed", step=-1, is_dropped=is_dropped)
                lines.append(WaitLine(edge="landed", event=event, lane=waiting, dropped=is_dropped))
    assert read(lines).trace().events == tuple(recorder.events)


def test_a_trace() -> None:
    owner = OwnerLine(name="host:take@2", buffer="x", row=1, meant=("A", 1), found=("B", 1))
    right = OwnerLine(name="host:take@2", buffer="x", row=2, meant=("A", 1), found=("A", 1))
    seen = ObservationLine(step=2, boundary=Boundary.SAMPLED, values={"count": [1]})
    lines = [
        BUFFER,
        COPY,
        RecordLine(event="e", lane="copy"),
        WaitLine(edge="landed", event="e"),
        HostLine(name="host:take@2", accesses=(x(1, (2, 4)),)),
        owner,
        right,
        seen,
    ]
    reader = read(lines, hello(Offer.OWNERS, Offer.OBSERVATIONS, boundaries=(Boundary.SAMPLED,)))
    assert reader.trace().lanes == ("host", *LANES)
    assert reader.trace().events == (
        OpRecord("d2h:x@1", 1, 1, 1, (0, 0, 0), (Access("x", 1, 0b1111, True),)),
        Recorded("e", 1, 1, (1, 1, 0)),
        Waited("landed", "e", 1, HOST, -1, 2, False),
        HostAccess("host:take@2", 2, 2, (2, 1, 0), Access("x", 1, 0b1110, False)),
        Misowned("host:take@2", 2, "x", 1, ("A", 1), ("B", 1)),
    )
    assert reader.owners_seen == 2
    (observed,) = reader.observations()
    assert (observed.step, observed.values) == (2, {"count": [1]})


def test_told_clocks() -> None:
    lines = [
        BUFFER,
        OpLine(name="d2h:x@1", lane="copy", accesses=(x(write=True),), clock={}),
        HostLine(name="host:early@2", accesses=(x(),), clock={}),
        HostLine(name="host:late@2", accesses=(x(),), clock={"copy": 1}),
    ]
    events = read(lines, hello(Offer.CLOCKS)).trace().events
    assert [event.clock[1] for event in events if isinstance(event, HostAccess)] == [0, 1]


def test_buffers_share_storage_and_names_move_on() -> None:
    lines = [
        BufferLine(name="x", rows=4, storage="m"),
        BufferLine(name="y", rows=4, storage="m"),
        OpLine(name="a@1", lane="copy", accesses=(x(0), AccessEntry(buffer="y", rows=(0,)))),
        BufferLine(name="x", rows=2, storage="n"),
        OpLine(name="b@1", lane="copy", accesses=(x(),)),
    ]
    first, second = read(lines).trace().events
    assert isinstance(first, OpRecord) and isinstance(second, OpRecord)
    assert len({access.storage for access in first.accesses}) == 1
    assert second.accesses[0] == Access("x", 2, 0b11, False)


TOLD = hello(Offer.CLOCKS)
CLOCK_OP = OpLine(name="d2h:x@1", lane="copy", clock={})
OWNER = OwnerLine(name="h@1", buffer="x", row=0, meant=("A", 1), found=("A", 1))
CONTRADICTIONS: dict[str, tuple[HelloAnswer, Sequence[HistoryLine], str]] = {
    "unknown lane": (hello(), [OpLine(name="a@1", lane="plan")], "lane 'plan'.*not introduced"),
    "an operation of the host": (hello(), [OpLine(name="a@1", lane="host")], "lane 'host'"),
    "unknown buffer": (hello(), [COPY], "'x', of which no buffer line came before"),
    "row outside": (hello(), [BUFFER, HostLine(name="h", accesses=(x(4),))], "row 4 of x.* 4 rows"),
    "row below": (hello(), [BUFFER, HostLine(name="h", accesses=(x(-1),))], "row -1 of x"),
    "rows backwards": (hello(), [BUFFER, HostLine(name="h", accesses=(x((3, 1)),))], "row 3 to 0"),
    "no rows": (hello(), [BufferLine(name="x", rows=0)], "x has 0 rows"),
    "too many rows": (hello(), [BufferLine(name="x", rows=1 << 21)], "1 to 1048576 can be"),
    "storage of two sizes": (
        hello(),
        [BUFFER, BufferLine(name="y", rows=3, storage="x")],
        "3 rows of the storage x, which has 4",
    ),
    "two of a name": (hello(), [BUFFER, COPY, COPY], "two operations are called d2h:x@1"),
    "a name that no hold can say": (hello(), [OpLine(name="a b", lane="copy")], "the name 'a b'"),
    "unknown edge": (hello(), [WaitLine(edge="no", event="e")], "edge 'no'.*not introduced"),
    "an owner not offered": (
        hello(),
        [BUFFER, OwnerLine(name="h", buffer="x", row=0, meant=("A", 1), found=None)],
        "does not offer owners",
    ),
    "an owner outside": (
        hello(Offer.OWNERS),
        [BUFFER, OwnerLine(name="h", buffer="x", row=9, meant=("A", 1), found=None)],
        "row 9 of x",
    ),
    "an owner of what nobody wrote": (
        hello(Offer.OWNERS),
        [BUFFER, HostLine(name="h@1", accesses=(x(0),)), OWNER],
        "nobody has written row 0 of x",
    ),
    "an observation not offered": (
        hello(),
        [ObservationLine(step=1, boundary=Boundary.INPUTS, values={})],
        "does not offer observations",
    ),
    "another boundary": (
        hello(Offer.OBSERVATIONS, boundaries=(Boundary.SAMPLED,)),
        [ObservationLine(step=1, boundary=Boundary.INPUTS, values={})],
        "boundary inputs",
    ),
    "a clock not offered": (hello(), [CLOCK_OP], "has a clock, although"),
    "a clock missing": (TOLD, [BUFFER, COPY], "has no clock, although"),
    "a clock goes back": (
        TOLD,
        [
            BUFFER,
            CLOCK_OP,
            HostLine(name="h@1", accesses=(x(),), clock={"copy": 1}),
            HostLine(name="h@2", accesses=(x(),), clock={"copy": 0}),
        ],
        "lane host has 0 operations of copy, which goes back from 1",
    ),
    "a clock ahead": (
        TOLD,
        [CLOCK_OP, OpLine(name="b@1", lane="compute", clock={"copy": 2})],
        "has 2 operations of copy, which is ahead of the 1 operations issued",
    ),
    "a clock of the host": (TOLD, [OpLine(name="b@1", lane="copy", clock={"host": 1})], "'host'"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_refused(case: str) -> None:
    told, lines, message = CONTRADICTIONS[case]
    with pytest.raises(HistoryError, match=message):
        read(lines, told)


@given(lines=st.lists(history_lines(), max_size=12))
def test_nonsense_is_refused_or_read(lines: Sequence[HistoryLine]) -> None:
    """Whatever comes, it is a trace or a HistoryError."""
    reader = HistoryReader(hello(*Offer, boundaries=tuple(Boundary)), KIT)
    try:
        for line in lines:
            reader.take(line)
    except HistoryError as error:
        assert str(error)
    trace = reader.trace()
    for event in trace.events:
        if isinstance(event, OpRecord | HostAccess):
            assert len(event.clock) == len(trace.lanes)


def test_a_query_knows_whether_it_is_ordered() -> None:
    lines = [BUFFER, COPY, RecordLine(event="e", lane="copy"), QueryLine(name="h", event="e")]
    waited = [*lines, WaitLine(edge="landed", event="e"), QueryLine(name="h", event="e")]
    assert [event.is_ordered for event in read(waited).trace().events[2::2]] == [False, True]


def test_introductions_make_sense() -> None:
    check_introduction(hello(Offer.OBSERVATIONS, boundaries=(Boundary.SAMPLED,)))
    with pytest.raises(HistoryError, match="if, and only if, it names boundaries"):
        check_introduction(hello(Offer.OBSERVATIONS))
    for field, value, message in (
        ("lanes", ("copy", "copy"), "the lane 'copy' twice"),
        ("lanes", ("host",), "the lane 'host' twice"),
        ("edges", (EDGE, EDGE), "the edge 'landed' twice"),
        ("devices", (), "names no device"),
        ("lanes", ("a b",), "the name 'a b'"),
    ):
        fields = {name: getattr(hello(), name) for name in HelloAnswer.__struct_fields__}
        with pytest.raises(HistoryError, match=message):
            check_introduction(HelloAnswer(**fields | {field: value}))


def test_the_last_step_is_the_highest_that_was_named() -> None:
    names = [HostLine(name=f"h@{step}", accesses=(x(0),)) for step in (1, 3, 2, 1)]
    assert read([BUFFER, *names]).last_step == 3
