"""Operations: what a scenario's run does, by the names that holds are written with.

One eager run tells them all: operations, host points and edges, in the order in which the host came
to them; and how long each operation can be late, which is until something waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from racegate.check.checker import Checker
from racegate.check.limits import limited_memory
from racegate.check.subject import RunSettings, Subject, virtual_device
from racegate.device.chooser import HoldChooser, Ticket
from racegate.device.recorder import Recorder
from racegate.device.virtual.device import VirtualDevice
from racegate.explore.ladder import reversals
from racegate.faults.fault import Fault
from racegate.history.outcome import SCHEMA
from racegate.history.run import Run
from racegate.history.schedule import EAGER, Hold
from racegate.history.trace import HOST, OpRecord, Recorded, Trace, TraceEvent, Waited, rows_of
from racegate.oracles.ordering import find_conflicts

COPIES = ("h2d:", "d2h:")


class OperationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An operation.

    name: as holds name it; lane: its stream; reads, writes: buffers
    rows: of a copy that a hold can tear, None for what is no such copy
    place: in the order of the trace; waited_at: the place where the host first waits for it, None
        if it never does; edge: the edge that it then waits for
    """

    name: str
    lane: str
    step: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    rows: int | None
    place: int
    waited_at: int | None
    edge: str | None


class PointEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Where a hold can end: the end of a host action, one of its accesses (`#1`), or an operation
    that is complete. name: as holds name it; place: in the order of the trace
    """

    name: str
    place: int


class EdgeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An edge that the run waits for.

    name: of the edge; before: what must come first; after: what may only follow
    lanes: by whom it is waited for; waits: how often
    """

    name: str
    before: str
    after: str
    lanes: tuple[str, ...]
    waits: int


class OpsObject(msgspec.Struct, frozen=True, kw_only=True):
    """What a scenario's run does.

    operations: in the order in which they are issued; points: in their order; edges: waited for
    aliases: names of steps by requests, as `REQUEST.N`
    holds: useful ones, those that turn a conflict round first
    """

    schema: str
    scenario: str
    fault: str | None
    operations: tuple[OperationEntry, ...]
    points: tuple[PointEntry, ...]
    edges: tuple[EdgeEntry, ...]
    aliases: dict[str, int]
    holds: tuple[str, ...]


