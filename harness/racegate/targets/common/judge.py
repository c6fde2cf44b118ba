"""One scenario on one release: the recorded run, the landings of what races in it, a verdict.

Every operation that races is held back until each later access to its bytes, one operation at a
time, and then all that changed nothing at once. Where it may land is read off the run in which it
is held as long as the engine's own waits allow: the accesses to its bytes that come meanwhile are
the gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from racegate.history.finding import Race
from racegate.history.schedule import Hold, Holds
from racegate.history.stats import unmet_counts
from racegate.history.verdict import Reach, unrealised_text
from racegate.interpose.outcome import DeviceKind, Ending, Plan
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell, Runs
from racegate.targets.common.landings import LandingRun, LandingRuns, longest
from racegate.targets.common.search import LandingSearch, search
from racegate.targets.common.sensitivity import Sensitivity, absent, dead
from racegate.targets.common.verdict import TargetVerdict, counted
from racegate.targets.common.wire import PENALISED, TEMPERATURE_ONE, UNPENALISED, ReleaseRun

RUNS_MAX = 400
NOT_RECORDED = "what races: on a GPU the run without holds is not recorded"
_RAW = "below Python"  # accesses whose place is not known: a landing before them is none


class Gaps:
    """The gaps of each operation that races, as a source of landings."""

    reach: ClassVar[Reach] = Reach.EACH_ALONE

    def landings(self, runs: LandingRuns[ReleaseRun]) -> Iterator[Holds]:
        """Each operation alone, then all together that did no harm, until that does none either."""
        operations = racing_operations(runs.base.findings)
        turns = runs.base.turns
        # In the order of issue: runs have their beginning in common with those before them.
        for operation in sorted(operations, key=lambda operation: turns.get(operation, 0)):
            yield from gaps_of(runs, operation)
        found = -1
        while found != len(runs.harms):
            found = len(runs.harms)
            harmful = {hold.op for landing in runs.harms for hold in landing.holds}
            clean = [operation for operation in operations if operation not in harmful]
            if len(clean) > 1:
                yield longest(clean)

    def known(self, runs: LandingRuns[ReleaseRun]) -> int:
        """Nobody can count them: a gap is known when its run was made."""
        return 0

    def limits(self, runs: LandingRuns[ReleaseRun]) -> tuple[str, ...]:
        """Landings that were not tried, and what is not seen of them."""
        untried = [_why_open(landing) for landing in runs.held if not landing.has_landed]
        if runs.is_cut:
            untried.append(f"runs were {runs.runs_max}, the most")
        if any(_RAW in kind for kind in runs.base.not_seen):
            untried.append("memory is touched below Python, where no landing can be made")
        return tuple(dict.fromkeys(untried))


def _why_open(landing: LandingRun[ReleaseRun]) -> str:
    run = landing.what
    lost = [hold for hold, count in run.realised.items() if not count]
    return run.message or ", ".join(lost) or str(run.ending)


def gaps_of(runs: LandingRuns[ReleaseRun], operation: str) -> Iterator[Holds]:
    """As late as can be, which tells the gaps and lets the others be forked; then in each gap."""
    latest = longest([operation])
    yield latest
    for gap in runs.under(latest).what.gaps.get(operation, ())[1:]:
        yield (Hold(op=operation, until=gap),)


def racing_operations(races: tuple[Race, ...]) -> tuple[str, ...]:
    """The first operation of every pair that races, in the order of issue of each conflict."""
    firsts = [first for race in races if not race.first.is_host for first, _ in race.pairs]
    return tuple(dict.fromkeys(firsts))


class ReleaseVerdict(TargetVerdict[ReleaseRun], frozen=True, kw_only=True):
    """What is said of one scenario in one cell. scenario: its name

    sensitivity: whether a planted wrong value changes each observation
    """

    cell: EngineCell
    scenario: str
    sensitivity: Sensitivity = msgspec.field(default_factory=dict)

    @property
    def message(self) -> str:
        """How the run that is told of ended, if not by itself."""
        return self.shown.message


@dataclass(frozen=True, slots=True)
class ReleaseTarget:
    """A scenario on a started engine. cell: which one; sensitivity: of its observations"""

    engine: Runs
    scenario: Scenario
    cell: EngineCell
    sensitivity: Sensitivity

    def run(self, plan: Plan) -> ReleaseRun:
        """One run under a plan."""
        return self.engine.run(self.scenario, plan)


def judge(
    engine: Runs,
    scenario: Scenario,
    cell: EngineCell,
    *,
    sensitivity: Sensitivity | None = None,
    runs_max: int = RUNS_MAX,
    on_run: Callable[[int], None] | None = None,
) -> ReleaseVerdict:
    """One recorded run and, if something races in it, its landings, also where it is wrong itself.

    sensitivity: of this engine; where an observation is dead, nothing that is judged passes
    on_run: told after each run how many were made
    """
    if reason := cell.cannot_run(scenario):
        return _refused(cell, scenario, reason)
    target = ReleaseTarget(engine, scenario, cell, sensitivity or {})
    base = target.run(Plan())
    found = None
    if base.ending is Ending.FINISHED and base.findings:
        told = None if on_run is None else lambda made, _: on_run(made)
        found = search(target, base, Gaps(), runs_max=runs_max, on_run=told)
    return _judged(target, base, base, search=found)


def judge_under(
    engine: Runs,
    scenario: Scenario,
    cell: EngineCell,
    holds: Holds,
    *,
    sensitivity: Sensitivity | None = None,
    kind: DeviceKind = DeviceKind.VIRTUAL,
) -> ReleaseVerdict:
    """One run under holds, compared with the recorded one, in which nothing is held.

    kind: of the device: on a GPU the run without holds is not recorded, so that nobody knows what
        races in it
    """
    if reason := cell.cannot_run(scenario):
        return _refused(cell, scenario, reason)
    is_recording = kind is DeviceKind.VIRTUAL
    target = ReleaseTarget(engine, scenario, cell, sensitivity or {})
    base = target.run(Plan(is_recording=is_recording, settles=True))
    held = target.run(Plan(holds=holds, is_recording=False))
    unmet = tuple(unrealised_text(text) for text, count in held.realised.items() if not count)
    if not is_recording:
        unmet += (NOT_RECORDED,)
    return _judged(target, base, held, unmet=unmet, holds=holds)


def _judged(
    target: ReleaseTarget,
    base: ReleaseRun,
    shown: ReleaseRun,
    *,
    unmet: tuple[str, ...] = (),
    holds: Holds = (),
    search: LandingSearch[ReleaseRun] | None = None,
) -> ReleaseVerdict:
    cell, pulses = target.cell, target.sensitivity
    runs = [base] if shown is base else [base, shown]
    unseen = (cell.unseen, *_not_asked(cell, target.scenario))
    cut = (f"a run did not come to its end: {run.ending}" for run in runs if not run.is_decided)
    return ReleaseVerdict(
        cell=cell,
        scenario=target.scenario.name,
        base=base,
        shown=shown,
        search=search,
        holds=holds,
        unmet=(*cut, *unmet, *unmet_expectations(cell, target.scenario, base), *dead(pulses)),
        not_seen=(*unseen, *counted(shown), *absent(pulses)),
        sensitivity=pulses,
    )


def _refused(cell: EngineCell, scenario: Scenario, reason: str) -> ReleaseVerdict:
    nothing = ReleaseRun(ending=Ending.FINISHED)
    unmet = (f"not run: {reason}",)
    return ReleaseVerdict(
        cell=cell, scenario=scenario.name, base=nothing, shown=nothing, unmet=unmet, refused=reason
    )


def lost_verdict(cell: EngineCell, scenario: Scenario, message: str) -> ReleaseVerdict:
    """What is said of a scenario in which the engine itself was lost. message: what is known"""
    gone = ReleaseRun(ending=Ending.LOST, message=message)
    unmet = (f"a run did not come to its end: {gone.ending}",)
    return ReleaseVerdict(cell=cell, scenario=scenario.name, base=gone, shown=gone, unmet=unmet)


def _not_asked(cell: EngineCell, scenario: Scenario) -> tuple[str, ...]:
    """What the scenario expects of engines that are not this one."""
    return tuple(f"{name}: {reason}" for name, reason in cell.impossible(scenario).items())


def unmet_expectations(cell: EngineCell, scenario: Scenario, run: ReleaseRun) -> tuple[str, ...]:
    """What the scenario expects to be exercised, is possible there, and was not."""
    expected: dict[str, int] = msgspec.structs.asdict(scenario.expect)
    expected |= dict.fromkeys(cell.impossible(scenario), 0)
    sampled = [one for one in scenario.requests if 0 < one.temperature < TEMPERATURE_ONE]
    if any(one.seed < UNPENALISED for one in sampled):
        expected[PENALISED] = 1
    return unmet_counts(expected, run.counters)
