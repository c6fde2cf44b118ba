"""Programs told to a recorder, statement by statement, and what orders them, by paths alone.

The order is worked out twice: the recorder keeps clocks, a story keeps a graph. Nothing of the
oracles is used here.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from racegate.device.recorder import Recorder, Version
from racegate.history.trace import HOST, Access, HostAccess, OpRecord, Trace

STREAMS = ("s0", "s1", "s2")
S0, S1, S2 = 1, 2, 3
ROWS, STORAGES, EVENTS = 4, 2, 3


def read(rows: int = 1, storage: int = 0) -> Access:
    """A read of the rows in a mask."""
    return Access(f"b{storage}", storage, rows, False)


def write(rows: int = 1, storage: int = 0) -> Access:
    """A write of the rows in a mask."""
    return Access(f"b{storage}", storage, rows, True)


class Story:
    """Tells a recorder what a program does, and notes which points come before which.

    A point is a thing that happens: a statement of the host, an operation, a record, a wait of a
    stream. places: of what touches memory, in the trace -> its point. Lanes are those of the rank
    whose turn it is; all but the first storage is its own, and the host touches nothing else.
    """

    def __init__(self, *, ranks: int = 1) -> None:
        suffixes = [f".rank{rank}" for rank in range(ranks)] if ranks > 1 else [""]
        self.recorder = Recorder(tuple(s + suffix for suffix in suffixes for s in STREAMS))
        self._rank = 0
        self.places: dict[int, int] = {}
        self._before: list[set[int]] = []  # point -> all points before it
        self._last: dict[int, int] = {}  # lane -> its last point
        self._records: dict[str, tuple[Version, int]] = {}
        self._numbers: dict[str, int] = {}
        self.queries: list[bool] = []  # whether everything before the record was known

    def _point(self, *sources: int | None) -> int:
        known = [source for source in sources if source is not None]
        self._before.append(set(known).union(*(self._before[source] for source in known)))
        return len(self._before) - 1

    def turn(self, rank: int) -> None:
        """What comes from now on is done by this rank."""
        self._rank = rank
        self.recorder.turn(rank)

    def _of_rank(self, access: Access) -> Access:
        storage = access.storage + self._rank * STORAGES if access.storage else 0
        return Access(f"b{storage}", storage, access.rows, access.is_write)

    def _lane(self, lane: int) -> int:
        return self.recorder.host if lane == HOST else lane + self._rank * len(STREAMS)

    def _host(self, *sources: int) -> int:
        host = self.recorder.host
        point = self._last[host] = self._point(self._last.get(host), *sources)
        return point

    def _on(self, lane: int, *sources: int) -> int:
        """Something issued to a stream, behind what it has."""
        point = self._last[lane] = self._point(self._host(), self._last.get(lane), *sources)
        return point

    def op(self, lane: int, *accesses: Access) -> None:
        """An operation on a stream."""
        lane = self._lane(lane)
        self.places[len(self.recorder.events)] = self._on(lane)
        uses = tuple(map(self._of_rank, accesses))
        self.recorder.issue(lane, f"op{len(self.recorder.events)}", 0, uses)

    def host(self, access: Access) -> None:
        """An access of the host."""
        self.places[len(self.recorder.events)] = self._host()
        self.recorder.action = (f"host{len(self.recorder.events)}", 0)
        self.recorder.host_access(self._of_rank(access))

    def record(self, lane: int, event: str = "e") -> None:
        """An event recorded on a stream."""
        lane = self._lane(lane)
        number = self._numbers[event] = self._numbers.get(event, 0) + 1
        self._records[event] = (self.recorder.record(lane, event, number), self._on(lane))

    def wait(self, lane: int, event: str = "e", *, is_dropped: bool = False) -> None:
        """A stream, or the host, waits for the latest record; one that never was is nothing."""
        if event not in self._records:
            return
        version, record = self._records[event]
        lane = self._lane(lane)
        self.recorder.wait(lane, version, "edge", step=0, is_dropped=is_dropped)
        sources = () if is_dropped else (record,)
        if lane == self.recorder.host:
            self._host(*sources)
        elif not is_dropped:
            self._on(lane, *sources)

    def query(self, event: str = "e") -> None:
        """The host asks whether the latest record is complete."""
        if event in self._records:
            version, record = self._records[event]
            self.recorder.query(version)
            here = self._host()
            ops = set(self.places.values()) & self._before[record]
            self.queries.append(ops <= self._before[here])

    def edge(self, source: int, target: int, *, is_dropped: bool = False) -> None:
        """What the target does from now on comes after what the source has."""
        self.record(source)
        self.wait(target, is_dropped=is_dropped)

    def trace(self) -> Trace:
        """What the recorder made of it."""
        return Trace(lanes=self.recorder.lanes, events=tuple(self.recorder.events))

    def is_before(self, first: int, second: int) -> bool:
        """Whether one place of the trace comes before another by a path of edges."""
        return self.places[first] in self._before[self.places[second]]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two accesses to one row of which one writes and which nothing orders, by place in the trace,
    the access within the operation, and what it does.
    """

    row: int
    storage: int
    first: int
    first_writes: bool
    second: int
    second_writes: bool


