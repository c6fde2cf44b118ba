"""One generated scenario of a campaign: drawn and searched; and what one showed, minimised.

What is found depends on the seed and the scenario's index only. Each worker looks at the canaries
before its first scenario and behind its last one; a share of scenarios is run twice (`selfcheck`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from racegate.check.checker import Checker
from racegate.check.repro.minimise import FailureSight, as_found, minimise, witness_of
from racegate.check.repro.search import BUDGET, search, seen_by_user
from racegate.check.selfcheck import SelfCheck, TwiceRun, is_run_twice, plant_canaries, together
from racegate.check.sharing import SharedRuns
from racegate.explore.features.table import features_in
from racegate.explore.generate import generate, generate_holds, seeded
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.breakage import Breakage
from racegate.history.finding import Benign, Verdict, counted_finding, is_seen, signature_of
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import EAGER, Schedule, parse_schedule
from racegate.history.witness import SealedWitness, Witness
from racegate.jobs.pools.pool import SayAlive
from racegate.jobs.stores.witnesses import found_at, own_witness
from racegate.scenario.spec import OwnScenario

LADDER_BUDGET = 24
# A drawn scenario may be one in which every request is aborted before it starts.
NOTHING_HAPPENED = "nothing happened"
# A target that is not ours may not be able to run what was drawn.
NOT_RUN = "not run"


class CampaignSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What decides every scenario of a campaign, and what is done with it.

    holds_each: further schedules of each scenario, with a few holds drawn for each
    benign: whether a scenario that is BENIGN shows something
    target: what is judged, of a fleet; empty for the engine that is installed
    """

    seed: int
    fault: str | None = None
    holds_each: int = 0
    benign: Benign = Benign.PASS
    target: str = ""


class GeneratedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One signature. index: of the scenario, the lowest that showed it; runs: made to minimise it,
    0 if it has not been

    is_seen: a user sees it in the minimal run; None where nobody looked: not minimised, no wrong
        value, or of another target
    looked: schedules that were run for a run in which a user sees it
    """

    signature: str
    index: int
    witness: SealedWitness
    runs: int
    is_minimal: bool
    is_seen: bool | None = None
    looked: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario looked at. selfcheck: with the canaries, of a worker's first

    signature: what it showed, found before or not
    features: of the eager run, by name; none with a fault
    """

    index: int
    schedules: int
    verdict: str
    exercised: dict[str, int]
    settings: tuple[str, ...]
    features: tuple[str, ...]
    signature: str | None
    found: GeneratedFinding | None
    selfcheck: SelfCheck
    breakages: tuple[Breakage, ...] = ()


class MinimisedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding made small. signature: the one that it was found by"""

    signature: str
    small: GeneratedFinding


# What workers say: of a scenario, of a finding, and at their end.
Answer = Report | MinimisedFinding | SelfCheck


class ScenarioWorker:
    """Looks at scenarios by their index, and minimises what one showed. known: signatures that need
    no witness any more
    """

    def __init__(self, spec: CampaignSpec, known: frozenset[str]) -> None:
        self._spec = spec
        self._fault = None if spec.fault is None else find_fault(spec.fault)
        # By the lowest scenario that showed it: one that is handed back may be lower.
        self._seen = dict.fromkeys(known, -1)
        self._unsaid = self._canaries()

    def work(self, task: int | GeneratedFinding) -> Answer:
        """See `work_on`."""
        return self.work_on(task, lambda: None)

    def work_on(self, task: int | GeneratedFinding, say_alive: SayAlive) -> Answer:
        """One scenario, in which a signature that this worker has seen in no lower one is found; or
        the minimal form of what was found, whose runs are signs of life.
        """
        if isinstance(task, GeneratedFinding):
            small = minimised(task, self._fault, on_run=lambda made: say_alive())
            return MinimisedFinding(signature=task.signature, small=small)
        seen = {signature for signature, index in self._seen.items() if index < task}
        report = look_at(self._spec, task, self._fault, seen)
        if report.found is not None:
            self._seen[report.found.signature] = task
        check, self._unsaid = together((self._unsaid, report.selfcheck)), SelfCheck()
        return msgspec.structs.replace(report, selfcheck=check)

    def end(self) -> Answer:
        """The canaries once more: what went between may have broken something."""
        return together((self._unsaid, self._canaries()))

    def _canaries(self) -> SelfCheck:
        def look(checker: Checker, fault: Fault | None) -> RunResult:
            seed = self._spec.seed
            return search(checker, fault=fault, budget=LADDER_BUDGET, seed=seed, is_audited=True)

        return plant_canaries(look)


def drawn(seed: int, index: int) -> OwnScenario:
    """The scenario of that index. Its name ends with it."""
    return generate(seeded(seed, index), name=f"generated-{seed}-{index}")


def look_at(spec: CampaignSpec, index: int, fault: Fault | None, seen: set[str]) -> Report:
    """Searches one generated scenario, and keeps what is not in `seen`, which gets it."""
    scenario = drawn(spec.seed, index)
    checker = Checker(scenario)
    twice = _twice(spec, index, checker, fault) if is_run_twice(spec.seed, index) else []
    eager: list[Run] = []
    result = search(
        checker,
        fault=fault,
        budget=LADDER_BUDGET,
        seed=spec.seed + index,
        is_audited=True,
        on_eager=eager.append,
    )
    schedules = result.stats.schedules
    if spec.holds_each and signature_of(result.findings) is None:
        result, more = _with_drawn_holds(spec, index, checker, fault, result)
        schedules += more
    counted = counted_finding(result.verdict, result.findings, benign=spec.benign)
    signature = None if counted is None else counted.signature
    found = None
    if signature is not None and signature not in seen:
        seen.add(signature)
        title = f"{_title(signature, index, spec.seed)}, not minimised"
        witness = found_at(
            as_found(scenario, result, fault, title=title, seed=spec.seed), spec.seed, index
        )
        found = GeneratedFinding(
            signature=signature, index=index, witness=witness, runs=0, is_minimal=False
        )
    return Report(
        index=index,
        schedules=schedules,
        verdict=result.verdict,
        exercised=result.stats.exercised,
        settings=_settings_of(checker.scenario) + _resolved(result) + _idle(result),
        features=_features(checker, fault, eager[0]),
        signature=signature,
        found=found,
        selfcheck=together(run.again() for run in twice),
        breakages=result.breakages,
    )


def _twice(spec: CampaignSpec, index: int, checker: Checker, fault: Fault | None) -> list[TwiceRun]:
    """The eager run, and the first with drawn holds, if the campaign draws any."""
    schedules = [EAGER] + ([_drawn(spec, index, 0, checker)] if spec.holds_each else [])
    return [TwiceRun(checker, fault, schedule=schedule) for schedule in schedules]


def _drawn(spec: CampaignSpec, index: int, number: int, checker: Checker) -> Schedule:
    """The drawn schedule of that number for a scenario."""
    pick = seeded(spec.seed, index * 1_000_003 + number)
    engine = checker.scenario.engine
    return generate_holds(pick, layout=engine.layout, ranks=engine.ranks)


def _resolved(result: RunResult) -> tuple[str, ...]:
    """What was asked for and gave way, for the campaign's distribution."""
    return tuple(
        f"{change.option} = {change.effective}, asked {change.asked}" for change in result.resolved
    )


