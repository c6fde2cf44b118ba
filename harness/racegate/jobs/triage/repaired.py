"""The repair of a seeded fault of racegate's own engine: edges that are kept, run, and proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from racegate.check.checker import Checker
from racegate.check.judge import Judged
from racegate.faults.fault import Fault
from racegate.faults.mutations import AddedEdge
from racegate.history.finding import FindingKind, Verdict
from racegate.history.trace import Conflict, HostAccess, Waited
from racegate.targets.program.repairs.proof import (
    OF_ENGINE,
    ProgramRepair,
    PutIn,
    UnrepairedRace,
)

NO_RACE = (
    "it has no conflict in this scenario: what is wrong is computed so, and no edge changes it"
)


@dataclass(frozen=True, slots=True)
class EngineEdge:
    """A candidate. fault: the defect with it; words: what it is; name: of its waits in a trace
    is_host: the host waits
    """

    fault: Fault
    words: str
    name: str
    is_host: bool


@dataclass(slots=True)
class _EngineTrials:
    """The runs of one scenario, each set of edges once."""

    checker: Checker
    fault: Fault
    runs: int = 0
    _made: dict[tuple[str, ...], Judged] = field(default_factory=dict)

    def with_edges(self, edges: Sequence[EngineEdge]) -> Judged:
        key = tuple(sorted(edge.name for edge in edges))
        if key not in self._made:
            self.runs += 1
            self._made[key] = self.checker.run_judged(fault=_together(self.fault, edges))
        return self._made[key]


def _together(fault: Fault, edges: Sequence[EngineEdge]) -> Fault:
    """The defect with all of them: what each changes of it."""
    drops, moved, added = fault.drops, fault.moved, dict.fromkeys(fault.added)
    for one in edges:
        drops &= one.fault.drops
        moved = None if one.fault.moved is None else moved
        added |= dict.fromkeys(one.fault.added)
    return msgspec.structs.replace(fault, drops=drops, moved=moved, added=tuple(added))


def repair_engine(checker: Checker, fault: Fault) -> ProgramRepair:
    """The fewest edges with which a scenario is PROVED under a fault: the engine's own ones that
    the fault drops or moves, and, for each conflict, an event behind the first operation that the
    second waits for. A conflict that none orders is left, with the reason.
    """
    trials = _EngineTrials(checker, fault)
    base = trials.with_edges(())
    conflicts = {_signature(one): one for one in base.conflicts}
    argv = (checker.scenario.name, "--fault", fault.name)
    if not conflicts:
        return ProgramRepair(argv=argv, before=_said(base), reason=NO_RACE, runs=trials.runs)
    candidates = [*_own_edges(fault), *_added_edges(fault, conflicts.values())]
    useful = [one for one in candidates if _gone(trials, [one], conflicts)]
    chosen = _needed(trials, useful, conflicts)
    last = trials.with_edges(chosen)
    back = {_signature(one) for one in last.conflicts}
    left = [_left(conflicts[name]) for name in conflicts if name in back]
    return ProgramRepair(
        argv=argv,
        before=_said(base),
        after=_said(last),
        conflicts=tuple(conflicts),
        edges=tuple(_put_in(trials, one, chosen, conflicts, last) for one in chosen),
        left=(*left, *_wrong_still(last)),
        runs=trials.runs,
        is_complete=last.result.verdict is not Verdict.INCONCLUSIVE,
    )


def _own_edges(fault: Fault) -> list[EngineEdge]:
    """What the engine would keep without the fault."""
    found = [
        EngineEdge(
            msgspec.structs.replace(fault, drops=fault.drops - {name}),
            f"the engine's edge {name} is kept",
            name,
            is_host=False,
        )
        for name in sorted(fault.drops)
    ]
    if fault.moved is not None:
        kept = msgspec.structs.replace(fault, moved=None)
        words = f"the engine's edge {fault.moved.edge} is kept at its place"
        found.append(EngineEdge(kept, words, fault.moved.edge, is_host=False))
    return found


def _added_edges(fault: Fault, conflicts: Iterable[Conflict]) -> list[EngineEdge]:
    found: dict[str, EngineEdge] = {}
    for one in conflicts:
        if isinstance(one.first, HostAccess):
            continue  # what the host did is done when the next operation is issued
        edge = AddedEdge(
            first=_label(one.first.name), second=_label(one.second.name), buffer=one.buffer
        )
        mended = msgspec.structs.replace(fault, added=(*fault.added, edge))
        found[edge.name] = EngineEdge(mended, edge.words, edge.name, is_host=edge.is_host)
    return sorted(found.values(), key=lambda one: one.is_host)


def _gone(
    trials: _EngineTrials, edges: Sequence[EngineEdge], conflicts: dict[str, Conflict]
) -> set[str]:
    """Conflicts that are gone with these edges; none if a new one came."""
    left = {_signature(one) for one in trials.with_edges(edges).conflicts}
    return set() if left - conflicts.keys() else conflicts.keys() - left


def _needed(
    trials: _EngineTrials, useful: Sequence[EngineEdge], conflicts: dict[str, Conflict]
) -> list[EngineEdge]:
    """The first edge that does it all alone, or all of them without those that are not needed."""
    every = _gone(trials, useful, conflicts)
    alone = next((one for one in useful if _gone(trials, [one], conflicts) >= every), None)
    if alone is not None:
        return [alone]
    chosen = list(useful)
    for one in reversed(useful):  # waits of the host first
        rest = [other for other in chosen if other is not one]
        if _gone(trials, rest, conflicts) >= every:
            chosen = rest
    return chosen


def _put_in(
    trials: _EngineTrials,
    edge: EngineEdge,
    chosen: Sequence[EngineEdge],
    conflicts: dict[str, Conflict],
    last: Judged,
) -> PutIn:
    rest = [other for other in chosen if other is not edge]
    waits = Counter(
        one.lane
        for one in last.run.trace.events
        if isinstance(one, Waited) and one.edge == edge.name
    )
    back = {_signature(one) for one in trials.with_edges(rest).conflicts}
    return PutIn(
        kind=OF_ENGINE,
        waiter="host" if edge.is_host or 0 in waits else "stream",
        words=edge.words,
        operations=sum(waits.values()),
        repairs=tuple(sorted(_gone(trials, [edge], conflicts))),
        without=tuple(sorted(back & conflicts.keys())),
    )


def _wrong_still(last: Judged) -> list[UnrepairedRace]:
    """What no conflict is behind, and what the run with all edges no longer exercised."""
    wrong = [one for one in last.result.findings if one.kind is not FindingKind.CONFLICT]
    found = [
        UnrepairedRace(
            signature=one.signature,
            buffer=one.buffer or "",
            reason="it is wrong without a conflict too: what is computed is wrong, not when",
        )
        for one in wrong[:1]
    ]
    return found + [
        UnrepairedRace(signature="", buffer="", reason=f"with the edges this is unmet: {text}")
        for text in last.result.unmet
    ]


def _left(conflict: Conflict) -> UnrepairedRace:
    reason = "no event behind its first operation can be waited for before the second"
    if isinstance(conflict.first, HostAccess):
        reason = (
            f"{conflict.first.name} is done when anything behind it is issued: the two have to "
            "change their places"
        )
    return UnrepairedRace(signature=_signature(conflict), buffer=conflict.buffer, reason=reason)


def _signature(one: Conflict) -> str:
    """As the finding of the ordering oracle is known by."""
    return f"conflict/{one.buffer}/{_label(one.first.name)}/{_label(one.second.name)}"


def _label(name: str) -> str:
    """An operation's name without its step."""
    return name.partition("@")[0]


def _said(judged: Judged) -> str:
    verdict = judged.result.verdict
    wrong = [one for one in judged.result.findings if one.kind is not FindingKind.CONFLICT]
    also = f", {wrong[0].signature}" if wrong and verdict is not Verdict.PROVED else ""
    return f"{verdict}{also}"
