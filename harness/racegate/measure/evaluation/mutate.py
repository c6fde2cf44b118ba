"""Mutants of the engine's edges: each is found by the gate's scenarios, or shown to be equivalent.

Equivalent means that a path of remaining edges still orders every pair the edge is there for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import count, product

import msgspec

from racegate.check.checker import Checker
from racegate.engine.state.edges import EDGES
from racegate.faults.fault import Fault, FaultKind
from racegate.faults.mutations import Mutation, MutationOperator
from racegate.history.finding import signature_of
from racegate.history.trace import Conflict, OpRecord, Recorded, Trace, Waited
from racegate.jobs.gather import run_all
from racegate.jobs.pools.pool import Task, TaskWorker
from racegate.jobs.stopping import StoppedError
from racegate.measure.evaluation.scripts import Scripts
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.paths import EdgeGraph, Ordered
from racegate.scenario.spec import OwnScenario

# The host actions of a step in their order, with slots too: where a host wait can be put off to.
ACTIONS = (
    "schedule",
    "update_states",
    "lay_out",
    "condense",
    "reorder",
    "prepare_inputs",
    "correct",
    "sample",
    "process",
)


class Fate(StrEnum):
    """killed: a scenario of the gate shows it; equivalent: every pair is still ordered; idle: no
    scenario waits for the edge; survived: neither found nor shown equivalent.
    """

    KILLED = "killed"
    EQUIVALENT = "equivalent"
    IDLE = "idle"
    SURVIVED = "survived"


class MutantResult(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant.

    mutant: its name; operator: what was done to the edge; fate: what became of it
    scenario, signature: what killed it; runs: made for it
    pairs: accesses that only this edge orders, over all scenarios; path: how one of them is still
        ordered under the mutation
    """

    mutant: str
    edge: str
    operator: str
    fate: Fate
    scenario: str | None = None
    signature: str | None = None
    runs: int = 0
    pairs: int = 0
    path: tuple[str, ...] = ()


class MutationReport(msgspec.Struct, frozen=True, kw_only=True):
    """All mutants. redundant: edges that other edges imply in every scenario."""

    mutants: tuple[MutantResult, ...]
    redundant: tuple[str, ...]


def mutations_of(traces: Iterable[Trace]) -> list[Mutation]:
    """Every mutation of every edge that some fault-free run waits for."""
    sites = _Sites()
    for trace in traces:
        sites.follow(trace)
    return [mutation for edge in EDGES for mutation in sites.mutations(edge.name)]


class _Sites:
    """Where edges are recorded and waited for, in the runs seen so far."""

    def __init__(self) -> None:
        self._events: dict[str, str] = {}
        self._waiters: dict[str, set[str]] = {}
        self._recorders: dict[str, set[str]] = {}
        self._before: dict[str, set[str]] = {}
        self._lanes: dict[str, dict[str, None]] = {}

    def follow(self, trace: Trace) -> None:
        last: dict[int, str] = {}
        for event in trace.events:
            if isinstance(event, OpRecord):
                last[event.lane] = _base(event.name)
            elif isinstance(event, Recorded):
                name = _base(event.event)
                self._recorders.setdefault(name, set()).add(trace.lanes[event.lane])
                self._before.setdefault(name, set()).add(last[event.lane])
            elif isinstance(event, Waited):
                self._events[event.edge] = _base(event.event)
                self._waiters.setdefault(event.edge, set()).add(trace.lanes[event.lane])
                self._lanes.setdefault(event.edge, {}).update(dict.fromkeys(trace.lanes[1:]))

    def mutations(self, edge: str) -> list[Mutation]:
        if edge not in self._events:
            return []
        event = self._events[edge]
        make = partial(Mutation, edge=edge, event=event)
        found = [make(operator=MutationOperator.DROP), make(operator=MutationOperator.RECORD_LATE)]
        for operation in sorted(self._before[event]):
            found.append(make(operator=MutationOperator.RECORD_EARLY, place=operation))
        for lane in self._lanes[edge]:
            if lane not in self._recorders[event]:
                found.append(make(operator=MutationOperator.RECORD_ELSEWHERE, place=lane))
        return found + self._wait_mutations(edge, make)

    def _wait_mutations(self, edge: str, make: Callable[..., Mutation]) -> list[Mutation]:
        waiters = self._waiters[edge]
        if "host" in waiters:
            return [make(operator=MutationOperator.WAIT_LATE, place=action) for action in ACTIONS]
        found = [make(operator=MutationOperator.WAIT_LATE, place="the next operation")]
        for lane in self._lanes[edge]:
            if lane not in waiters and lane not in self._recorders[self._events[edge]]:
                found.append(make(operator=MutationOperator.WAIT_ELSEWHERE, place=lane))
        return found


def _base(name: str) -> str:
    return name.partition("@")[0]


def as_fault(mutation: Mutation) -> Fault:
    """The engine with one edge mutated."""
    is_drop = mutation.operator is MutationOperator.DROP
    return Fault(
        name=f"mutant/{mutation.text}",
        number=0,
        kind=FaultKind.ORDERING,
        origin="generated",
        summary=mutation.text,
        expect="",
        scenarios=(),
        drops=frozenset({mutation.edge}) if is_drop else frozenset(),
        moved=None if is_drop else mutation,
    )