def touches(story: Story) -> list[tuple[int, Access]]:
    """Every access of a story with its place, in the order of the trace."""
    found = []
    for place, event in enumerate(story.recorder.events):
        if isinstance(event, OpRecord | HostAccess):
            found += [(place, access) for access in event.accesses]
    return found


def all_pairs(story: Story) -> set[Pair]:
    """Every pair of accesses without an order."""
    found = set()
    known = touches(story)
    for number, (second, later) in enumerate(known):
        for first, earlier in known[:number]:
            common = earlier.rows & later.rows
            if earlier.storage != later.storage or not (earlier.is_write or later.is_write):
                continue
            if first == second or story.is_before(first, second):
                continue
            for row in range(ROWS):
                if common >> row & 1:
                    kinds = (first, earlier.is_write, second, later.is_write)
                    found.add(Pair(row, later.storage, *kinds))
    return found


def nearest_pairs(story: Story) -> set[Pair]:
    """Those pairs in which the first access is the row's last write, or the last read of its lane
    since that write: what is hidden behind them is explained by them.
    """
    writes: dict[tuple[int, int], int] = {}  # (storage, row) -> place
    reads: dict[tuple[int, int], dict[int, int]] = {}  # ... -> lane -> place
    near: set[tuple[int, int, int, bool, int, bool]] = set()
    for place, access in touches(story):
        lane = story.recorder.events[place].lane  # type: ignore[union-attr]
        for row in (row for row in range(ROWS) if access.rows >> row & 1):
            cell = (access.storage, row)
            seen = reads.setdefault(cell, {})
            if cell in writes:
                near.add((row, access.storage, writes[cell], True, place, access.is_write))
            if access.is_write:
                near |= {(row, access.storage, old, False, place, True) for old in seen.values()}
                writes[cell] = place
                seen.clear()
            else:
                seen[lane] = place
    return {pair for pair in all_pairs(story) if astuple_of(pair) in near}


def astuple_of(pair: Pair) -> tuple[int, int, int, bool, int, bool]:
    """The fields of a pair, in order."""
    kinds = (pair.first, pair.first_writes, pair.second, pair.second_writes)
    return (pair.row, pair.storage, *kinds)


def listed_pairs(story: Story) -> list[tuple[int, int, int, bool, int, bool]]:
    """The nearest pairs as (storage, rows, first, first_writes, second, second_writes), in the
    order of an oracle that goes through every storage access by access: writes before reads, the
    earlier first.
    """
    known = list(enumerate(touches(story)))
    listed = []
    for storage in dict.fromkeys(access.storage for _, (_, access) in known):
        cells: dict[int, dict[int, tuple[int, int, bool]]] = {}  # row -> lane, -1 for the write
        for number, (place, access) in known:
            if access.storage == storage:
                listed += _nearest(story, cells, number, place, access)
    return listed


def _nearest(
    story: Story,
    cells: dict[int, dict[int, tuple[int, int, bool]]],
    number: int,
    place: int,
    access: Access,
) -> list[tuple[int, int, int, bool, int, bool]]:
    """The pairs that an access makes with what was near, which it becomes part of."""
    rows: dict[tuple[bool, int, int], int] = {}  # (is a read, number, place) -> rows
    for row in (row for row in range(access.rows.bit_length()) if access.rows >> row & 1):
        cell = cells.setdefault(row, {})
        for old_number, old_place, is_write in cell.values():
            is_pair = is_write or access.is_write
            if is_pair and old_place != place and not story.is_before(old_place, place):
                key = (not is_write, old_number, old_place)
                rows[key] = rows.get(key, 0) | 1 << row
        if access.is_write:
            cell.clear()
        lane = story.recorder.events[place].lane  # type: ignore[union-attr]
        cell[-1 if access.is_write else lane] = (number, place, access.is_write)
    return [
        (access.storage, rows[key], key[2], not key[0], place, access.is_write)
        for key in sorted(rows)
    ]


