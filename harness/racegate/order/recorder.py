"""Recorder: what a program asks of its device and does on the host, judged as it happens.

It knows the program's edges only (program order of a thread, issue, stream order, events, waits,
locks and joins), never when something really ran. One run finds every pair of accesses that some
other timing of the same program could exchange.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from racegate.history.finding import Frame
from racegate.history.finding import Stack as Stack
from racegate.history.recorded.log import StepRecorder
from racegate.history.schedule import AccessPlace, place_of
from racegate.order.clocks import Clock, join
from racegate.order.compiled import compiled_order
from racegate.order.interface import Order, Ranges, RawAccess, RawRace
from racegate.order.lanes import Lanes
from racegate.order.memory import Access, MemoryShadow
from racegate.order.remedies import TriedEdges
from racegate.order.remedies import Version as Version

_NO_FRAME: Frame = ("", 0, "")
OnPair = Callable[[Access, Access], None]
Label = Callable[[str, Stack], str]  # of a kind and the stack: the name of the next operation


class WaitTotal(NamedTuple):
    """How many operations a wait covers that who waits did not know to be complete, all turns
    together. host: where a thread waits; streams: where a stream does
    """

    host: int
    streams: int


@dataclass(slots=True)
class Conflict:
    """Two places of a program that touch common bytes without an order; one example, and how often.

    early: where the event that the second lane waited for was recorded, if before the first access
    remedies: what would order all its pairs
    """

    first: Access
    first_writes: bool
    second: Access
    second_writes: bool
    low: int
    nbytes: int
    early: Stack = ()
    remedies: TriedEdges = field(default_factory=TriedEdges)
    count: int = 1
    pairs: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Place:
    """Where a program asks for one kind of operation, and how often it has."""

    name: str
    count: int = 0


def _at(clock: Sequence[int], lane: int) -> int:
    return clock[lane] if lane < len(clock) else 0


def _forget_pair(first: Access, second: Access) -> None:
    """Nobody asks for single pairs."""


class PlaceLabels:
    """Names of operations by the place in the program that asks for them."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, Frame], _Place] = {}
        self._lines: Counter[str] = Counter()

    def label(self, kind: str, stack: Stack) -> str:
        """Kind, place and count: the name of an operation that another run has again, and that
        it keeps when lines move.
        """
        frame = stack[0] if stack else _NO_FRAME
        place = self._places.get((kind, frame))
        if place is None:
            place = self._places[kind, frame] = _Place(self._place(kind, frame))
        place.count += 1
        return f"{place.name}#{place.count}"

    def _place(self, kind: str, frame: Frame) -> str:
        """Kind, file and function; of several lines of a function that do the same, from the second
        on with a number in the order in which they were first reached.
        """
        file, _, function = frame
        place = f"{kind}@{file.rpartition('/')[2]}:{function}" if file else f"{kind}@?"
        self._lines[place] += 1
        return place if self._lines[place] == 1 else f"{place}[{self._lines[place]}]"