def try_all(
    scenarios: Mapping[str, OwnScenario],
    *,
    workers: int,
    on_mutant: Callable[[int, int, str], None] = lambda done, total, edge: None,
) -> MutationReport:
    """Tries each mutant on the scenarios until one shows it. on_mutant: (done, of, edge)

    Raises StoppedError if it is told to stop: it has the mutants that were tried.
    """
    traces = {name: Checker(scenario).execute().trace for name, scenario in scenarios.items()}
    mutations = mutations_of(traces.values())
    concerned = {
        edge.name: tuple(name for name, trace in traces.items() if waits_for(trace, edge.name))
        for edge in EDGES
    }
    done = count(1)
    try:
        results, _ = run_all(
            partial(make_worker, dict(scenarios)),
            (Task(name=m.edge, content=MutantTask(m, concerned[m.edge])) for m in mutations),
            workers=workers,
            on_done=lambda edge: on_mutant(next(done), len(mutations), edge),
        )
    except StoppedError as stop:
        fates = Counter(one.fate for one in stop.results if isinstance(one, MutantResult))
        known = ", ".join(f"{number} {fate}" for fate, number in fates.items()) or "none tried"
        raise StoppedError(stop.by, done=f"{stop.done} ({known})", results=stop.results) from stop
    redundant = tuple(
        result.edge
        for result in results
        if result.operator == MutationOperator.DROP and result.fate is Fate.EQUIVALENT
    )
    return MutationReport(mutants=tuple(results), redundant=redundant)


class MutantTask(msgspec.Struct, frozen=True):
    """A mutant, and the names of the scenarios that wait for its edge."""

    mutation: Mutation
    scenarios: tuple[str, ...]


def make_worker(
    scenarios: Mapping[str, OwnScenario], number: int
) -> TaskWorker[MutantTask, MutantResult]:
    """In a worker process; every worker is like the other."""
    scripts, dropped = Scripts(scenarios), Dropped()
    return TaskWorker(
        lambda task: judge(
            task.mutation, [scripts.checker(name) for name in task.scenarios], dropped=dropped
        )
    )


def waits_for(trace: Trace, edge: str) -> bool:
    """Whether a run waits for the edge: mutating it changes no other run."""
    return any(isinstance(event, Waited) and event.edge == edge for event in trace.events)


def judge(
    mutation: Mutation, checkers: Sequence[Checker], *, dropped: Dropped | None = None
) -> MutantResult:
    """One mutant: the first scenario that shows it, or the paths that make it harmless.

    dropped: shared where several mutants of an edge are judged
    """
    fault = as_fault(mutation)
    make = partial(
        MutantResult, mutant=mutation.text, edge=mutation.edge, operator=str(mutation.operator)
    )
    mutated: list[tuple[Checker, Trace]] = []
    for runs, checker in enumerate(checkers, start=1):
        run = checker.execute(fault=fault)
        signature = signature_of(checker.judge(run, fault=fault).findings)
        if signature is not None:
            return make(
                fate=Fate.KILLED, scenario=checker.scenario.name, signature=signature, runs=runs
            )
        mutated.append((checker, run.trace))
    return _as_equivalent(mutation, mutated, dropped or Dropped(), make)


class Dropped:
    """What is unordered where an edge is not waited for at all: the same for all its mutants.
    Mutants come edge by edge, and what was found for the last one is kept.
    """

    def __init__(self) -> None:
        self._edge = ""
        self._conflicts: dict[str, list[Conflict]] = {}

    def conflicts(self, edge: str, checker: Checker) -> list[Conflict]:
        """In one scenario."""
        if edge != self._edge:
            self._edge, self._conflicts = edge, {}
        name = checker.scenario.name
        if name not in self._conflicts:
            fault = as_fault(Mutation(edge=edge, operator=MutationOperator.DROP))
            self._conflicts[name] = find_conflicts(checker.execute(fault=fault).trace)
        return self._conflicts[name]


def _as_equivalent(
    mutation: Mutation,
    mutated: Sequence[tuple[Checker, Trace]],
    dropped: Dropped,
    make: Callable[..., MutantResult],
) -> MutantResult:
    pairs, unordered = 0, 0
    path: tuple[str, ...] = ()
    is_waited = False
    for checker, trace in mutated:
        is_waited |= waits_for(trace, mutation.edge)
        graph = EdgeGraph(trace)
        for conflict in dropped.conflicts(mutation.edge, checker):
            ways = _ways(graph, conflict)
            if not ways:
                continue  # of several ranks, the run without the edge may take other steps
            way = next((way for way in ways if graph.is_ordered(*way)), None)
            pairs += 1
            unordered += way is None
            if way is not None and not path:
                path = _words(graph.path(*way))
    fate = Fate.SURVIVED if unordered else Fate.EQUIVALENT if is_waited else Fate.IDLE
    return make(fate=fate, runs=len(mutated), pairs=pairs, path=path)


def _ways(graph: EdgeGraph, conflict: Conflict) -> list[tuple[int, int]]:
    """Where a pair may stand in another run of the program: nowhere if one of it is not there."""
    firsts = graph.places(conflict.first, conflict.buffer)
    seconds = graph.places(conflict.second, conflict.buffer)
    return list(product(firsts, seconds))


def _words(ordered: Ordered | None) -> tuple[str, ...]:
    if ordered is None:
        return ()
    return (ordered.first, *(f"{step.to} ({step.by})" for step in ordered.path))
