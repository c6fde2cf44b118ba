"""Minimise: from a failure to a witness: few holds, few requests, named so that they replay
everywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from itertools import combinations

import msgspec

from racegate.check.checker import Checker, Checkers
from racegate.check.expected import CheckError
from racegate.check.findings import digest_of
from racegate.check.judge import Judged
from racegate.check.repro.search import FailureSighting, seen_by_user, symbolic_schedule
from racegate.explore.ladder import reversals
from racegate.explore.shrink import RUNS_MAX as RUNS_MAX
from racegate.explore.shrink import Case, Shrunk, shrink
from racegate.faults.fault import Fault
from racegate.history.finding import Verdict, is_seen, request_of, signature_of
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import EAGER, Schedule, parse_schedule
from racegate.history.witness import EngineSubject, Witness, recorded_finding, sealed, versions
from racegate.scenario.spec import AnyScenario, OwnScenario

# Pairs of reversals tried when no single one shows the failure.
PAIRS_MAX = 60
# Judged cases that are kept: the last that failed is seldom far behind when it is asked for again.
LAST_MAX = 8


class Minimised(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest case with its result. runs: cases that were looked at on the way."""

    case: Case[OwnScenario]
    signature: str
    result: RunResult
    digest: str
    runs: int
    is_minimal: bool


class FailureSight(StrEnum):
    """Who has to see a failure in the smallest case: anybody who looks, or a user in the tokens."""

    ANY = "any"
    SEEN = "seen"


class _Trials:
    """Runs cases and tells whether they show the wanted failure.

    signature: of that failure; is_seen: a user has to see it; runs: how many were asked for; the
        last cases that were judged are not made again
    """

    def __init__(
        self,
        fault: Fault | None,
        on_run: Callable[[int], None] = lambda made: None,
        checker: Checker | None = None,
    ) -> None:
        self._on_run = on_run
        self._fault = fault
        self._checker = None if checker is None else (checker.scenario, checker)
        self._checkers = Checkers()
        self._last: deque[tuple[Case[OwnScenario], Judged]] = deque(maxlen=LAST_MAX)
        self.signature: str | None = None
        self.is_seen = False
        self.runs = 0

    def checker(self, scenario: OwnScenario) -> Checker:
        """For a scenario; cases that differ in their schedule share it."""
        if self._checker is None or self._checker[0] != scenario:
            self._checker = (scenario, self._checkers.of(scenario))
        return self._checker[1]

    def run(self, case: Case[OwnScenario]) -> Judged:
        """One case, judged."""
        self._count()
        return self.look(case)

    def look(self, case: Case[OwnScenario]) -> Judged:
        """The same, not counted."""
        for known, judged in self._last:
            if known == case:
                return judged
        return self._judged(case, self._made(case))

    def fails(self, case: Case[OwnScenario]) -> bool:
        """Whether every hold of a case is realised, before anything is judged, and it shows the
        failure.
        """
        self._count()
        try:
            run = self._made(case)
        except CheckError:
            return False  # a float scenario that cannot be decided shows nothing
        if not all(hold.realised for hold in run.trace.holds):
            return False
        return self.is_shown(self._judged(case, run).result)

    def is_shown(self, result: RunResult) -> bool:
        """Whether a result has the failure."""
        is_same = signature_of(result.findings) == self.signature
        return is_same and (is_seen(result.findings) or not self.is_seen)

    def _count(self) -> None:
        self.runs += 1
        self._on_run(self.runs)

    def _made(self, case: Case[OwnScenario]) -> Run:
        return self.checker(case.scenario).execute(schedule=case.schedule, fault=self._fault)

    def _judged(self, case: Case[OwnScenario], run: Run) -> Judged:
        checker = self.checker(case.scenario)
        judged = checker.judged(run, schedule=case.schedule, fault=self._fault)
        self._last.append((case, judged))
        return judged


def minimise(
    scenario: OwnScenario,
    schedule: Schedule,
    fault: Fault | None,
    *,
    runs_max: int = RUNS_MAX,
    on_run: Callable[[int], None] = lambda made: None,
    sight: FailureSight = FailureSight.ANY,
) -> Minimised:
    """The smallest case that fails as this one does. on_run: is told how many runs were made

    sight: what the smallest case has to show beside the failure, if this one does

    Raises ValueError if it does not fail.
    """
    trials, case = _Trials(fault, on_run), Case(scenario=scenario, schedule=schedule)
    signature = trials.signature = signature_of(trials.look(case).result.findings)
    if signature is None:
        raise ValueError(f"{scenario.name}: nothing is wrong under {list(schedule.texts())}")
    trials.is_seen = sight is FailureSight.SEEN and is_seen(trials.look(case).result.findings)
    case = _with_few_holds(trials, case)
    case = _with_symbols(trials, case)
    shrunk = shrink(case, trials.fails, runs_max=max(1, runs_max - trials.runs))
    last = trials.run(shrunk.case)
    return Minimised(
        case=shrunk.case,
        signature=signature,
        result=last.result,
        digest=digest_of(last.run, last.result.findings),
        runs=trials.runs,
        is_minimal=shrunk.is_minimal,
    )