class Recorder:
    """Clocks of all lanes, the shadow of all memory, and the conflicts found so far.

    order: what keeps them; in C, if nothing else is given
    label: names operations; by `PlaceLabels`, if nothing else is given
    on_conflict: told of each new pair of places when it is found, while its variables live
    is_watched: whether the last access touched memory that is watched
    positions: where the accesses of all conflicts stand, by their labels
    log: takes all of it down, if somebody wants that
    """

    def __init__(
        self,
        order: Order | None = None,
        *,
        label: Label | None = None,
        on_conflict: Callable[[Conflict], None] | None = None,
    ) -> None:
        self._order = compiled_order() if order is None else order
        self.lanes = Lanes(self._order)
        self.memory = MemoryShadow(self._order)
        self.conflicts: dict[tuple[str, bool, str, bool], Conflict] = {}
        self.is_watched = self._order.is_watched
        self.label = PlaceLabels().label if label is None else label
        self.on_conflict = on_conflict
        self.log: StepRecorder | None = None
        self._on_pair: OnPair = _forget_pair
        self._versions: dict[int, Version] = {}
        self._legacy = -1
        self._has_blocking = False
        self._early: dict[tuple[int, int], Stack] = {}
        self._open: dict[int, list[Conflict]] = {}
        self.positions: dict[str, AccessPlace] = {}
        self._asked: Clock = []  # what allocators have found complete
        self._priced: dict[str, WaitTotal] | None = None
        self._issued: dict[int, list[int]] = {}  # numbers of operations by lane, while waits cost

    def tell_pairs(self, on_pair: OnPair) -> None:
        """From now on each pair of accesses of a conflict is told."""
        self._on_pair = on_pair

    @property
    def events(self) -> int:
        """How many were recorded."""
        return self._order.events()

    def price_waits(self) -> None:
        """From now on it is counted what waits have to wait for."""
        self._priced = {}

    @property
    def prices(self) -> dict[str, WaitTotal]:
        """What waits have cost, by their `file:line`; empty if nobody asked for it."""
        return dict(self._priced or {})

    def last_access(self) -> Access:
        """What `issue` or `host` recorded last."""
        return Access(*self._order.latest())

    def keep_log(self) -> StepRecorder:
        """From now on all of it is taken down."""
        self.log = StepRecorder()
        return self.log

    def add_stream(self, name: str, *, is_legacy: bool = False, is_blocking: bool = False) -> int:
        """A lane for a stream. A blocking one and the legacy default stream wait for each other."""
        lane = self.lanes.add(name, is_host=False, is_legacy=is_legacy, is_blocking=is_blocking)
        self._legacy = lane if is_legacy else self._legacy
        self._has_blocking |= is_blocking
        return lane

    def add_thread(self, name: str) -> int:
        return self.lanes.add(name, is_host=True)

    def issue(
        self, thread: int, stream: int, label: str, stack: Stack, reads: Ranges, writes: Ranges
    ) -> int:
        """A thread puts an operation on a stream. reads, writes: the bytes it touches. Returns the
        lane of what this thread gives this stream.
        """
        lane = self.lanes.of(thread, stream)
        raced = self._order.issue(thread, lane, label, stack, reads, writes)
        if self._priced is not None:
            self._issued.setdefault(lane, []).append(self.lanes.number(lane))
        if self.log is not None:
            self.log.operation(thread, self.lanes.stream_of(stream), label, stack, reads, writes)
        if raced is not None:
            self._report(*raced)
        return lane

    def host(self, thread: int, label: str, stack: Stack, reads: Ranges, writes: Ranges) -> None:
        """A thread touches memory that the device can reach."""
        raced = self._order.host(thread, label, stack, reads, writes)
        if self.log is not None:
            self.log.access(thread, label, stack, reads, writes)
        if raced is not None:
            self._report(*raced)

    def record(self, event: int, thread: int, stream: int, stack: Stack) -> Version:
        """An event is recorded on a stream: it covers all that was put there before."""
        clock = self._order.record(thread, stream)
        if stream == self._legacy and self._has_blocking:  # which wait for the record, as for work
            self._order.make_wait(thread, self.lanes.of(thread, stream), clock)
        version = self._versions[event] = Version(stream, clock, stack)
        if self.log is not None:
            self.log.record(thread, self.lanes.stream_of(stream), event, stack)
        return version

    def forget(self, event: int) -> None:
        """The event was destroyed."""
        self._versions.pop(event, None)

    def version(self, event: int) -> Version | None:
        """The latest record of an event, if there is one."""
        return self._versions.get(event)

    def wait(self, thread: int, event: int, stack: Stack, *, by: str = "") -> Clock | None:
        """A thread waits for the latest record; returns what it covers. by: what waits, in words,
        if it is no wait of the program's own
        """
        version = self._versions.get(event)
        if version is None:
            return None
        self._join(thread, version, stack, by)
        if self.log is not None:
            self.log.wait_event(thread, thread, event, stack)
        return version.clock

    def make_wait(self, thread: int, stream: int, event: int, stack: Stack) -> None:
        """A thread makes a stream wait for the latest record of an event."""
        version = self._versions.get(event)
        if version is not None:
            lane = self.lanes.of(thread, stream)
            self._price(lane, version.clock, stack)
            self._order.make_wait(thread, lane, version.clock)
            self._joined(lane, version, stack, "")
            if self.log is not None:
                self.log.wait_event(thread, self.lanes.stream_of(lane), event, stack)

    def wait_stream(self, thread: int, stream: int, stack: Stack, *, by: str = "") -> Clock:
        """A thread waits for all that it put on a stream, or knows to be there. by: what waits, in
        words
        """
        clock = self.given(thread, stream)
        by = by or f"the wait for {self.lanes.names[stream]}"
        self._join(thread, Version(stream, clock, stack), stack, by)
        if self.log is not None:
            self.log.wait_stream(thread, self.lanes.stream_of(stream), stack, by)
        return clock

    def given(self, thread: int, stream: int) -> Clock:
        """What a stream was given, as far as the thread knows: all that a wait for it covers."""
        return self._order.stream_clock(thread, stream)

    def handed_out(self, thread: int, low: int, high: int, *, stream: int | None = None) -> None:
        """An allocator gives bytes to a thread that others have given back to it.

        What was done with them before is over for who comes behind the thread: of the device's
        memory on the stream that it belongs to, as far as that stream has waited; of pinned memory
        (no stream) as far as any thread knows, or the allocator has asked.
        """
        lanes = self.lanes
        own = thread if stream is None else lanes.of(thread, stream)
        others = lanes.threads() if stream is None else lanes.given(stream)
        if len(others) < 2:
            return
        clock = list(self._asked) if stream is None else []
        for lane in others:
            join(clock, lanes.clock(lane))
        self._order.adopt(thread, own, clock, low, high)

    def found_complete(self, thread: int, event: int, stack: Stack) -> None:
        """An allocator asked for an event, and it was complete."""
        by = "what the allocator knows"
        join(self._asked, self.wait(thread, event, stack, by=by) or ())

    def hand_on(self, thread: int) -> Clock:
        """A thread releases a lock, puts into a queue, starts or ends a thread."""
        self._order.count_event()
        clock = self.lanes.release(thread)
        if self.log is not None:
            self.log.hand_on(thread, clock)
        return clock

    def take(self, thread: int, clock: Clock) -> None:
        """A thread learns what another handed on."""
        if self.log is not None:
            self.log.take(thread, self.lanes.clock(thread), clock)
        self.lanes.learn(thread, clock)

    def _report(self, present: RawAccess, races: Sequence[RawRace]) -> None:
        access = Access(*present)
        for raw, earlier_writes, low, high, is_write in races:
            first = Access(*raw)
            key = (place_of(first.label), earlier_writes, place_of(access.label), is_write)
            known = self.conflicts.get(key)
            is_new = known is None
            if known is None:
                known = Conflict(first, earlier_writes, access, is_write, low, 0)
                known.early = self._early.get((access.lane, self.lanes.stream_of(first.lane)), ())
                self.conflicts[key] = known
                self._open.setdefault(access.lane, []).append(known)
            if (known.first.index, known.second.index) == (first.index, access.index):
                known.nbytes += high - low
            pair = (first.label, access.label)
            for one in (first, access):
                self.positions[one.label] = AccessPlace(self.lanes.stream_of(one.lane), one.index)
            if not known.pairs or known.pairs[-1] != pair:
                known.pairs.append(pair)
                known.count = len(known.pairs)
                known.remedies.try_pair(first, self._versions.values())
                self._on_pair(first, access)
            if is_new and self.on_conflict is not None:
                self.on_conflict(known)

    def _join(self, thread: int, version: Version, stack: Stack, by: str) -> None:
        self._price(thread, version.clock, stack)
        self._order.learn(thread, version.clock)
        self._joined(thread, version, stack, by)

    def _price(self, lane: int, covered: Clock, stack: Stack) -> None:
        if self._priced is None or not stack:
            return
        own = self.lanes.clock(lane)
        new = 0
        for other, numbers in self._issued.items():
            if (until := _at(covered, other)) > (known := _at(own, other)):
                new += bisect_right(numbers, until) - bisect_right(numbers, known)
        place = f"{stack[0][0]}:{stack[0][1]}"
        host, streams = self._priced.get(place, WaitTotal(0, 0))
        is_host = self.lanes.is_host(lane)
        self._priced[place] = WaitTotal(host + new * is_host, streams + new * (not is_host))

    def _joined(self, lane: int, version: Version, stack: Stack, by: str) -> None:
        """What a wait of this lane says of its conflicts. version: what was waited for"""
        self._order.count_event()
        self._early[lane, version.lane] = version.stack
        waiting = self._open.get(lane)
        if not waiting:
            return
        clock = self.lanes.clock(lane)
        for conflict in waiting:
            conflict.remedies.waited(clock, version, stack, by)
