"""Search: climbs the ladder for one scenario, and turns what goes wrong into holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from racegate.check.checker import Checker
from racegate.check.forking import ForkedRuns
from racegate.check.judge import Judged
from racegate.check.subject import LaunchMode
from racegate.device.stepping import Stepper
from racegate.device.virtual.memo import OpMemo
from racegate.explore.canonical import canonical_holds, symbolic
from racegate.explore.ladder import Attempt, Climb, climb
from racegate.faults.fault import Fault
from racegate.history.breakage import Breakage, Caught
from racegate.history.finding import Finding, FindingKind, is_seen, signature_of
from racegate.history.observe import Boundary, Observation
from racegate.history.outcome import RunResult, SearchSummary
from racegate.history.run import Run
from racegate.history.schedule import EAGER, Schedule
from racegate.history.verdict import NOTHING_TRIED, Facts, Reach, Tried, facts_of, verdict_of
from racegate.oracles.ordering import has_unordered_query
from racegate.oracles.recall import Recall
from racegate.scenario.errors import BrokenHarnessError

BUDGET = 64

JudgedAttempt = Attempt[Judged]


def is_failure(findings: Sequence[Finding]) -> bool:
    """Whether something went wrong, and not only might have."""
    return any(found.kind is not FindingKind.CONFLICT for found in findings)


class CheckSubject:
    """A scenario, with or without a fault, as the ladder sees it. Only the first run is audited;
    what operations compute from the same contents is shared by all others.

    first: the first run, once it was made; on_run: is told how many were made
    is_wrong: what the search looks for
    """

    def __init__(
        self,
        checker: Checker,
        fault: Fault | None,
        *,
        is_audited: bool,
        launches: LaunchMode = LaunchMode.ASYNC,
        on_run: Callable[[int], None] = lambda made: None,
        is_wrong: Callable[[Sequence[Finding]], bool] = is_failure,
    ) -> None:
        self._checker = checker
        self._is_wrong = is_wrong
        self._on_run = on_run
        self._made = 0
        self._fault = fault
        self._is_audited = is_audited
        self._launches = launches
        self._memo = OpMemo()
        self._recall = Recall()
        self._forked = ForkedRuns(checker, fault, self._memo, recall=self._recall)
        self.first: Judged | None = None

    @property
    def lanes(self) -> tuple[str, ...]:
        """The streams of its device."""
        return self._checker.lanes

    @property
    def shared(self) -> int:
        """Of how many runs the rest was known."""
        return self._forked.shared

    def with_schedule(self, schedule: Schedule) -> JudgedAttempt:
        """See Explorable."""
        run = self._checker.execute(
            schedule=schedule,
            fault=self._fault,
            is_audited=self._is_audited,
            launches=self._launches,
            memo=None if self._is_audited else self._memo,
        )
        self._is_audited = False
        judged = self._checker.judged(
            run, schedule=schedule, fault=self._fault, recall=self._recall
        )
        return self._attempt(judged, schedule)

    def with_stepper(self, stepper: Stepper) -> JudgedAttempt:
        """See Explorable."""
        return self._attempt(self._forked.run(stepper), None)

    def _attempt(self, judged: Judged, schedule: Schedule | None) -> JudgedAttempt:
        self._made += 1
        self._on_run(self._made)
        if self.first is None:
            self.first = judged
        return Attempt(
            schedule=schedule,
            is_wrong=bool(judged.result.breakages) or self._is_wrong(judged.result.findings),
            is_branching=has_unordered_query(judged.run.trace),
            conflicts=judged.conflicts,
            value=judged,
        )


def search(
    checker: Checker,
    *,
    fault: Fault | None = None,
    budget: int = BUDGET,
    seed: int = 0,
    is_audited: bool = False,
    on_eager: Callable[[Run], None] = lambda run: None,
    on_run: Callable[[int], None] = lambda made: None,
) -> RunResult:
    """The result of the first run that went wrong, or of the eager run with the verdict of all.

    What the harness did not expect ends the search: it is raised if there is no run yet, and else
    added to what the eager run showed.

    on_eager: is given the eager run, which comes first; on_run: is told how many runs were made
    """
    started = time.perf_counter()
    subject = CheckSubject(checker, fault, is_audited=is_audited, on_run=on_run)
    with Caught(
        f"searching schedules of {checker.scenario.name}", command=checker.command(EAGER, fault)
    ) as caught:
        result = _searched(checker, subject, fault, budget=budget, seed=seed, started=started)
    if subject.first is None:
        assert caught.breakage is not None
        raise BrokenHarnessError(caught.breakage.text)
    on_eager(subject.first.run)
    if caught.breakage is not None:
        return _broken_off(subject.first.result, caught.breakage)
    return result


def is_seen_with(signature: str, findings: Sequence[Finding]) -> bool:
    """Whether a user sees something wrong in a run that has this failure, or another beside it."""
    return is_seen(findings) and any(one.signature == signature for one in findings)


class FailureSighting(msgspec.Struct, frozen=True, kw_only=True):
    """What came of looking for a run in which a user sees what is wrong: the run under holds, None
    if none was found, how many schedules were run for it, and whether those were all there are.
    """

    result: RunResult | None
    schedules: int
    is_complete: bool


def seen_by_user(
    checker: Checker, fault: Fault | None, *, signature: str, budget: int = BUDGET, seed: int = 0
) -> FailureSighting:
    """Goes on behind the first run that went wrong, to one in which a user sees it.

    signature: of the failure that is gone on with
    """
    is_wanted = partial(is_seen_with, signature)
    subject = CheckSubject(checker, fault, is_audited=False, is_wrong=is_wanted)
    climbed = climb(subject, lanes=checker.lanes, budget=budget, seed=seed)
    if climbed.wrong is None:
        return FailureSighting(
            result=None, schedules=climbed.schedules, is_complete=climbed.is_complete
        )
    result = as_holds(checker, climbed.wrong, fault)
    # A stepped run that no holds repeat cannot be shown to anybody.
    is_told = climbed.wrong.schedule is not None or result is not climbed.wrong.value.result
    found = result if is_told and is_seen(result.findings) else None
    return FailureSighting(result=found, schedules=climbed.schedules, is_complete=False)


def _broken_off(first: RunResult, breakage: Breakage) -> RunResult:
    """What the eager run found, and that nothing more can be said."""
    return msgspec.structs.replace(
        first,
        verdict=verdict_of(Facts(is_broken=True)),
        breakages=(*first.breakages, breakage),
    )


def _searched(
    checker: Checker,
    subject: CheckSubject,
    fault: Fault | None,
    *,
    budget: int,
    seed: int,
    started: float,
) -> RunResult:
    climbed = climb(subject, lanes=checker.lanes, budget=budget, seed=seed)
    if climbed.wrong is None:
        result = climbed.first.value.result
    else:
        result = as_holds(checker, climbed.wrong, fault)
    tried = _tried(climbed)
    facts = facts_of(result.findings, result.unmet, tried, is_broken=bool(result.breakages))
    seconds = time.perf_counter() - started
    return msgspec.structs.replace(
        result,
        verdict=verdict_of(facts),
        tried=tried,
        stats=msgspec.structs.replace(result.stats, schedules=climbed.schedules, seconds=seconds),
        search=_summary(climbed, seconds, shared=subject.shared),
    )


def _tried(climbed: Climb[Judged]) -> Tried:
    """What the ladder tried besides the eager run."""
    progress = climbed.progress
    if climbed.schedules == 1:
        return NOTHING_TRIED
    if climbed.is_complete:
        classes = climbed.schedules if progress is None else progress.classes
        return Tried(reach=Reach.CLASSES, number=classes, known=classes)
    return Tried(reach=Reach.SOME, number=climbed.schedules - 1)


def _summary(climbed: Climb[Judged], seconds: float, *, shared: int) -> SearchSummary:
    progress = climbed.progress
    left = None
    if progress is not None and not climbed.is_complete:
        left = (progress.estimate - progress.classes) * seconds / climbed.schedules
    return SearchSummary(
        first_conflicts=len(climbed.first.conflicts),
        stage=climbed.stage,
        schedules=climbed.schedules,
        shared=shared,
        classes=None if progress is None else progress.classes,
        estimate=None if progress is None else progress.estimate,
        is_complete=climbed.is_complete,
        seconds=seconds,
        seconds_left=left,
    )


def as_holds(checker: Checker, wrong: JudgedAttempt, fault: Fault | None) -> RunResult:
    """A wrong attempt as a run under holds: its own, or the canonical ones of a stepped run."""
    result = wrong.value.result
    if wrong.schedule is not None or result.breakages:
        return result
    for fine in (False, True):
        schedule = canonical_holds(wrong.steps, fine=fine)
        held = checker.run(schedule=schedule, fault=fault)
        if signature_of(held.findings) == signature_of(result.findings):
            return held
    return result


def symbolic_schedule(
    schedule: Schedule, observations: Sequence[Observation], *, prefer: str | None
) -> Schedule:
    """The schedule with steps named after requests, by a run's plans."""
    plans = {
        observation.step: [name for name, _, _ in observation.values["plan"]]
        for observation in observations
        if observation.boundary is Boundary.SCHEDULED
    }
    return symbolic(schedule, plans, prefer=prefer)
