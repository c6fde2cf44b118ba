"""From the lines of an engine to the trace of its run. What contradicts itself is refused, with the
line and the reason: a verdict on it would be worth nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from racegate.history.observe import Boundary, Observation
from racegate.history.schedule import step_number
from racegate.history.trace import (
    HOST,
    Access,
    HoldOutcome,
    HostAccess,
    Misowned,
    OpRecord,
    Queried,
    Recorded,
    Trace,
    TraceEvent,
    Waited,
)
from racegate.oracles.missing_edge import label
from racegate.scenario.spec import ScenarioBase
from racegate.targets.adapters.clocks import ClockError, ForeignClocks
from racegate.targets.adapters.wire import (
    AccessEntry,
    BufferLine,
    DropEdge,
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
    plant_text,
)

HOST_NAME = "host"
ROWS_MAX = 1 << 20
# Rows of the buffers that single accesses name rows of, all together: so many bits are kept.
MASK_BITS_MAX = 1 << 32
# Holds are written with these names.
_BOUNDARIES = frozenset(Boundary)
_NAME = re.compile(r"[A-Za-z0-9_.:@/#\-]{1,200}")


class HistoryError(Exception):
    """A history that contradicts itself, or the engine's own introduction: says how."""


class HistoryReader:
    """Takes the history lines of one run, in order. hello: what they have to keep to
    scenario: what runs, whose requests alone can own a value
    """

    def __init__(self, hello: HelloAnswer, scenario: ScenarioBase) -> None:
        self._hello = hello
        self._scenario = scenario
        self._requests = {request.name for request in scenario.requests}
        self._lanes = (HOST_NAME, *hello.lanes)
        self._edges = {edge.name for edge in hello.edges}
        self._clocks = ForeignClocks(self._lanes)
        self._buffers: dict[str, tuple[int, int]] = {}
        self._storages: dict[str, tuple[int, int]] = {}
        self._whole: dict[int, int] = {}
        self._mask_bits = 0
        self._last_seen: dict[str, int] = {}
        # Rows by action and buffer: read ones, those of which an owner was told, right owners
        self._reads: dict[tuple[str, str], int] = {}
        self._owned: dict[tuple[str, str], int] = {}
        self._right: set[tuple[str, str]] = set()
        self._written: dict[int, int] = {}  # rows, by storage
        self._events: list[TraceEvent] = []
        self._observations: list[Observation] = []
        self.ops: dict[str, str] = {}  # with their lanes
        self.last_step = 0

    def take(self, line: HistoryLine) -> None:
        """The next line. Raises HistoryError."""
        try:
            match line:
                case BufferLine():
                    self._buffer(line)
                case OpLine():
                    self._op(line)
                case HostLine():
                    self._host(line)
                case RecordLine():
                    lane = self._stream(line.lane)
                    version, clock = self._clocks.recorded(lane, _named(line.event))
                    self._events.append(Recorded(line.event, version, lane, clock))
                case WaitLine():
                    self._wait(line)
                case QueryLine():
                    version, is_ordered = self._clocks.queried(line.event)
                    self._events.append(Queried(line.name, line.event, version, is_ordered))
                case OwnerLine():
                    self._owner(line)
                case ObservationLine():
                    self._observe(line)
        except ClockError as error:
            raise HistoryError(str(error)) from error

    @property
    def owners_seen(self) -> int:
        """Rows of which it was said whose value they had."""
        return sum(rows.bit_count() for rows in self._owned.values())

    def check_owners(self) -> None:
        """Whether who says that values are the right ones says it of all that the action reads.
        Raises HistoryError.
        """
        told = {(label(name), buffer) for name, buffer in self._right}
        for (name, buffer), rows in self._reads.items():
            if (label(name), buffer) in told and rows & ~self._owned.get((name, buffer), 0):
                raise HistoryError(f"{name} reads rows of {buffer} whose owner it does not tell")

    def trace(self, holds: tuple[HoldOutcome, ...] = ()) -> Trace:
        """What has happened so far."""
        return Trace(lanes=self._lanes, events=tuple(self._events), holds=holds)

    def observations(self) -> tuple[Observation, ...]:
        """What has been observed so far."""
        return tuple(self._observations)

    def _buffer(self, line: BufferLine) -> None:
        if not 1 <= line.rows <= ROWS_MAX:
            raise HistoryError(f"buffer {line.name} has {line.rows} rows: 1 to {ROWS_MAX} can be")
        memory = _named(line.storage or line.name)
        number, rows = self._storages.setdefault(memory, (len(self._storages) + 1, line.rows))
        if rows != line.rows:
            raise HistoryError(
                f"buffer {line.name} has {line.rows} rows of the storage {memory}, which has {rows}"
            )
        if self._buffers.get(_named(line.name)) == (number, rows):
            raise HistoryError(f"buffer {line.name} is already there: say it once")
        self._buffers[line.name] = number, rows

    def _op(self, line: OpLine) -> None:
        if line.name in self.ops:
            raise HistoryError(
                f"two operations are called {line.name}: a hold could not tell them apart; add "
                "#2 to the second"
            )
        self.ops[_named(line.name)] = line.lane
        lane = self._stream(line.lane)
        accesses = tuple(self._access(line.name, entry) for entry in line.accesses)
        seq, clock = self._clocks.issued(lane, self._told(line.clock))
        self._events.append(OpRecord(line.name, self._step(line.name), lane, seq, clock, accesses))

    def _host(self, line: HostLine) -> None:
        seq, clock = self._clocks.accessed(self._told(line.clock))
        step = self._step(_named(line.name))
        for entry in line.accesses:
            access = self._access(line.name, entry)
            self._events.append(HostAccess(line.name, step, seq, clock, access))

    def _wait(self, line: WaitLine) -> None:
        if line.edge not in self._edges:
            raise HistoryError(
                f"a wait keeps the edge {line.edge!r}, which the engine has not introduced"
            )
        lane = HOST if line.lane == HOST_NAME else self._stream(line.lane)
        version, seq = self._clocks.waited(lane, line.event, is_dropped=line.dropped)
        event = Waited(line.edge, line.event, version, lane, -1, seq, line.dropped)
        self._events.append(event)

    def _owner(self, line: OwnerLine) -> None:
        self._offered(Offer.OWNERS, "owner")
        storage, rows = self._known_buffer(line.buffer)
        if not 0 <= line.row < rows:
            raise HistoryError(f"row {line.row} of {line.buffer}, which has {rows} rows")
        if line.meant[0] not in self._requests or self._checked(line.meant[1]) < 0:
            raise HistoryError(f"the owner {line.meant}, which is no request and step of the run")
        place = line.name, line.buffer
        if not self._reads.get(place, 0) >> line.row & 1:
            raise HistoryError(f"{line.name} has not read row {line.row} of {line.buffer}")
        self._owned[place] = self._owned.get(place, 0) | 1 << line.row
        if line.meant == line.found:
            self._right.add(place)
            if not self._written.get(storage, 0) >> line.row & 1:
                raise HistoryError(f"nobody has written row {line.row} of {line.buffer}")
        else:
            step = self._step(_named(line.name))
            found = Misowned(line.name, step, line.buffer, line.row, line.meant, line.found)
            self._events.append(found)

    def _observe(self, line: ObservationLine) -> None:
        self._offered(Offer.OBSERVATIONS, "observation")
        if line.boundary not in self._hello.boundaries:
            raise HistoryError(
                f"an observation at the boundary {line.boundary}, which the engine has not "
                "introduced"
            )
        last = self._last_seen.get(line.boundary, -1)
        if self._checked(line.step) <= last:
            raise HistoryError(
                f"{line.boundary} of step {line.step} comes behind step {last}: a boundary is "
                "passed once in a step, and steps are numbered from 0"
            )
        self._last_seen[line.boundary] = line.step
        boundary = Boundary(line.boundary) if line.boundary in _BOUNDARIES else line.boundary
        self._observations.append(
            Observation(step=line.step, boundary=boundary, values=line.values)
        )

    def _step(self, name: str) -> int:
        """Of an operation or action; -1 if its name tells none."""
        step = step_number(name)
        return -1 if step is None else self._checked(step)

    def _checked(self, step: int) -> int:
        """A step that the run can have come to."""
        if step >= self._scenario.steps_max:
            raise HistoryError(f"step {step} of a run of at most {self._scenario.steps_max}")
        self.last_step = max(self.last_step, step)
        return step

    def _offered(self, offer: Offer, what: str) -> None:
        if offer not in self._hello.offers:
            raise HistoryError(f"an {what} from an engine that does not offer {offer}")

    def _told(self, clock: dict[str, int] | None) -> dict[str, int] | None:
        if (clock is None) is (Offer.CLOCKS in self._hello.offers):
            text = (
                "has no clock, although the engine offers"
                if clock is None
                else ("has a clock, although the engine does not offer")
            )
            raise HistoryError(f"it {text} {Offer.CLOCKS}")
        return clock

    def _stream(self, name: str) -> int:
        if name not in self._hello.lanes:
            known = ", ".join(self._hello.lanes)
            raise HistoryError(f"the lane {name!r}, which the engine has not introduced ({known})")
        return self._lanes.index(name)

    def _known_buffer(self, name: str) -> tuple[int, int]:
        if name not in self._buffers:
            raise HistoryError(f"an access to {name!r}, of which no buffer line came before")
        return self._buffers[name]

    def _access(self, name: str, entry: AccessEntry) -> Access:
        storage, rows = self._known_buffer(entry.buffer)
        if entry.rows is None:
            mask = self._whole.setdefault(rows, (1 << rows) - 1)
        else:
            self._mask_bits += rows
            if self._mask_bits > MASK_BITS_MAX:
                raise HistoryError(
                    "its accesses name single rows of buffers that have more than "
                    f"{MASK_BITS_MAX} rows together: leave `rows` out, or make the buffers smaller"
                )
            mask = _mask(entry, rows)
        if entry.write:
            self._written[storage] = self._written.get(storage, 0) | mask
        else:
            self._reads[name, entry.buffer] = self._reads.get((name, entry.buffer), 0) | mask
        return Access(entry.buffer, storage, mask, entry.write)


