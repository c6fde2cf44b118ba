"""Effort: how many schedules, runs and seconds it takes to find and minimise each seeded fault."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import msgspec

from racegate.check.checker import Checker
from racegate.check.repro.minimise import minimise
from racegate.check.repro.search import search
from racegate.explore.generate import generate, seeded
from racegate.faults.catalogue import FAULTS
from racegate.faults.fault import Fault, FaultKind
from racegate.history.finding import Verdict
from racegate.history.schedule import parse_schedule
from racegate.scenario.draws import draw
from racegate.scenario.spec import OwnScenario

LOGIC_SECONDS_MAX = 60.0


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """What one fault took.

    kind: what kind of defect
    seeds: independent starts; flagged_first: starts in which the first schedule showed the race
    diverged: starts that came to a wrong value; one that did not counts below with all it spent
    schedules_median, schedules_p95: until a wrong value, over the starts
    seconds_median, seconds_max: until a wrong value from a random start of generated scenarios
    holds, requests, shrink_runs, shrink_seconds: of the minimal witness
    """

    fault: str
    kind: str
    seeds: int
    flagged_first: int | None
    diverged: int
    schedules_median: float | None
    schedules_p95: float | None
    seconds_median: float | None
    seconds_max: float | None
    holds: int
    requests: int
    shrink_runs: int
    shrink_seconds: float


def measure(
    scenarios: Mapping[str, OwnScenario], *, seeds: int, on_fault: Callable[[str], None]
) -> list[Effort]:
    """Every fault but the controls. scenarios: the gate's, by name."""
    efforts = []
    for fault in FAULTS:
        if fault.kind is not FaultKind.CONTROL:
            on_fault(fault.name)
            efforts.append(_measure(fault, scenarios, seeds=seeds))
    return efforts


def _measure(fault: Fault, scenarios: Mapping[str, OwnScenario], *, seeds: int) -> Effort:
    is_ordering = fault.kind is FaultKind.ORDERING
    flagged = None
    schedules: list[int] = []
    seconds: list[float] = []
    if is_ordering:
        flagged, diverged, schedules = _ordering_effort(fault, scenarios, seeds)
    else:
        seconds = [_logic_seconds(fault, seed) for seed in range(seeds)]
        diverged = sum(value < LOGIC_SECONDS_MAX for value in seconds)
    holds, requests, shrink_runs, shrink_seconds = _shrink_effort(
        fault, scenarios[fault.scenarios[0]]
    )
    return Effort(
        fault=fault.name,
        kind=fault.kind,
        seeds=seeds,
        flagged_first=flagged,
        diverged=diverged,
        schedules_median=statistics.median(schedules) if schedules else None,
        schedules_p95=_percentile(schedules, 0.95) if schedules else None,
        seconds_median=statistics.median(seconds) if seconds else None,
        seconds_max=max(seconds) if seconds else None,
        holds=holds,
        requests=requests,
        shrink_runs=shrink_runs,
        shrink_seconds=shrink_seconds,
    )


def _ordering_effort(
    fault: Fault, scenarios: Mapping[str, OwnScenario], seeds: int
) -> tuple[int, int, list[int]]:
    """(starts flagged in schedule 1, starts that diverged, schedules of each), reseeded scripts."""
    flagged = diverged = 0
    schedules = []
    for seed in range(seeds):
        name = fault.scenarios[seed % len(fault.scenarios)]
        result = search(Checker(reseeded(scenarios[name], seed)), fault=fault, seed=seed)
        flagged += result.search.first_conflicts > 0 if result.search else 0
        diverged += result.verdict is Verdict.DIVERGENT
        schedules.append(result.stats.schedules)
    return flagged, diverged, schedules


def reseeded(scenario: OwnScenario, seed: int) -> OwnScenario:
    """The same script with other weights and prompts; prompts that began alike still do."""
    vocab_size = scenario.model.vocab_size
    shift = draw(seed, "prompts", 0) % vocab_size
    requests = tuple(
        msgspec.structs.replace(
            request, prompt=tuple((token + shift) % vocab_size for token in request.prompt)
        )
        for request in scenario.requests
    )
    model = msgspec.structs.replace(scenario.model, seed=seed + 1)
    return msgspec.structs.replace(scenario, requests=requests, model=model)


def _logic_seconds(fault: Fault, seed: int) -> float:
    """Seconds on one core until a generated scenario shows the fault."""
    started = time.perf_counter()
    index = 0
    while time.perf_counter() - started < LOGIC_SECONDS_MAX:
        checker = Checker(generate(seeded(seed, index), name="effort"))
        if checker.run(fault=fault).verdict is Verdict.DIVERGENT:
            break
        index += 1
    return time.perf_counter() - started


def _shrink_effort(fault: Fault, scenario: OwnScenario) -> tuple[int, int, int, float]:
    """(holds, requests, runs, seconds) of the minimal witness from the ladder's first find."""
    found = search(Checker(scenario), fault=fault)
    started = time.perf_counter()
    small = minimise(scenario, parse_schedule(list(found.schedule)), fault)
    seconds = time.perf_counter() - started
    case = small.case
    return len(case.schedule.holds), len(case.scenario.requests), small.runs, seconds


def _percentile(values: list[int], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ranked = sorted(values)
    return float(ranked[min(len(ranked) - 1, int(-(-share * len(ranked) // 1)) - 1)])
