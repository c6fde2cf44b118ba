"""One generated scenario of a campaign: drawn, searched, and what it shows minimised.

What is found depends on the seed and the scenario's index only. Each worker looks at the canaries
before its first scenario and behind its last one; a share of scenarios is run twice (`selfcheck`).
"""

from __future__ import annotations

import msgspec

from racegate.check.checker import Checker
from racegate.check.selfcheck import SelfCheck, TwiceRun, is_run_twice, plant_canaries, together
from racegate.check.sharing import SharedRuns
from racegate.explore.features.catalogue import features_of
from racegate.explore.features.facts import facts_of
from racegate.explore.generate import generate, generate_holds, seeded
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.finding import Verdict, signature_of
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import EAGER, Schedule, parse_schedule
from racegate.history.witness import Witness
from racegate.repro.minimise import minimise, witness_of
from racegate.repro.search import search
from racegate.scenario.spec import Scenario

LADDER_BUDGET = 24
# A drawn scenario may be one in which every request is aborted before it starts.
NOTHING_HAPPENED = "nothing happened"


class CampaignSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What decides every scenario of a campaign, and what is done with it.

    holds_each: further schedules of each scenario, with a few holds drawn for each
    """

    seed: int
    fault: str | None = None
    holds_each: int = 0


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One signature. index: of the scenario, the lowest that showed it."""

    signature: str
    index: int
    witness: Witness
    runs: int
    is_minimal: bool


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario looked at. selfcheck: with the canaries, of a worker's first

    features: of the eager run, by name; none with a fault
    """

    index: int
    schedules: int
    verdict: str
    exercised: dict[str, int]
    settings: tuple[str, ...]
    features: tuple[str, ...]
    found: Found | None
    selfcheck: SelfCheck


class ScenarioWorker:
    """Looks at scenarios by their index. known: signatures that need no witness any more"""

    def __init__(self, spec: CampaignSpec, known: frozenset[str]) -> None:
        self._spec = spec
        self._fault = None if spec.fault is None else find_fault(spec.fault)
        self._seen = set(known)
        self._unsaid = self._canaries()

    def work(self, index: int) -> Report:
        """One scenario; a signature that this worker has not seen is minimised."""
        report = look_at(self._spec, index, self._fault, self._seen)
        check, self._unsaid = together((self._unsaid, report.selfcheck)), SelfCheck()
        return msgspec.structs.replace(report, selfcheck=check)

    def end(self) -> SelfCheck:
        """The canaries once more: what went between may have broken something."""
        return together((self._unsaid, self._canaries()))

    def _canaries(self) -> SelfCheck:
        def look(checker: Checker, fault: Fault | None) -> RunResult:
            return search(checker, fault=fault, budget=LADDER_BUDGET, seed=self._spec.seed)

        return plant_canaries(look)


def look_at(spec: CampaignSpec, index: int, fault: Fault | None, seen: set[str]) -> Report:
    """Searches one generated scenario, and minimises what is not in `seen`, which gets it."""
    scenario = generate(seeded(spec.seed, index), name=f"generated-{spec.seed}-{index}")
    checker = Checker(scenario)
    twice = _twice(spec, index, checker, fault) if is_run_twice(spec.seed, index) else []
    eager: list[Run] = []
    result = search(
        checker, fault=fault, budget=LADDER_BUDGET, seed=spec.seed + index, on_eager=eager.append
    )
    schedules = result.stats.schedules
    if spec.holds_each and signature_of(result.findings) is None:
        result, more = _with_drawn_holds(spec, index, checker, fault, result)
        schedules += more
    signature = signature_of(result.findings)
    found = None
    if signature is not None and signature not in seen and result.verdict is not Verdict.BENIGN:
        seen.add(signature)
        found = _minimised(spec, index, scenario, result, fault)
    return Report(
        index=index,
        schedules=schedules,
        verdict=result.verdict,
        exercised=result.stats.exercised,
        settings=_settings_of(checker.scenario) + _idle(result),
        features=_features(checker, fault, eager[0]),
        found=found,
        selfcheck=together(run.again() for run in twice),
    )


def _twice(spec: CampaignSpec, index: int, checker: Checker, fault: Fault | None) -> list[TwiceRun]:
    """The eager run, and the first with drawn holds, if the campaign draws any."""
    schedules = [EAGER] + ([_drawn(spec, index, 0)] if spec.holds_each else [])
    return [TwiceRun(checker, fault, schedule=schedule) for schedule in schedules]


def _drawn(spec: CampaignSpec, index: int, number: int) -> Schedule:
    """The drawn schedule of that number for a scenario."""
    return generate_holds(seeded(spec.seed, index * 1_000_003 + number))


def _idle(result: RunResult) -> tuple[str, ...]:
    return () if result.stats.boundaries else (NOTHING_HAPPENED,)


def _features(checker: Checker, fault: Fault | None, run: Run) -> tuple[str, ...]:
    """What a run without fault reached; one that a defect stopped or turned says nothing of it."""
    if fault is not None or run.result is None:
        return ()
    return tuple(sorted(features_of(facts_of(checker.scenario, run))))


def _settings_of(scenario: Scenario) -> tuple[str, ...]:
    """What the drawn configuration was, for the campaign's distribution."""
    engine = scenario.engine
    return (
        f"cache_mode = {engine.cache_mode}",
        f"zeroing = {engine.zeroing}",
        f"planning = {engine.planning}",
        f"drafter = {engine.drafter}",
        f"depth = {engine.depth}",
        f"draft_len_max = {engine.draft_len_max}",
        f"requests = {len(scenario.requests)}",
    )


def _with_drawn_holds(
    spec: CampaignSpec, index: int, checker: Checker, fault: Fault | None, clean: RunResult
) -> tuple[RunResult, int]:
    """The first finding among schedules with drawn holds, else the clean result; and how many."""
    runs = SharedRuns(checker, fault)
    for number in range(spec.holds_each):
        result = runs.run(_drawn(spec, index, number))
        if signature_of(result.findings) is not None:
            return result, number + 1
    return clean, spec.holds_each


def _minimised(
    spec: CampaignSpec, index: int, scenario: Scenario, result: RunResult, fault: Fault | None
) -> Found:
    schedule = parse_schedule(list(result.schedule))
    small = minimise(scenario, schedule, fault)
    title = f"{small.signature} (scenario {index} of seed {spec.seed})"
    return Found(
        signature=small.signature,
        index=index,
        witness=witness_of(small, fault, title=title, seed=spec.seed),
        runs=small.runs,
        is_minimal=small.is_minimal,
    )