def with_few_holds(checker: Checker, result: RunResult, fault: Fault | None) -> RunResult:
    """A failure in its own scenario, under as few holds as show it, and show it to a user if it
    does: what everything that is late comes to is mostly one operation's.
    """
    if not any("*" in text for text in result.schedule):
        return result
    trials = _Trials(fault, checker=checker)
    trials.signature, trials.is_seen = signature_of(result.findings), is_seen(result.findings)
    schedule = parse_schedule(list(result.schedule))
    few = _with_few_holds(trials, Case(scenario=checker.scenario, schedule=schedule))
    if few.schedule == schedule:
        return result
    return trials.look(few).result


def gone_on(
    checker: Checker, result: RunResult, fault: Fault | None, *, budget: int, seed: int
) -> tuple[RunResult, FailureSighting | None]:
    """A failure under as few holds as show it, in a run in which a user sees it if there is one;
    and what came of looking for that, None if there was no need.
    """
    signature, sight = signature_of(result.findings), None
    if result.verdict is Verdict.DIVERGENT and signature and not is_seen(result.findings):
        sight = seen_by_user(checker, fault, signature=signature, budget=budget, seed=seed)
    wanted = result if sight is None or sight.result is None else sight.result
    few = with_few_holds(checker, wanted, fault)
    kept = {"search": result.search, "tried": result.tried, "verdict": result.verdict}
    if few is not result:
        stats = msgspec.structs.replace(few.stats, schedules=result.stats.schedules)
        few = msgspec.structs.replace(few, **kept, stats=stats, warnings=result.warnings)
    return few, sight


def smallest_scenario(
    scenario: AnyScenario, still_fails: Callable[[AnyScenario], bool], *, runs_max: int = RUNS_MAX
) -> Shrunk[AnyScenario]:
    """The smallest scenario that still fails, where holds are found anew for each."""
    case = Case(scenario=scenario, schedule=EAGER)
    return shrink(case, lambda smaller: still_fails(smaller.scenario), runs_max=runs_max)


def _with_few_holds(trials: _Trials, case: Case[OwnScenario]) -> Case[OwnScenario]:
    """The case with no hold, one, or two reversals of its conflicts, if that is enough."""
    eager = msgspec.structs.replace(case, schedule=EAGER)
    judged = trials.run(eager)
    if trials.is_shown(judged.result):
        return eager
    if all("*" not in hold.op for hold in case.schedule.holds):
        return case
    holds = reversals(judged.conflicts)
    singles = [(hold,) for hold in holds]
    pairs = list(combinations(holds, 2))[:PAIRS_MAX]
    for chosen in (*singles, *pairs):
        candidate = msgspec.structs.replace(case, schedule=Schedule(holds=chosen))
        if trials.fails(candidate):
            return candidate
    return case


def _with_symbols(trials: _Trials, case: Case[OwnScenario]) -> Case[OwnScenario]:
    """The case with steps named after requests, if it still fails so."""
    judged = trials.run(case)
    schedule = symbolic_schedule(
        case.schedule, judged.run.observations, prefer=request_of(judged.result.findings)
    )
    candidate = msgspec.structs.replace(case, schedule=schedule)
    return candidate if trials.fails(candidate) else case


def as_found(
    scenario: OwnScenario, result: RunResult, fault: Fault | None, *, title: str, seed: int
) -> Witness:
    """A failure as a witness of the run that showed it, before anything is left out. Sealed."""
    checker, schedule = Checker(scenario), parse_schedule(list(result.schedule))
    run = checker.execute(schedule=schedule, fault=fault)
    findings = checker.judge(run, schedule=schedule, fault=fault).findings
    return sealed(
        Witness(
            title=title,
            subject=EngineSubject(fault=result.fault, device="virtual", seed=seed),
            scenario=scenario,
            holds=result.schedule,
            signature=signature_of(result.findings) or "",
            finding=recorded_finding(findings),
            verdict=result.verdict,
            digest=digest_of(run, findings),
            versions=versions(),
        )
    )


def witness_of(small: Minimised, fault: Fault | None, *, title: str, seed: int) -> Witness:
    """A minimised failure as a witness, sealed."""
    return sealed(
        Witness(
            title=title,
            subject=EngineSubject(
                fault=None if fault is None else fault.name, device="virtual", seed=seed
            ),
            scenario=small.case.scenario,
            holds=small.case.schedule.texts(),
            signature=small.signature,
            finding=recorded_finding(small.result.findings),
            verdict=small.result.verdict,
            digest=small.digest,
            versions=versions(),
        )
    )
