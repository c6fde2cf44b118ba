"""Ordering oracle: conflicting accesses with no path of program edges between them (happens-before,
vector clocks).

Per memory (storage) and row, in the manner of FastTrack (Flanagan and Freund 2009): the last write
and the reads since are kept; lanes are few, so whole clocks are compared. Rows that were last
touched together are kept as one mask, and found by row where there are many masks: an access costs
what it touches, not what was touched before.

If there is no conflict in one run that does not query completion, all schedules of the program are
equivalent: they differ in the order of operations that commute, and have the same outcome
(Mazurkiewicz, Trace theory, 1987).
"""

from __future__ import annotations

from operator import attrgetter

import msgspec

from racegate.history.trace import Access, HostAccess, OpRecord, Queried, Trace, rows_of


class Conflict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Two accesses to common rows, at least one a write, that nothing orders. first was issued
    first.
    """

    buffer: str
    rows: int
    first: OpRecord | HostAccess
    first_writes: bool
    second: OpRecord | HostAccess
    second_writes: bool


class _Seen:
    """Rows of one access that no later one has covered. number: of the access, in its storage"""

    __slots__ = ("event", "is_write", "lane", "number", "rows", "seq")

    def __init__(self, event: OpRecord | HostAccess, access: Access, number: int) -> None:
        self.event = event
        self.lane = event.lane
        self.seq = event.seq
        self.rows = access.rows
        self.is_write = access.is_write
        self.number = number


# So many accesses are looked through one by one before those of few rows are indexed by row.
LISTED_MAX = 32
INDEXED_ROWS_MAX = 64


class _Last:
    """Who touched the rows of a storage last.

    listed: what is looked through one by one; indexed: the others, each of few rows
    by_row: row -> the access that was indexed there last; its rows say whether it is still there
    """

    __slots__ = ("by_row", "indexed", "listed", "listed_max")

    def __init__(self) -> None:
        self.listed: list[_Seen] = []
        self.indexed: dict[_Seen, None] = {}
        self.by_row: dict[int, _Seen] = {}
        self.listed_max = LISTED_MAX

    def over(self, rows: int) -> list[_Seen]:
        """Those that touched any of these rows last."""
        found = [seen for seen in self.listed if seen.rows & rows]
        if self.indexed:
            found += self._indexed_over(rows)
        return found

    def _indexed_over(self, rows: int) -> list[_Seen]:
        # To find a row costs several times what it costs to look at one access.
        if 8 * rows.bit_count() >= len(self.indexed):
            return [seen for seen in self.indexed if seen.rows & rows]
        found = {self.by_row[row]: None for row in rows_of(rows) if row in self.by_row}
        return [seen for seen in found if seen.rows & rows]

    def cover(self, found: list[_Seen], rows: int) -> None:
        """A later access stands for those that were found over its rows."""
        is_over = False
        for seen in found:
            seen.rows &= ~rows
            is_over = is_over or not seen.rows
        if is_over:
            self.listed = [seen for seen in self.listed if seen.rows]
            if self.indexed:
                for seen in found:
                    if not seen.rows:
                        self.indexed.pop(seen, None)

    def add(self, seen: _Seen) -> None:
        """Touches its rows last; who did before is covered."""
        self.listed.append(seen)
        if len(self.listed) > self.listed_max:
            self._index()

    def _index(self) -> None:
        """Those of few rows go to the index; the others are as many as the memory has room for."""
        for seen in self.listed:
            if seen.rows.bit_count() <= INDEXED_ROWS_MAX:
                self.indexed[seen] = None
                for row in rows_of(seen.rows):
                    self.by_row[row] = seen
        self.listed = [seen for seen in self.listed if seen not in self.indexed]
        self.listed_max = max(LISTED_MAX, 2 * len(self.listed))


class _Shadow:
    """What is remembered of one storage: the last writes, and the reads since by lane."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.writes = _Last()
        self.reads: dict[int, _Last] = {}


def find_conflicts(trace: Trace) -> list[Conflict]:
    """All conflicts of a run, one per pair of accesses, in the order in which the second access was
    issued.
    """
    conflicts: list[Conflict] = []
    for history in _by_storage(trace).values():
        shadow = _Shadow()
        for number, (event, access) in enumerate(history):
            seen = _Seen(event, access, number)
            if access.is_write:
                _write(shadow, seen, access, conflicts)
            else:
                _read(shadow, seen, access, conflicts)
    return conflicts


def has_unordered_query(trace: Trace) -> bool:
    """Whether the host branched on a completion that no edge had settled."""
    return any(isinstance(event, Queried) and not event.is_ordered for event in trace.events)


def _by_storage(trace: Trace) -> dict[int, list[tuple[OpRecord | HostAccess, Access]]]:
    """Accesses by storage, for the storages that more than one lane touches: one lane alone is
    ordered.
    """
    history: dict[int, list[tuple[OpRecord | HostAccess, Access]]] = {}
    lanes: dict[int, int] = {}
    for event in trace.events:
        if isinstance(event, HostAccess):
            accesses: tuple[Access, ...] = (event.access,)
            bit = 1
        elif isinstance(event, OpRecord):
            accesses = event.accesses
            bit = 1 << event.lane
        else:
            continue
        for access in accesses:
            storage = access.storage
            if storage in history:
                history[storage].append((event, access))
                lanes[storage] |= bit
            else:
                history[storage] = [(event, access)]
                lanes[storage] = bit
    return {storage: items for storage, items in history.items() if lanes[storage].bit_count() > 1}


def _read(shadow: _Shadow, seen: _Seen, access: Access, conflicts: list[Conflict]) -> None:
    _report(shadow.writes.over(seen.rows), seen, access, conflicts)
    last = shadow.reads.get(seen.lane)
    if last is None:
        last = shadow.reads[seen.lane] = _Last()
    # A later read of the same lane stands for an earlier one: what is ordered after it is after
    # both.
    last.cover(last.over(seen.rows), seen.rows)
    last.add(seen)


def _write(shadow: _Shadow, seen: _Seen, access: Access, conflicts: list[Conflict]) -> None:
    rows = seen.rows
    writes = shadow.writes.over(rows)
    reads = [(last, last.over(rows)) for last in shadow.reads.values()]
    _report(writes, seen, access, conflicts)
    _report([read for _, found in reads for read in found], seen, access, conflicts)
    shadow.writes.cover(writes, rows)
    for last, found in reads:
        last.cover(found, rows)
    shadow.writes.add(seen)


def _report(earlier: list[_Seen], later: _Seen, access: Access, conflicts: list[Conflict]) -> None:
    """Conflicts of an access with those of the earlier ones that nothing orders, oldest first."""
    clock, lane = later.event.clock, later.lane
    unordered = [seen for seen in earlier if seen.lane != lane and clock[seen.lane] < seen.seq]
    for seen in sorted(unordered, key=attrgetter("number")) if unordered else ():
        conflicts.append(
            Conflict(
                buffer=access.buffer,
                rows=seen.rows & access.rows,
                first=seen.event,
                first_writes=seen.is_write,
                second=later.event,
                second_writes=access.is_write,
            )
        )