class _Listener(HoldChooser):
    """Holds nothing, and hears everything. recorder: of the device that it listens to"""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(EAGER)
        self.has_holds = self.watches_accesses = True
        self._recorder = recorder
        self.points: list[PointEntry] = []
        self.aliases: dict[str, int] = {}

    def mark(self, alias: str, step: int) -> None:
        self.aliases[alias] = step

    def ticket(self, lane: str, name: str) -> Ticket | None:
        return None

    def reach(self, point: str) -> bool:
        self.points.append(PointEntry(name=point, place=len(self._recorder.events)))
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Of one eager run. points: in their order; aliases: name of a step by a request -> the step"""

    run: Run
    entries: tuple[OperationEntry, ...]
    points: tuple[PointEntry, ...]
    aliases: Mapping[str, int]


def list_operations(subject: Subject, fault: Fault | None) -> Operations:
    """Runs the scenario once, eagerly."""
    settings = RunSettings(fault=fault)
    device = virtual_device(VirtualDevice, subject.lanes, settings)
    listener = _Listener(device.recorder)
    device.use_chooser(listener)
    run = subject.run_on(device, settings, limit=limited_memory())
    return Operations(
        run=run,
        entries=tuple(_entries(run.trace)),
        points=tuple(listener.points),
        aliases=listener.aliases,
    )


def _entries(trace: Trace) -> Iterator[OperationEntry]:
    waited = _waited(trace)
    for place, event in enumerate(trace.events):
        if isinstance(event, OpRecord):
            waited_at, edge = waited.get(place, (None, None))
            yield OperationEntry(
                name=event.name,
                lane=trace.lanes[event.lane],
                step=event.step,
                reads=_buffers(event, is_write=False),
                writes=_buffers(event, is_write=True),
                rows=_rows(event),
                place=place,
                waited_at=waited_at,
                edge=edge,
            )


def _buffers(event: OpRecord, *, is_write: bool) -> tuple[str, ...]:
    names = (access.buffer for access in event.accesses if access.is_write is is_write)
    return tuple(dict.fromkeys(names))


def _rows(event: OpRecord) -> int | None:
    """Of a copy from the first row on; one of scattered blocks lands whole."""
    masks = {access.rows for access in event.accesses}
    if not event.name.startswith(COPIES) or len(masks) != 1:
        return None
    rows = rows_of(masks.pop())
    return len(rows) if rows == list(range(len(rows))) else None


@dataclass(slots=True)
class _Waits:
    """What the host knows to be complete, wait by wait."""

    records: dict[tuple[str, int], Recorded] = field(default_factory=dict)
    pending: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def follow(self, place: int, event: TraceEvent) -> Iterator[int]:
        """Places of the operations that a wait of the host ends."""
        if isinstance(event, OpRecord):
            self.pending.setdefault(event.lane, []).append((event.seq, place))
        elif isinstance(event, Recorded):
            self.records[event.event, event.version] = event
        elif isinstance(event, Waited) and event.lane == HOST and not event.is_dropped:
            record = self.records.get((event.event, event.version))
            if record is not None:
                for lane, known in enumerate(record.clock):
                    left = self.pending.get(lane, [])
                    yield from (place for seq, place in left if seq <= known)
                    self.pending[lane] = [entry for entry in left if entry[0] > known]


def _waited(trace: Trace) -> dict[int, tuple[int, str]]:
    """Place of an operation -> where the host first waits for it or what is behind it, and by which
    edge.
    """
    waits = _Waits()
    found: dict[int, tuple[int, str]] = {}
    for place, event in enumerate(trace.events):
        for operation in waits.follow(place, event):
            assert isinstance(event, Waited)
            found[operation] = (place, event.edge)
    return found


def useful_holds(operations: Operations) -> tuple[str, ...]:
    """Those that turn a conflict round; then, of each kind of operation, the one that is late for
    the most host actions, until the last of them.
    """
    turned = [hold.text() for hold in reversals(find_conflicts(operations.run.trace))]
    points = [point for point in operations.points if is_action(point.name)]
    longest: dict[str, tuple[int, Hold]] = {}
    for entry in operations.entries:
        crossed = _crossed(entry, points)
        name = f"{entry.lane}/{base_of(entry.name)}"
        if crossed and len(crossed) > longest.get(name, (0, None))[0]:
            hold = Hold(op=entry.name, until=crossed[-1].name)
            longest[name] = (len(crossed), hold)
    late = [hold.text() for _, hold in longest.values()]
    return tuple(dict.fromkeys([*turned, *late]))


def _crossed(entry: OperationEntry, points: Sequence[PointEntry]) -> list[PointEntry]:
    """Ends of host actions that the operation can be late for. Behind the last wait of a run there
    is none: it ends when everything is complete.
    """
    if entry.waited_at is None:
        return []
    return [point for point in points if entry.place < point.place <= entry.waited_at]


def is_action(point: str) -> bool:
    """Whether a point is the end of a host action."""
    return point.startswith("host:") and "#" not in point


def described(checker: Checker, fault: Fault | None) -> OpsObject:
    """What a scenario's run does, and which holds are useful in it."""
    operations = list_operations(checker.subject, fault)
    return OpsObject(
        schema=SCHEMA,
        scenario=checker.scenario.name,
        fault=None if fault is None else fault.name,
        operations=operations.entries,
        points=operations.points,
        edges=edges_of(operations.run),
        aliases=dict(operations.aliases),
        holds=useful_holds(operations),
    )


def base_of(name: str) -> str:
    """A name without its lane, step and rows."""
    return name.rpartition("/")[2].partition("@")[0]


def edges_of(run: Run) -> tuple[EdgeEntry, ...]:
    """The edges that a run waits for, as the engine declares them."""
    lanes: dict[str, dict[str, int]] = {}
    for event in run.trace.events:
        if isinstance(event, Waited):
            counts = lanes.setdefault(event.edge, {})
            lane = run.trace.lanes[event.lane]
            counts[lane] = counts.get(lane, 0) + 1
    return tuple(
        EdgeEntry(
            name=edge.name,
            before=edge.before,
            after=edge.after,
            lanes=tuple(lanes[edge.name]),
            waits=sum(lanes[edge.name].values()),
        )
        for edge in run.edges
        if edge.name in lanes
    )
