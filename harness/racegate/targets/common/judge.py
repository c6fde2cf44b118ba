"""One scenario on one release: the recorded run, the landings of what races in it, a verdict."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from racegate.history.finding import Race, Verdict
from racegate.history.schedule import Holds
from racegate.history.stats import unmet_counts
from racegate.history.verdict import (
    NOTHING_TRIED,
    Facts,
    Reach,
    Tried,
    unrealised_text,
    verdict_of,
    verdict_text,
)
from racegate.interpose.outcome import DeviceKind, Ending, Plan
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell, Runs
from racegate.targets.common.search import (
    RUNS_MAX,
    LandingSearch,
    is_decided,
    is_tried,
    is_wrong,
    search,
)
from racegate.targets.common.sensitivity import Sensitivity, absent, dead
from racegate.targets.common.wire import PENALISED, ReleaseRun

NOT_RECORDED = "what races: on a GPU the run without holds is not recorded"


class TargetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one scenario in one cell.

    shown: the recorded run, or the one under the holds asked for; unmet: why it is no pass
    tried: what was tried besides the recorded run, which the verdict rests on
    races: in the recorded run, also where the one under holds is told
    not_seen: what the verdict does not cover, by kind
    sensitivity: whether a planted wrong value changes each observation
    refused: why the engine is not asked to run this scenario, if it is not
    """

    cell: EngineCell
    scenario: str
    verdict: Verdict
    shown: ReleaseRun
    tried: Tried = NOTHING_TRIED
    races: tuple[Race, ...] = ()
    search: LandingSearch | None = None
    holds: Holds = ()
    unmet: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()
    message: str = ""
    sensitivity: Sensitivity = {}
    refused: str = ""

    @property
    def text(self) -> str:
        """The verdict as it is printed, with what was tried."""
        return verdict_text(self.verdict, self.tried)


def judge(
    engine: Runs,
    scenario: Scenario,
    cell: EngineCell,
    *,
    sensitivity: Sensitivity | None = None,
    runs_max: int = RUNS_MAX,
    on_run: Callable[[int], None] | None = None,
) -> TargetVerdict:
    """One recorded run and, if something races in it, its landings.

    sensitivity: of this engine; where an observation is dead, nothing that is judged passes
    """
    pulses = sensitivity or {}
    if reason := cell.cannot_run(scenario):
        return _refused(cell, scenario, reason)
    base = engine.run(scenario, Plan())
    known = _Known(base=base, shown=base)
    is_whole = base.ending is Ending.FINISHED and not is_wrong(base)
    if is_whole and base.findings:
        run = partial(engine.run, scenario)
        found = search(run, base, runs_max=runs_max, on_run=on_run)
        known = msgspec.structs.replace(
            known, is_changed=found.is_changed, tried=found.tried, search=found
        )
    return _verdict(cell, scenario, known, pulses)


def judge_under(
    engine: Runs,
    scenario: Scenario,
    cell: EngineCell,
    holds: Holds,
    *,
    sensitivity: Sensitivity | None = None,
    kind: DeviceKind = DeviceKind.VIRTUAL,
) -> TargetVerdict:
    """One run under holds, compared with the recorded one, in which nothing is held.

    kind: of the device: on a GPU the run without holds is not recorded, so that nobody knows what
        races in it
    """
    if reason := cell.cannot_run(scenario):
        return _refused(cell, scenario, reason)
    is_recording = kind is DeviceKind.VIRTUAL
    base = engine.run(scenario, Plan(is_recording=is_recording, settles=True))
    held = engine.run(scenario, Plan(holds=holds, is_recording=False))
    realised = held.realised
    return _verdict(
        cell,
        scenario,
        _Known(
            base=base,
            shown=held,
            is_changed=is_decided(held) and held.seen != base.seen,
            unmet=(
                *(unrealised_text(text) for text, count in realised.items() if not count),
                *(() if is_recording else (NOT_RECORDED,)),
            ),
            tried=Tried(reach=Reach.SOME, number=int(is_tried(held))),
            holds=holds,
        ),
        sensitivity or {},
    )


def _refused(cell: EngineCell, scenario: Scenario, reason: str) -> TargetVerdict:
    return TargetVerdict(
        cell=cell,
        scenario=scenario.name,
        verdict=Verdict.INCONCLUSIVE,
        shown=ReleaseRun(ending=Ending.FINISHED),
        unmet=(f"not run: {reason}",),
        refused=reason,
    )


def unmet_expectations(scenario: Scenario, shown: ReleaseRun) -> tuple[str, ...]:
    """What the scenario expects to be exercised, and was not."""
    expected: dict[str, int] = msgspec.structs.asdict(scenario.expect)
    if any(request.temperature for request in scenario.requests):
        expected[PENALISED] = 1
    return unmet_counts(expected, shown.counters)


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of one verdict showed. base: without holds; shown: the one that is told of
    is_changed: holds changed what is observed; unmet: beside what the scenario expects
    """

    base: ReleaseRun
    shown: ReleaseRun
    is_changed: bool = False
    unmet: tuple[str, ...] = ()
    tried: Tried = NOTHING_TRIED
    holds: Holds = ()
    search: LandingSearch | None = None


def _verdict(
    cell: EngineCell, scenario: Scenario, known: _Known, pulses: Sensitivity
) -> TargetVerdict:
    base, told = known.base, known.shown
    runs = [base] if told is base else [base, told]
    cut = tuple(
        f"a run did not come to its end: {run.ending}" for run in runs if not is_decided(run)
    )
    unmet = (
        *cut,
        *known.unmet,
        *unmet_expectations(scenario, base),
        *dead(pulses),
    )
    facts = Facts(
        is_wrong=known.is_changed or any(is_decided(run) and is_wrong(run) for run in runs),
        conflicts=len(base.findings) if is_decided(base) else 0,
        unmet=unmet,
        is_compared=bool(base.observations),
        tried=known.tried,
    )
    return TargetVerdict(
        cell=cell,
        scenario=scenario.name,
        verdict=verdict_of(facts),
        shown=told,
        tried=known.tried,
        races=base.findings,
        search=known.search,
        holds=known.holds,
        unmet=unmet,
        not_seen=(*_not_seen(cell, told), *absent(pulses)),
        message=told.message,
        sensitivity=pulses,
    )


def _not_seen(cell: EngineCell, shown: ReleaseRun) -> tuple[str, ...]:
    counted = [f"{what}: {count}" for what, count in sorted(shown.not_seen.items())]
    return (cell.unseen, *counted)
