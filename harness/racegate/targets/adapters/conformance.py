"""The conformance kit: what an adapter has to show before a verdict on its engine is believed.

A silent engine may be right, or its adapter may leave out what matters. So the adapter has its
engine plant generic faults, each of which has to be found, by the oracle that an offer is there
for; and nothing may be found without.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from racegate.history.finding import FindingKind, Verdict
from racegate.history.outcome import RunResult
from racegate.history.schedule import EAGER, FORCED, Hold, Schedule
from racegate.history.trace import HostAccess, OpRecord, Trace, Waited
from racegate.scenario.spec import OwnScenario, Request
from racegate.targets.adapters.answers import wrong_ends
from racegate.targets.adapters.client import Adapter, AdapterRun
from racegate.targets.adapters.errors import AdapterError
from racegate.targets.adapters.judge import AdapterJudge
from racegate.targets.adapters.landings import can_hold
from racegate.targets.adapters.target import first_change
from racegate.targets.adapters.wire import (
    DropEdge,
    Offer,
    OwnPlant,
    Plant,
    RefusedAnswer,
    StaleValue,
    WrongRow,
    plant_text,
)

# The first request finishes while others run, so that the last row moves into its hole; counts
# differ from row to row and from step to step.
KIT = OwnScenario(
    name="conformance-kit",
    title="a request finishes, the last row moves into its hole",
    requests=(
        Request(name="A", arrive=0, prompt=(7, 11, 2, 5, 3), max_tokens=9, accepts=(4,)),
        Request(name="B", arrive=0, prompt=(3, 1, 9, 4, 1, 6), max_tokens=16, accepts=(2, 3, 1)),
        Request(name="C", arrive=3, prompt=(5, 8, 13, 2, 9, 1, 4), max_tokens=10, accepts=(3, 1)),
    ),
)

# Plants that show that an offer is worth something.
SHOWN_BY: dict[Offer, tuple[type[Plant], ...]] = {
    Offer.HOLDS: (DropEdge,),
    Offer.OWNERS: (WrongRow,),
    Offer.PLAIN: (WrongRow, StaleValue),
    Offer.OBSERVATIONS: (WrongRow, StaleValue),
}


class CheckOutcome(StrEnum):
    """Whether a demand is met.

    passed: it is; failed: it is not; skipped: nothing that is offered could show it
    """

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class ConformanceCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One demand of the kit.

    name: what is demanded; outcome: whether it is met
    detail: what was seen, or what is wrong and what to do about it
    """

    name: str
    outcome: CheckOutcome
    detail: str = ""


class Conformance(msgspec.Struct, frozen=True, kw_only=True):
    """What the kit says of one adapter.

    engine, version: as it introduces itself; offers: what it can do beside telling its history
    checks: every demand, in order
    """

    engine: str
    version: str
    offers: tuple[Offer, ...]
    checks: tuple[ConformanceCheck, ...]

    @property
    def is_passed(self) -> bool:
        """Whether nothing failed."""
        return all(check.outcome is not CheckOutcome.FAILED for check in self.checks)


def conform(adapter: Adapter, *, scenario: OwnScenario = KIT) -> Iterator[ConformanceCheck]:
    """The checks, one after another. Raises AdapterError if a history cannot be believed."""
    hello = adapter.hello
    offers = ", ".join(sorted(hello.offers)) or "nothing but its history"
    yield _passed("introduces itself", f"{hello.engine} {hello.version}, offers {offers}")
    first = _told(adapter, scenario)
    yield from _deterministic(adapter, scenario, first)
    yield _another(adapter, scenario, first)
    judge = AdapterJudge(adapter, scenario)
    yield _silent(adapter, judge.judge(), first)
    if Offer.OBSERVATIONS in hello.offers:
        yield _observes(adapter, first)
    if Offer.HOLDS in hello.offers:
        yield from _holds(adapter, scenario, first)
    yield from _lacking_plants(adapter)
    for plant in hello.plants:
        yield from _planted(adapter, scenario, judge, plant, first)


_RACY = "(the engine is racy, or its history lacks an order)"


def demand_conformance(adapter: Adapter) -> None:
    """The kit for who needs a conforming adapter. Raises AdapterError at the first failure."""
    if racing := racing_in(adapter):
        raise AdapterError(racing)


def racing_in(adapter: Adapter) -> str:
    """The kit for who judges an engine that may be racy: why it does not conform, if what is wrong
    is a finding where nothing is planted, and else empty. Raises AdapterError at the first failure
    of another kind.
    """
    for check in conform(adapter):
        if check.outcome is CheckOutcome.FAILED:
            reason = f"the adapter does not conform: {check.name}: {check.detail}"
            if check.detail.endswith(_RACY):
                return reason
            raise AdapterError(reason)
    return ""