def _mask(entry: AccessEntry, rows: int) -> int:
    assert entry.rows is not None
    mask = 0
    for item in entry.rows:
        first, end = (item, item + 1) if isinstance(item, int) else item
        if not 0 <= first < end <= rows:
            text = str(item) if isinstance(item, int) else f"{first} to {end - 1}"
            raise HistoryError(f"row {text} of {entry.buffer}, which has {rows} rows")
        mask |= (1 << end) - (1 << first)
    return mask


def _named(name: str) -> str:
    """A name that a hold can be written with."""
    if not _NAME.fullmatch(name):
        raise HistoryError(
            f"the name {name[:80]!r}: names have 1 to 200 letters, digits and _ . : @ / # -"
        )
    return name


def check_introduction(hello: HelloAnswer) -> None:
    """Whether an engine's introduction makes sense. Raises HistoryError."""
    edges = [edge.name for edge in hello.edges]
    for name in chain(hello.lanes, hello.devices, edges, hello.boundaries):
        _named(name)
    _once("lane", (HOST_NAME, *hello.lanes))
    _once("edge", edges)
    _once("device", hello.devices)
    _once("boundary", hello.boundaries)
    _once("plant", map(plant_text, hello.plants))
    for plant in hello.plants:
        if isinstance(plant, DropEdge) and plant.edge not in edges:
            raise HistoryError(f"it plants a missing {plant.edge!r}, which is none of its edges")
    if not hello.devices:
        raise HistoryError("it names no device: say at least one, such as 'cpu'")
    if (Offer.OBSERVATIONS in hello.offers) is not bool(hello.boundaries):
        raise HistoryError(f"it offers {Offer.OBSERVATIONS} if, and only if, it names boundaries")


def _once(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise HistoryError(f"it names the {what} {name!r} twice")
        seen.add(name)
