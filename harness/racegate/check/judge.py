"""Judge: asks the oracles about a run, and says what is known of the scenario after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from racegate.check.command import ReplayCommand
from racegate.check.expected import Expected
from racegate.check.findings import (
    from_divergence,
    from_end,
    from_mismatch,
    from_stop,
    from_violations,
)
from racegate.faults.fault import Fault
from racegate.history.breakage import Breakage, Caught
from racegate.history.finding import ALL_ORACLES, Finding, Oracle, with_hazards
from racegate.history.observe import of_rank
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import EAGER, Schedule
from racegate.history.stats import Stats, cut_off, make_stats, unmet_expectations, vacuous
from racegate.history.trace import Conflict, HoldOutcome
from racegate.history.verdict import facts_of, tried_by_hand, unrealised, verdict_of
from racegate.oracles.counts import find_miscounts
from racegate.oracles.findings import (
    from_conflicts,
    from_losses,
    from_misowned,
    from_wrong_pages,
)
from racegate.oracles.invariants import Violation
from racegate.oracles.losslessness import Loss, find_losses
from racegate.oracles.ordering import has_unordered_query
from racegate.oracles.ownership import WrongPage, find_misowned
from racegate.oracles.ranks import find_disagreements, find_wrong_pair
from racegate.oracles.recall import Recall
from racegate.oracles.stepwise import Divergence

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A run, what is said about it, and the pairs of accesses that nothing orders."""

    run: Run
    result: RunResult
    conflicts: tuple[Conflict, ...]