def _deterministic(
    adapter: Adapter, scenario: OwnScenario, first: AdapterRun
) -> Iterator[ConformanceCheck]:
    yield _same("tells the same history twice", _told(adapter, scenario), first)
    adapter.restart()
    yield _same("tells it in a new process too", _told(adapter, scenario), first)


def _another(adapter: Adapter, scenario: OwnScenario, first: AdapterRun) -> ConformanceCheck:
    """A history that was recorded once would be told of everything."""
    name = "tells another history of another scenario"
    requests = [
        msgspec.structs.replace(request, max_tokens=max(1, request.max_tokens // 2))
        for request in scenario.requests
    ]
    other = msgspec.structs.replace(
        scenario, name=f"{scenario.name}-shorter", requests=tuple(requests)
    )
    told = _told(adapter, other)
    seen = told.run.trace.events, told.run.observations
    if seen == (first.run.trace.events, first.run.observations):
        return _failed(name, "its requests want half the tokens, and the history is the same")
    if told.run.result is not None and (wrong := wrong_ends(other, told.run.result)):
        return _failed(name, wrong[0].message)
    return _passed(name, f"{len(told.run.trace.events)} events")


def _same(name: str, told: AdapterRun, first: AdapterRun) -> ConformanceCheck:
    if told.digest == first.digest:
        return _passed(name, f"{len(first.run.trace.events)} events")
    mine, its = first.run.trace.events, told.run.trace.events
    for number, (one, other) in enumerate(zip(mine, its, strict=False)):
        if one != other:
            return _failed(name, f"event {number} is {other} and was {one}: seed what is random")
    what = "the number of events" if len(mine) != len(its) else "an observation, or the answer"
    return _failed(name, f"{what} differs: seed what is random")


def _silent(adapter: Adapter, result: RunResult, first: AdapterRun) -> ConformanceCheck:
    name = "nothing is found where nothing is planted"
    if result.findings:
        found = result.findings[0]
        return _failed(name, f"{found.message} {_RACY}")
    if any(isinstance(event, Waited) and event.is_dropped for event in first.run.trace.events):
        return _failed(name, "a wait is marked as dropped: only a planted fault drops one")
    if result.verdict is not Verdict.PROVED and Offer.PLAIN in adapter.hello.offers:
        return _failed(name, "; ".join(result.unmet))
    return _passed(name, str(result.verdict))


def _observes(adapter: Adapter, first: AdapterRun) -> ConformanceCheck:
    name = "observes at every boundary that it introduces"
    for boundary in adapter.hello.boundaries:
        steps = [seen.step for seen in first.run.observations if seen.boundary == boundary]
        if not steps:
            return _failed(name, f"nothing was observed at: {boundary}")
        if gaps := set(range(steps[0], steps[-1])).difference(steps):
            return _failed(name, f"nothing was observed at {boundary} of step {min(gaps)}")
    return _passed(name, f"{len(first.run.observations)} observations")


def _holds(
    adapter: Adapter, scenario: OwnScenario, first: AdapterRun
) -> Iterator[ConformanceCheck]:
    name = "realises a hold"
    pair = _waited_pair(adapter, first.run.trace)
    if pair is None:
        yield _failed(name, "no operation that it can hold is waited for: nothing to try it with")
        return
    op, behind = pair
    schedule = Schedule(holds=(Hold(op=op, until=FORCED),))
    held = _told(adapter, scenario, schedule)
    (outcome,) = held.run.trace.holds or (None,)
    changed = first_change(first.run, held.run, schedule)
    if outcome is None or not outcome.realised:
        yield _failed(name, f"'{schedule.holds[0].text()}' was not realised, and a wait needs it")
    elif held.run.trace.events != first.run.trace.events or changed:
        why = changed[0].message if changed else "the history has other events or clocks"
        yield _failed(name, f"{why}; where every order is kept, a landing changes nothing")
    else:
        yield _passed(name, outcome.hold)
    late = Schedule(holds=(Hold(op=op, until=behind),))
    yield _unrealisable(adapter, scenario, late)


def _unrealisable(adapter: Adapter, scenario: OwnScenario, schedule: Schedule) -> ConformanceCheck:
    name = "does not hold an operation past a wait for it"
    held = _told(adapter, scenario, schedule)
    if any(hold.realised for hold in held.run.trace.holds):
        return _failed(
            name,
            f"it says that '{schedule.holds[0].text()}' was realised: the wait does not wait, or "
            "the outcome is made up",
        )
    return _passed(name, schedule.holds[0].text())


def _waited_pair(adapter: Adapter, trace: Trace) -> tuple[str, str] | None:
    """An operation that can be held, and a host action all of which comes behind a wait for it."""
    actions: dict[str, list[HostAccess]] = {}
    for event in trace.events:
        if isinstance(event, HostAccess):
            actions.setdefault(event.name, []).append(event)
    for op in trace.events:
        if isinstance(op, OpRecord) and can_hold(adapter.hello, op.name):
            for name, accesses in actions.items():
                if all(access.clock[op.lane] >= op.seq for access in accesses):
                    return op.name, name
    return None


def _lacking_plants(adapter: Adapter) -> Iterator[ConformanceCheck]:
    hello = adapter.hello
    if not any(isinstance(plant, DropEdge) for plant in hello.plants):
        yield _failed("plants a missing order", "it introduces no plant drop_edge")
    for offer in hello.offers:
        kinds = SHOWN_BY.get(offer, ())
        if kinds and not any(isinstance(plant, kinds) for plant in hello.plants):
            names = " or ".join(str(kind.__struct_config__.tag) for kind in kinds)
            yield _failed(f"plants what {offer} shows", f"it introduces no plant {names}")


def _planted(
    adapter: Adapter, scenario: OwnScenario, judge: AdapterJudge, plant: Plant, first: AdapterRun
) -> Iterator[ConformanceCheck]:
    judged = judge.judge(plant=plant)
    if isinstance(plant, DropEdge):
        yield from _dropped(adapter, scenario, plant, judged)
        return
    name = f"{plant_text(plant)} is found"
    if isinstance(plant, OwnPlant):
        yield _demanded(name, bool(judged.findings), judged)
        return
    offers = set(adapter.hello.offers)
    if not offers & {Offer.PLAIN, Offer.OWNERS, Offer.OBSERVATIONS}:
        yield _skipped(name, "it takes plain, owners or observations to see a wrong value")
        return
    kinds = {finding.kind for finding in judged.findings}
    if offers & {Offer.PLAIN, Offer.OWNERS}:
        yield _demanded(name, bool(kinds - {FindingKind.CONFLICT}), judged)
    if Offer.OWNERS in offers and isinstance(plant, WrongRow):
        by_owner = FindingKind.OWNERSHIP in kinds
        yield _demanded(f"{plant_text(plant)} is found by its owner", by_owner, judged)
    if Offer.OBSERVATIONS in offers:
        yield _sensitive(plant, first, _told(adapter, scenario, plant=plant))


def _dropped(
    adapter: Adapter, scenario: OwnScenario, plant: DropEdge, judged: RunResult
) -> Iterator[ConformanceCheck]:
    told = _told(adapter, scenario, plant=plant)
    waits = [e for e in told.run.trace.events if isinstance(e, Waited) and e.edge == plant.edge]
    name = f"{plant_text(plant)} is found"
    if not waits or not all(wait.is_dropped for wait in waits):
        yield _failed(
            name, f"not every wait of {plant.edge} is marked as dropped, or there is none"
        )
        return
    is_named = any(finding.edge == plant.edge for finding in judged.findings)
    yield _demanded(name, is_named, judged)
    if Offer.HOLDS in adapter.hello.offers:
        kinds = {finding.kind for finding in judged.findings}
        is_harm = bool(kinds - {FindingKind.CONFLICT})
        yield _demanded(f"{plant_text(plant)} does harm under a landing", is_harm, judged)


def _sensitive(plant: Plant, first: AdapterRun, told: AdapterRun) -> ConformanceCheck:
    """An observation that a wrong count does not change would show no wrong count."""
    name = f"{plant_text(plant)} changes an observation"
    for found in first_change(first.run, told.run, EAGER):
        if found.field != "delivered":
            return _passed(name, f"{found.field}: {found.actual}, and {found.expected} without it")
    return _failed(name, "every observation is as it is without: observe what depends on counts")


def _demanded(name: str, is_met: bool, judged: RunResult) -> ConformanceCheck:  # noqa: FBT001
    signatures = ", ".join(finding.signature for finding in judged.findings)
    held = f" under {' and '.join(judged.schedule)}" if judged.schedule else ""
    said = f"{judged.verdict}{held}: {signatures or 'nothing found'}"
    return _passed(name, said) if is_met else _failed(name, said)


def _told(
    adapter: Adapter,
    scenario: OwnScenario,
    schedule: Schedule = EAGER,
    *,
    plant: Plant | None = None,
) -> AdapterRun:
    """A run that comes to its end. Raises AdapterError if it does not."""
    told = adapter.run(scenario, schedule=schedule, plant=plant)
    if isinstance(told, RefusedAnswer):
        raise AdapterError(f"the engine refuses to run {scenario.name}: {told.reason}")
    if told.run.stopped is not None and plant is None:
        raise AdapterError(f"the engine does not get through {scenario.name}: {told.run.stopped}")
    return told


def _passed(name: str, detail: str = "") -> ConformanceCheck:
    return ConformanceCheck(name=name, outcome=CheckOutcome.PASSED, detail=detail)


def _failed(name: str, detail: str) -> ConformanceCheck:
    return ConformanceCheck(name=name, outcome=CheckOutcome.FAILED, detail=detail)


def _skipped(name: str, detail: str) -> ConformanceCheck:
    return ConformanceCheck(name=name, outcome=CheckOutcome.SKIPPED, detail=detail)
