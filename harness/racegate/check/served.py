"""The engine of this repository as a foreign one: `python -m racegate.check.served` speaks the
adapter protocol. Whoever writes an adapter can compare theirs with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.device.protocol import DeadlockError
from racegate.engine.state.edges import EDGES
from racegate.engine.state.lanes import Lane
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault, FaultKind
from racegate.history import __version__
from racegate.history.observe import Boundary, Observation
from racegate.history.run import Run
from racegate.history.schedule import parse_schedule
from racegate.history.trace import (
    Access,
    HostAccess,
    Misowned,
    OpRecord,
    Queried,
    Recorded,
    Trace,
    TraceEvent,
    Waited,
    rows_of,
)
from racegate.scenario.spec import OwnScenario
from racegate.targets.adapters.serve import Say, serve
from racegate.targets.adapters.wire import (
    SCHEMA,
    AccessEntry,
    BufferLine,
    DropEdge,
    EventKind,
    HelloAnswer,
    HistoryLine,
    HostLine,
    ObservationLine,
    Offer,
    OpLine,
    OwnerLine,
    PlainAnswer,
    PlainQuestion,
    Plant,
    QueryLine,
    RanAnswer,
    RecordLine,
    RefusedAnswer,
    RunQuestion,
    StaleValue,
    StopKind,
    StoppedAnswer,
    WaitLine,
    WrongRow,
    plant_text,
)

# Seeded faults that are the generic ones of the protocol.
SEEDED = {WrongRow: "correction-wrong-epoch", StaleValue: "accepted-not-reset-first-spec"}
PLANTS: tuple[Plant, ...] = (
    DropEdge(edge="valid-count-landed"),
    DropEdge(edge="input-prep-guard"),
    WrongRow(),
    StaleValue(),
)


class ServedEngine:
    """The asynchronous engine on the virtual device."""

    def __init__(self) -> None:
        self._checkers: dict[bytes, Checker] = {}

    def hello(self) -> HelloAnswer:
        """It offers everything but clocks: its waits are in the history."""
        return HelloAnswer(
            to=0,
            schema=SCHEMA,
            engine="racegate",
            version=__version__,
            lanes=tuple(Lane),
            devices=("virtual",),
            offers=tuple(offer for offer in Offer if offer is not Offer.CLOCKS),
            boundaries=tuple(Boundary),
            events=tuple(EventKind),
            edges=EDGES,
            plants=PLANTS,
        )

    def run(self, question: RunQuestion, say: Say) -> RanAnswer | StoppedAnswer | RefusedAnswer:
        """One run of the engine, told when it is over."""
        try:
            checker = self._checker(question.scenario)
        except CheckError as error:
            return RefusedAnswer(to=0, reason=str(error))
        fault = None if question.plant is None else _fault_of(question.plant)
        run = checker.execute(schedule=parse_schedule(list(question.holds)), fault=fault)
        for line in lines_of(run):
            say(line)
        if run.result is None:
            assert run.stopped is not None
            is_deadlock = isinstance(run.stopped, DeadlockError)
            return StoppedAnswer(
                to=0,
                kind=StopKind.DEADLOCK if is_deadlock else StopKind.CRASH,
                error=type(run.stopped).__name__,
                message=str(run.stopped),
            )
        result = run.result
        return RanAnswer(
            to=0,
            delivered=result.delivered,
            finished=result.finished,
            steps=result.steps,
            counters=result.counters,
            holds=run.trace.holds,
            unmet_events=result.unmet_events,
        )

    def plain(self, question: PlainQuestion) -> PlainAnswer | RefusedAnswer:
        """By the reference."""
        try:
            return PlainAnswer(to=0, tokens=dict(self._checker(question.scenario).plain))
        except CheckError as error:
            return RefusedAnswer(to=0, reason=str(error))

    def _checker(self, scenario: OwnScenario) -> Checker:
        if scenario.engine.ranks > 1:
            raise CheckError(f"{scenario.name}: an adapter tells the history of one rank")
        key = msgspec.json.encode(scenario)
        if key not in self._checkers:
            self._checkers[key] = Checker(scenario)
        return self._checkers[key]


def _fault_of(plant: Plant) -> Fault:
    if not isinstance(plant, DropEdge):
        return find_fault(SEEDED[type(plant)])
    return Fault(
        name=plant_text(plant),
        number=0,
        kind=FaultKind.VARIANT,
        origin="docs/bring_your_own_runner.md",
        summary=f"the edge {plant.edge} is dropped",
        expect="",
        scenarios=(),
        drops=frozenset({plant.edge}),
    )


def lines_of(run: Run) -> Iterator[HistoryLine]:
    """A run as history lines: its trace, and then what was observed."""
    rows = _rows_by_storage(run.trace)
    names: dict[str, int] = {}
    for event in run.trace.events:
        for access in event.accesses if isinstance(event, OpRecord | HostAccess) else ():
            if names.get(access.buffer) != access.storage:
                names[access.buffer] = access.storage
                yield BufferLine(
                    name=access.buffer, rows=rows[access.storage], storage=str(access.storage)
                )
        yield _line_of(event, run.trace.lanes)
    for observation in run.observations:
        yield _observed(observation)


def _line_of(event: TraceEvent, lanes: tuple[str, ...]) -> HistoryLine:
    match event:
        case OpRecord():
            accesses = tuple(_entry(access) for access in event.accesses)
            return OpLine(name=event.name, lane=lanes[event.lane], accesses=accesses)
        case HostAccess():
            return HostLine(name=event.name, accesses=(_entry(event.access),))
        case Recorded():
            return RecordLine(event=event.event, lane=lanes[event.lane])
        case Waited():
            lane = lanes[event.lane]
            return WaitLine(edge=event.edge, event=event.event, lane=lane, dropped=event.is_dropped)
        case Queried():
            return QueryLine(name=event.name, event=event.event)
        case Misowned():
            return OwnerLine(
                name=event.name,
                buffer=event.buffer,
                row=event.row,
                meant=event.expected,
                found=event.actual,
            )


def _rows_by_storage(trace: Trace) -> dict[int, int]:
    """As many as the run touches: a trace does not know how many there are."""
    rows: dict[int, int] = {}
    for event in trace.events:
        for access in event.accesses if isinstance(event, OpRecord | HostAccess) else ():
            touched = max(1, access.rows.bit_length())
            rows[access.storage] = max(rows.get(access.storage, 1), touched)
    return rows


def _entry(access: Access) -> AccessEntry:
    return AccessEntry(
        buffer=access.buffer, rows=tuple(rows_of(access.rows)), write=access.is_write
    )


def _observed(observation: Observation) -> ObservationLine:
    values = {name: _plain_data(value) for name, value in observation.values.items()}
    return ObservationLine(step=observation.step, boundary=observation.boundary, values=values)


def _plain_data(value: object) -> object:
    """What JSON knows, as it comes back from there."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain_data(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain_data(item) for item in value]
    return value


if __name__ == "__main__":
    serve(ServedEngine())