class Judge:
    """Judges runs of one scenario. device: what results call the device they were made on."""

    def __init__(self, expected: Expected, command: ReplayCommand, *, device: str) -> None:
        self._expected = expected
        self._command = command
        self._device = device

    def judged(
        self,
        run: Run,
        *,
        schedule: Schedule = EAGER,
        fault: Fault | None = None,
        oracles: frozenset[Oracle] = ALL_ORACLES,
        recall: Recall | None = None,
    ) -> Judged:
        """Asks the oracles about a run. oracles: one that is left out is not asked.

        recall: what they said about other runs of the program
        """
        recall = Recall() if recall is None else recall
        command = self._command.text(schedule, fault)
        asked = _Asked(f"{self._expected.scenario.name}: judging a run", command)
        conflicts = asked.about(Oracle.ORDERING, oracles, lambda: recall.conflicts(run.trace))
        findings = _naming(self._findings(run, conflicts, oracles, asked, recall), command)
        breakages = tuple(asked.breakages)
        scenario = self._expected.scenario
        stats = make_stats(run, conflicts=len(conflicts))
        unmet = self._unmet(run, stats, oracles)
        if run.result is not None and (fault is None or not findings):
            unmet = unmet_expectations(scenario, stats) + unmet
        tried = tried_by_hand(run.trace.holds)
        result = RunResult(
            scenario=scenario.name,
            device=self._device,
            config=msgspec.to_builtins({"model": scenario.model, "engine": scenario.engine}),
            fault=None if fault is None else fault.name,
            schedule=schedule.texts(),
            verdict=verdict_of(facts_of(findings, unmet, tried, is_broken=bool(breakages))),
            findings=findings,
            tried=tried,
            stats=stats,
            holds=run.trace.holds,
            unmet=unmet,
            resolved=self._expected.resolved,
            warnings=(*self._expected.warnings, *_idle_events(run)),
            breakages=breakages,
        )
        return Judged(run=run, result=result, conflicts=tuple(conflicts))

    def with_holds(
        self,
        eager: RunResult,
        schedule: Schedule,
        holds: tuple[HoldOutcome, ...],
        *,
        fault: Fault | None,
    ) -> RunResult:
        """The eager result, for a schedule that was found to change nothing."""
        unmet = eager.unmet + unrealised(holds)
        tried = tried_by_hand(holds)
        return msgspec.structs.replace(
            eager,
            schedule=schedule.texts(),
            holds=holds,
            unmet=unmet,
            verdict=verdict_of(
                facts_of(eager.findings, unmet, tried, is_broken=bool(eager.breakages))
            ),
            tried=tried,
            findings=_naming(eager.findings, self._command.text(schedule, fault)),
        )

    def _findings(
        self,
        run: Run,
        conflicts: list[Conflict],
        oracles: frozenset[Oracle],
        asked: _Asked,
        recall: Recall,
    ) -> list[Finding]:
        """Causes before effects: orders, owners, steps, invariants, outputs."""
        about = partial(asked.about, oracles=oracles)
        return [
            *about(Oracle.ORDERING, ask=lambda: from_conflicts(conflicts, run)),
            *about(Oracle.OWNERSHIP, ask=lambda: from_misowned(find_misowned(run.trace))),
            *about(Oracle.OWNERSHIP, ask=lambda: from_wrong_pages(self._pages(run, recall))),
            *about(Oracle.INVARIANTS, ask=lambda: from_mismatch(find_wrong_pair(run.trace))),
            *about(Oracle.STEPWISE, ask=lambda: self._left_reference(run, recall)),
            *about(Oracle.INVARIANTS, ask=lambda: from_violations(self._violations(run, recall))),
            *about(Oracle.LOSSLESSNESS, ask=lambda: from_losses(self._losses(run))),
            *from_stop(run.stopped),
        ]

    def _left_reference(self, run: Run, recall: Recall) -> list[Finding]:
        """The first place where it does; the end comes last."""
        reference = self._expected.reference
        return from_divergence(self._divergence(run, recall)) or from_end(
            run.result, steps=reference.steps, finished=reference.finished
        )

    def _pages(self, run: Run, recall: Recall) -> list[WrongPage]:
        expected = self._expected
        return recall.wrong_pages(run, expected.scenario, expected.plain)

    def _violations(self, run: Run, recall: Recall) -> list[Violation]:
        scenario = self._expected.scenario
        found = recall.violations(run.observations, scenario)
        found += find_disagreements(run.observations)
        if run.result is not None:
            found += find_miscounts(of_rank(run.observations), run.result, scenario)
        return found

    def _losses(self, run: Run) -> list[Loss]:
        if run.result is None:
            return []
        return find_losses(run.result.delivered, self._expected.plain, run.result.finished)

    def _unmet(self, run: Run, stats: Stats, oracles: frozenset[Oracle]) -> tuple[str, ...]:
        """Why a run in which nothing is wrong would be no proof."""
        unmet: tuple[str, ...] = ()
        if run.result is not None:
            unmet = cut_off(self._expected.scenario, run) + vacuous(stats)
        if has_unordered_query(run.trace):
            unmet += (
                "a completion flag was queried where nothing orders it: other schedules "
                "may take another branch",
            )
        unmet += unrealised(run.trace.holds)
        return unmet + tuple(
            f"oracle {name} was not asked" for name in Oracle if name not in oracles
        )

    def _divergence(self, run: Run, recall: Recall) -> Divergence | None:
        """Where the run leaves the reference; up to where it stopped, if it did."""
        observed, expected = run.observations, self._expected.reference.observations
        if run.stopped is not None:
            common = min(len(observed), len(expected))
            observed, expected = observed[:common], expected[:common]
        return recall.divergence(observed, expected)


def _naming(findings: Sequence[Finding], command: str) -> tuple[Finding, ...]:
    """The findings with the command that shows them again."""
    named = (msgspec.structs.replace(finding, replay=command) for finding in findings)
    return with_hazards(tuple(named))


def _idle_events(run: Run) -> tuple[str, ...]:
    if run.result is None:
        return ()
    return tuple(f"event had no effect: {event}" for event in run.result.unmet_events)


class _Asked:
    """Asks oracles one by one. breakages: of those that raised; what the others said stays."""

    def __init__(self, at: str, command: str) -> None:
        self._at = at
        self._command = command
        self.breakages: list[Breakage] = []

    def about(
        self, oracle: Oracle, oracles: frozenset[Oracle], ask: Callable[[], list[T]]
    ) -> list[T]:
        """What an oracle says; nothing if it is left out or raises."""
        if oracle not in oracles:
            return []
        with Caught(f"{self._at}, oracle {oracle}", command=self._command, through=()) as caught:
            return ask()
        assert caught.breakage is not None
        self.breakages.append(caught.breakage)
        return []