def _idle(result: RunResult) -> tuple[str, ...]:
    return () if result.stats.delivered or result.findings else (NOTHING_HAPPENED,)


def _features(checker: Checker, fault: Fault | None, run: Run) -> tuple[str, ...]:
    """What a run without fault reached; one that a defect stopped or turned says nothing of it."""
    return () if fault is not None else tuple(sorted(features_in(checker.scenario, run)))


def _settings_of(scenario: OwnScenario) -> tuple[str, ...]:
    """What the drawn configuration was, for the campaign's distribution."""
    engine = scenario.engine
    return (
        f"cache_mode = {engine.cache_mode}",
        f"transfers = {engine.transfers}",
        f"zeroing = {engine.zeroing}",
        f"planning = {engine.planning}",
        f"drafter = {engine.drafter}",
        f"layout = {engine.layout}",
        f"output_event = {engine.output_event}",
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
        result = runs.run(_drawn(spec, index, number, checker))
        if signature_of(result.findings) is not None:
            return result, number + 1
    return clean, spec.holds_each


def minimised(
    found: GeneratedFinding, fault: Fault | None, *, on_run: Callable[[int], None]
) -> GeneratedFinding:
    """What was found, as small as it gets, and so that a user sees it if there is such a run.

    on_run: is told how many runs were made

    Raises ValueError if its witness shows nothing.
    """
    raw = own_witness(found.witness)
    schedule, looked = _gone_on(raw, fault, seed=raw.seed + found.index)
    small = minimise(raw.scenario, schedule, fault, on_run=on_run, sight=FailureSight.SEEN)
    is_wrong = small.result.verdict is Verdict.DIVERGENT
    title = _title(small.signature, found.index, raw.seed)
    return GeneratedFinding(
        signature=small.signature,
        index=found.index,
        witness=found_at(
            witness_of(small, fault, title=title, seed=raw.seed), raw.seed, found.index
        ),
        runs=small.runs,
        is_minimal=small.is_minimal,
        is_seen=is_seen(small.result.findings) if is_wrong else None,
        looked=looked,
    )


def _gone_on(raw: Witness, fault: Fault | None, *, seed: int) -> tuple[Schedule, int]:
    """A schedule of the same scenario in which a user sees what is wrong, else that of the witness;
    and how many were run to find it.
    """
    schedule, checker = parse_schedule(list(raw.holds)), Checker(raw.scenario)
    result = checker.run_judged(schedule=schedule, fault=fault).result
    if result.verdict is not Verdict.DIVERGENT or is_seen(result.findings):
        return schedule, 0
    sight = seen_by_user(checker, fault, signature=raw.signature, budget=BUDGET, seed=seed)
    further = sight.result
    if further is None or signature_of(further.findings) != raw.signature:
        return schedule, sight.schedules
    return parse_schedule(list(further.schedule)), sight.schedules


def _title(signature: str, index: int, seed: int) -> str:
    return f"{signature} (scenario {index} of seed {seed})"