def wide_story(seed: int) -> Story:
    """A story of 100 to 250 statements about memory of many rows, most of them about few rows."""
    draw = random.Random(seed)
    rows = draw.choice((8, 60, 300))
    story = Story()
    for _ in range(draw.randrange(100, 250)):
        lane = draw.choice((S0, S1, S2))
        what = draw.choices(("op", "host", "record", "wait"), (12, 2, 2, 1))[0]
        if what == "op":
            story.op(lane, *(_wide_access(draw, rows) for _ in range(draw.randrange(1, 4))))
        elif what == "host":
            story.host(_wide_access(draw, rows))
        elif what == "record":
            story.record(lane)
        else:
            story.wait(draw.choice((HOST, S0, S1, S2)))
    return story


def story_of_ranks(seed: int) -> Story:
    """A story of two ranks that wait for each other as often as they touch what both can see."""
    draw = random.Random(seed)
    story = Story(ranks=2)
    for _ in range(draw.randrange(8, 40)):
        story.turn(draw.randrange(2))
        lane, event = draw.choice((S0, S1, S2)), f"e{draw.randrange(2)}"
        what = draw.choices(("op", "host", "record", "wait"), (6, 1, 4, 4))[0]
        rows, is_write = draw.randrange(1, 1 << ROWS), draw.random() < 0.5
        if what == "op":
            story.op(lane, Access("", draw.randrange(STORAGES), rows, is_write))
        elif what == "host":
            story.host(Access("", draw.randrange(1, STORAGES), rows, is_write))
        elif what == "record":
            story.record(lane, event)
        else:
            story.wait(draw.choice((HOST, lane)), event, is_dropped=draw.random() < 0.1)
    return story


def _wide_access(draw: random.Random, rows: int) -> Access:
    """One row, some scattered ones, or many in a row."""
    count = draw.choices((1, 8, 100), (12, 4, 1))[0]
    mask = ((1 << count) - 1) << draw.randrange(rows)
    if count == 8:
        mask = sum(1 << row for row in draw.sample(range(rows), 8))
    storage = draw.randrange(STORAGES)
    return Access(f"b{storage}", storage, mask, draw.random() < 0.5)


masks = st.integers(1, (1 << ROWS) - 1)
accesses = st.builds(
    lambda rows, storage, is_write: Access(f"b{storage}", storage, rows, is_write),
    masks,
    st.integers(0, STORAGES - 1),
    st.booleans(),
)
lanes = st.sampled_from((S0, S1, S2))
events = st.sampled_from([f"e{number}" for number in range(EVENTS)])
Statement = tuple[object, ...]
statements: SearchStrategy[Statement] = st.one_of(
    st.tuples(st.just("op"), lanes, st.lists(accesses, min_size=1, max_size=3)),
    st.tuples(st.just("host"), accesses),
    st.tuples(st.just("record"), lanes, events),
    st.tuples(st.just("wait"), st.sampled_from((HOST, S0, S1, S2)), events, st.booleans()),
    st.tuples(st.just("query"), events),
)


def told(program: Sequence[Statement]) -> Story:
    """A story of the given statements."""
    story = Story()
    for statement in program:
        match statement:
            case ("op", int(lane), list(uses)):
                story.op(lane, *uses)
            case ("host", Access() as access):
                story.host(access)
            case ("record", int(lane), str(event)):
                story.record(lane, event)
            case ("wait", int(lane), str(event), bool(is_dropped)):
                story.wait(lane, event, is_dropped=is_dropped)
            case ("query", str(event)):
                story.query(event)
    return story


stories = st.lists(statements, min_size=2, max_size=24).map(told)
stories_of_ranks = st.integers(0, 1 << 32).map(story_of_ranks)
wide_stories = st.integers(0, 1 << 32).map(wide_story)
