"""One scenario on one release: the recorded run, the landings of what races in it, a verdict."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from racegate.history.finding import Verdict
from racegate.interpose.outcome import Ending, Outcome, Plan
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell, Runs
from racegate.targets.common.search import RUNS_MAX, Effect, Holds, Search, is_wrong, search
from racegate.targets.common.sensitivity import Sensitivity, absent, dead
from racegate.targets.common.wire import PENALISED, Told


class EngineVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one scenario in one cell.

    told: the recorded run, or the one under the holds asked for; unmet: why it is no pass
    not_seen: what the verdict does not cover, by kind
    sensitivity: whether a planted wrong value changes each observation
    refused: why the engine is not asked to run this scenario, if it is not
    """

    cell: EngineCell
    scenario: str
    verdict: Verdict
    told: Told
    search: Search | None = None
    holds: Holds = ()
    unmet: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()
    message: str = ""
    sensitivity: Sensitivity = {}
    refused: str = ""


def judge(
    engine: Runs,
    scenario: Scenario,
    cell: EngineCell,
    *,
    sensitivity: Sensitivity | None = None,
    runs_max: int = RUNS_MAX,
    on_run: Callable[[int], None] | None = None,
) -> EngineVerdict:
    """One recorded run and, if something races in it, its landings.

    sensitivity: of this engine; where an observation is dead, nothing that is judged passes
    """
    pulses = sensitivity or {}
    if reason := cell.cannot_run(scenario):
        return _refused(cell, scenario, reason)
    base = engine.run(scenario, Plan())
    if base.outcome.ending is not Ending.FINISHED:
        return _verdict(cell, scenario, base, None, pulses)
    if not base.outcome.findings or is_wrong(base):
        return _verdict(cell, scenario, base, None, pulses)
    found = search(lambda plan: engine.run(scenario, plan), base, runs_max=runs_max, on_run=on_run)
    return _verdict(cell, scenario, base, found, pulses)


def judge_under(engine: Runs, scenario: Scenario, cell: EngineCell, holds: Holds) -> EngineVerdict:
    """One run under holds, compared with the one in which nothing is held."""
    base = engine.run(scenario, Plan(is_recording=False, settles=True))
    held = engine.run(scenario, Plan(holds=holds, is_recording=False))
    unrealised = tuple(
        f"hold '{text}' was not realised" for text, n in held.outcome.realised.items() if not n
    )
    is_other = held.seen != base.seen
    if held.outcome.ending not in (Ending.FINISHED, Ending.FAILED):
        verdict = Verdict.INCONCLUSIVE
    elif is_other or is_wrong(held):
        verdict = Verdict.DIVERGENT
    else:
        verdict = Verdict.INCONCLUSIVE if unrealised else Verdict.BENIGN
    return EngineVerdict(
        cell=cell,
        scenario=scenario.name,
        verdict=verdict,
        told=held,
        holds=holds,
        unmet=unrealised,
        not_seen=_not_seen(cell, held),
        message=held.outcome.message,
    )


def _refused(cell: EngineCell, scenario: Scenario, reason: str) -> EngineVerdict:
    return EngineVerdict(
        cell=cell,
        scenario=scenario.name,
        verdict=Verdict.INCONCLUSIVE,
        told=Told(outcome=Outcome(ending=Ending.FINISHED)),
        unmet=(f"not run: {reason}",),
        refused=reason,
    )


def unmet_expectations(scenario: Scenario, told: Told) -> tuple[str, ...]:
    """What the scenario expects to be exercised, and was not."""
    expected: dict[str, int] = msgspec.structs.asdict(scenario.expect)
    if any(request.temperature for request in scenario.requests):
        expected[PENALISED] = 1
    return tuple(
        f"{name} is {told.counters.get(name, 0)}, the scenario expects at least {least}"
        for name, least in expected.items()
        if told.counters.get(name, 0) < least
    )


def _verdict(
    cell: EngineCell, scenario: Scenario, base: Told, found: Search | None, pulses: Sensitivity
) -> EngineVerdict:
    unmet = (*unmet_expectations(scenario, base), *dead(pulses))
    return EngineVerdict(
        cell=cell,
        scenario=scenario.name,
        verdict=_word(base, found, unmet),
        told=base,
        search=found,
        unmet=unmet,
        not_seen=(*_not_seen(cell, base), *absent(pulses)),
        message=base.outcome.message,
        sensitivity=pulses,
    )


def _word(base: Told, found: Search | None, unmet: tuple[str, ...]) -> Verdict:
    ending = base.outcome.ending
    if ending in (Ending.NOT_MODELLED, Ending.LOST, Ending.TIMED_OUT):
        return Verdict.INCONCLUSIVE
    if ending is Ending.FAILED or is_wrong(base):
        return Verdict.DIVERGENT
    effects = {judged.effect for judged in found.conflicts} if found is not None else set()
    if effects & {Effect.WRONG, Effect.DIVERGENT}:
        return Verdict.DIVERGENT
    if unmet:
        return Verdict.INCONCLUSIVE
    if not effects:
        return Verdict.PROVED
    return Verdict.BENIGN if effects == {Effect.BENIGN} else Verdict.CONFLICT


def _not_seen(cell: EngineCell, told: Told) -> tuple[str, ...]:
    counted = [f"{what}: {count}" for what, count in sorted(told.outcome.not_seen.items())]
    return (cell.unseen, *counted)
