"""Kills: what shows one seeded fault. Which oracles speak of it, under which schedules, and how
many schedules each strategy needs until a value is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial

import msgspec

from racegate.check.checker import Checker
from racegate.check.subject import Launches
from racegate.device.stepping import Stepper
from racegate.explore.dpor import explore
from racegate.explore.ladder import Noting, reversals
from racegate.explore.samplers.pos import PosStepper
from racegate.explore.samplers.random_walk import RandomStepper
from racegate.faults.fault import Fault, FaultKind
from racegate.history.finding import ORACLE_OF, Finding, FindingKind, Oracle, signature_of
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import EAGER, LATE, Schedule, lane_late, parse_schedule
from racegate.oracles.losslessness import is_output_wrong
from racegate.repro.search import BUDGET, CheckSubject, JudgedAttempt, as_holds

# A control is run on all scripts of the gate, so less often on each.
CONTROL_BUDGET = 2


class Look(StrEnum):
    """What a run can be judged by: each oracle alone, that it came to its end at all, and what a
    test sees that compares only the final tokens, in all runs or in those of natural timing.
    """

    ORDERING = "ordering"
    OWNERSHIP = "ownership"
    STEPWISE = "stepwise"
    INVARIANTS = "invariants"
    LOSSLESSNESS = "losslessness"
    STOPPED = "stopped"
    FINAL_TOKENS = "final_tokens"
    FINAL_TOKENS_NATURAL = "final_tokens_natural"


ORACLE_LOOKS = tuple(Look(oracle.value) for oracle in Oracle)
# What speaks by itself; the final tokens are for comparison.
SPEAKING = (*ORACLE_LOOKS, Look.STOPPED)


class Strategy(StrEnum):
    """Which schedules are run.

    eager, late: one schedule; lane_late: one per lane; reversals: the eager run, then one hold per
        conflict in it; dpor, pos, random: up to a budget
    sync_everywhere: natural order, the host waiting for the device behind every operation
    """

    EAGER = "eager"
    LATE = "late"
    LANE_LATE = "lane_late"
    REVERSALS = "reversals"
    DPOR = "dpor"
    POS = "pos"
    RANDOM = "random"
    SYNC_EVERYWHERE = "sync_everywhere"


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data of the matrix's file, in which an unknown field is an error."""


class Sight(Record, frozen=True, kw_only=True):
    """The first run in which a fault shows.

    scenario, holds: the run (holds of a sampled run are the canonical ones)
    schedules, seconds: made and taken until then, this run included
    signature: of the finding; field: the first that differs from the reference in that run, None if
        none does; is_expected: whether it is the one that the catalogue names, None without a field
    """

    scenario: str
    holds: tuple[str, ...]
    schedules: int
    seconds: float
    signature: str
    field: str | None
    is_expected: bool | None


class OracleCell(Record, frozen=True, kw_only=True):
    """One fault under one look.

    runs, seen: runs judged, and those in which this look saw something; first: the first of them
    alone: runs (scenario, timing) of which it alone has something to say
    alone_without_stepwise: the same if the stepwise oracle is silent, as it is about a defect that
        the reference has too
    """

    runs: int
    seen: int
    first: Sight | None
    alone: tuple[str, ...] = ()
    alone_without_stepwise: tuple[str, ...] = ()


class StrategyCell(Record, frozen=True, kw_only=True):
    """One fault under one strategy: it stops at the first wrong value.

    schedules, seconds: made and taken in all; flagged: schedules until the ordering oracle spoke
    kill: the first wrong value (an order alone is none)
    """

    schedules: int
    seconds: float
    flagged: int | None
    kill: Sight | None


class Row(Record, frozen=True, kw_only=True):
    """One fault. shown: its first script under the holds of the catalogue; None for a control."""

    fault: str
    number: int
    kind: FaultKind
    needs: tuple[str, ...]
    origin: str
    summary: str
    expect: str
    shown: Sight | None
    oracles: dict[Look, OracleCell]
    strategies: dict[Strategy, StrategyCell]


class _Looked(msgspec.Struct, frozen=True, kw_only=True):
    """One judged run. signatures: by what looked and saw something."""

    scenario: str
    timing: str
    holds: tuple[str, ...]
    signatures: dict[Look, str]
    field: str | None
    number: int
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.scenario}, {self.timing}"


def measure_row(
    fault: Fault,
    checkers: Mapping[str, Checker],
    *,
    strategies: Iterable[Strategy] = tuple(Strategy),
    budget: int = BUDGET,
    seed: int = 0,
) -> Row:
    """One fault on its scripts; a control on all. checkers: by script."""
    names = fault.scenarios or tuple(checkers)
    chosen = [checkers[name] for name in names]
    looked = look(fault, chosen)
    is_control = fault.kind is FaultKind.CONTROL
    each = min(budget, CONTROL_BUDGET) if is_control else budget
    return Row(
        fault=fault.name,
        number=fault.number,
        kind=fault.kind,
        needs=tuple(str(need) for need in fault.needs),
        origin=fault.origin,
        summary=fault.summary,
        expect=fault.expect,
        shown=None if is_control else _shown(fault, chosen[0]),
        oracles={column: _oracle_cell(fault, looked, column) for column in Look},
        strategies={
            strategy: _try(strategy, fault, chosen, budget=each, seed=seed)
            for strategy in strategies
        },
    )


def timings(fault: Fault, checker: Checker) -> dict[str, Schedule]:
    """The schedules under which oracles are compared, by name."""
    schedules = {"eager": EAGER}
    if holds := fault.holds.get(checker.scenario.name):
        schedules["held"] = parse_schedule(list(holds))
    schedules["late"] = LATE
    return schedules | {f"{lane} late": lane_late(lane) for lane in checker.lanes}


def look(fault: Fault, checkers: Sequence[Checker]) -> list[_Looked]:
    """Every run of a fault with everything that can be seen in it."""
    started = time.perf_counter()
    looked: list[_Looked] = []
    for checker in checkers:
        name = checker.scenario.name
        for timing, schedule in timings(fault, checker).items():
            run = checker.execute(schedule=schedule, fault=fault)
            findings = checker.judge(run, schedule=schedule, fault=fault).findings
            looked.append(
                _Looked(
                    scenario=name,
                    timing=timing,
                    holds=schedule.texts(),
                    signatures=_signatures(findings, run, checker, timing),
                    field=first_field(findings),
                    number=len(looked) + 1,
                    seconds=time.perf_counter() - started,
                )
            )
    return looked


def _signatures(
    findings: Sequence[Finding], run: Run, checker: Checker, timing: str
) -> dict[Look, str]:
    """What each look has to say of a run, by the first of its findings."""
    signatures: dict[Look, str] = {}
    for finding in findings:
        oracle = ORACLE_OF.get(finding.kind)
        column = Look.STOPPED if oracle is None else Look(oracle.value)
        signatures.setdefault(column, finding.signature)
    result = run.result
    if result is None or is_output_wrong(result.delivered, checker.plain, result.finished):
        text = signatures.get(Look.LOSSLESSNESS) or signatures.get(Look.STOPPED, "unfinished")
        signatures[Look.FINAL_TOKENS] = text
        if timing == "eager":
            signatures[Look.FINAL_TOKENS_NATURAL] = text
    return signatures


def first_field(findings: Sequence[Finding]) -> str | None:
    """The first field that differs from the reference."""
    found = [f.field for f in findings if f.kind is FindingKind.DIVERGENCE]
    return found[0] if found else None


def _oracle_cell(fault: Fault, looked: Sequence[_Looked], column: Look) -> OracleCell:
    runs = [one for one in looked if column is not Look.FINAL_TOKENS_NATURAL or not one.holds]
    seen = [one for one in runs if column in one.signatures]
    first = None
    if seen:
        first = Sight(
            scenario=seen[0].scenario,
            holds=seen[0].holds,
            schedules=seen[0].number,
            seconds=seen[0].seconds,
            signature=seen[0].signatures[column],
            field=seen[0].field,
            is_expected=_is_expected(fault, seen[0].field),
        )
    return OracleCell(
        runs=len(runs),
        seen=len(seen),
        first=first,
        alone=_alone(seen, column, frozenset(SPEAKING)),
        alone_without_stepwise=_alone(seen, column, frozenset(SPEAKING) - {Look.STEPWISE}),
    )


def _alone(seen: Sequence[_Looked], column: Look, speaking: frozenset[Look]) -> tuple[str, ...]:
    """Runs in which of those that may speak this one alone does."""
    return tuple(one.name for one in seen if speaking & one.signatures.keys() == {column})


def _is_expected(fault: Fault, field: str | None) -> bool | None:
    return None if field is None else field == fault.expect


def _shown(fault: Fault, checker: Checker) -> Sight | None:
    """The fault as the catalogue shows it."""
    schedule = parse_schedule(list(fault.holds.get(checker.scenario.name, ())))
    started = time.perf_counter()
    result = checker.run(schedule=schedule, fault=fault)
    seconds = time.perf_counter() - started
    return _sight(fault, result, schedules=1, seconds=seconds)


def _sight(fault: Fault, result: RunResult, *, schedules: int, seconds: float) -> Sight | None:
    """None if nothing is wrong but an order."""
    if all(finding.kind is FindingKind.CONFLICT for finding in result.findings):
        return None
    field = first_field(result.findings)
    return Sight(
        scenario=result.scenario,
        holds=result.schedule,
        schedules=schedules,
        seconds=seconds,
        signature=signature_of(result.findings) or "",
        field=field,
        is_expected=_is_expected(fault, field),
    )


class _Counted:
    """A subject that counts its runs, also those that a search cuts short."""

    def __init__(self, subject: CheckSubject) -> None:
        self._subject = subject
        self.lanes = subject.lanes
        self.made = 0

    def with_schedule(self, schedule: Schedule) -> JudgedAttempt:
        self.made += 1
        return self._subject.with_schedule(schedule)

    def with_stepper(self, stepper: Stepper) -> JudgedAttempt:
        self.made += 1
        return self._subject.with_stepper(stepper)


# Runs schedules until there are none left, or what it shows them to has seen enough.
See = Callable[[JudgedAttempt], bool]
Search = Callable[[_Counted, See, int, int], None]


def _those(schedules: Sequence[Schedule], subject: _Counted, see: See, *_: int) -> None:
    for schedule in schedules:
        if not see(subject.with_schedule(schedule)):
            return


def _lanes_late(subject: _Counted, see: See, *_: int) -> None:
    _those([lane_late(lane) for lane in subject.lanes], subject, see)


def _reversals(subject: _Counted, see: See, budget: int, seed: int) -> None:
    first = subject.with_schedule(EAGER)
    if see(first):
        holds = reversals(first.conflicts)[: budget - 1]
        _those([Schedule(holds=(hold,)) for hold in holds], subject, see)


def _dpor(subject: _Counted, see: See, budget: int, seed: int) -> None:
    explore(
        subject.with_stepper,
        classes_max=budget,
        on_result=lambda attempt, progress, steps: see(
            msgspec.structs.replace(attempt, steps=tuple(steps))
        ),
    )


def _samples(
    make: Callable[[int], Stepper], subject: _Counted, see: See, budget: int, seed: int
) -> None:
    for number in range(budget):
        noting = Noting(make(seed + number))
        attempt = subject.with_stepper(noting)
        if not see(msgspec.structs.replace(attempt, steps=tuple(noting.steps))):
            return


_SEARCHES: Mapping[Strategy, Search] = {
    Strategy.EAGER: partial(_those, (EAGER,)),
    Strategy.LATE: partial(_those, (LATE,)),
    Strategy.LANE_LATE: _lanes_late,
    Strategy.REVERSALS: _reversals,
    Strategy.DPOR: _dpor,
    Strategy.POS: partial(_samples, PosStepper),
    Strategy.RANDOM: partial(_samples, RandomStepper),
    Strategy.SYNC_EVERYWHERE: partial(_those, (EAGER,)),
}


def _try(
    strategy: Strategy, fault: Fault, checkers: Sequence[Checker], *, budget: int, seed: int
) -> StrategyCell:
    """Script by script, until a value is wrong. budget: schedules per script."""
    is_synced = strategy is Strategy.SYNC_EVERYWHERE
    launches = Launches.BLOCKING if is_synced else Launches.ASYNC
    made = 0
    flagged: int | None = None
    started = time.perf_counter()
    for checker in checkers:
        subject = _Counted(CheckSubject(checker, fault, is_audited=False, launches=launches))
        watch = _Watch(subject)
        _SEARCHES[strategy](subject, watch.see, budget, seed)
        if flagged is None and watch.flagged is not None:
            flagged = made + watch.flagged
        made += subject.made
        seconds = time.perf_counter() - started
        if watch.wrong is not None:
            kill = _sight(
                fault, as_holds(checker, watch.wrong, fault), schedules=made, seconds=seconds
            )
            return StrategyCell(schedules=made, seconds=seconds, flagged=flagged, kill=kill)
    seconds = time.perf_counter() - started
    return StrategyCell(schedules=made, seconds=seconds, flagged=flagged, kill=None)


class _Watch:
    """Sees the runs of a search: the first with a conflict, and the first that went wrong."""

    def __init__(self, subject: _Counted) -> None:
        self._subject = subject
        self.flagged: int | None = None
        self.wrong: JudgedAttempt | None = None

    def see(self, attempt: JudgedAttempt) -> bool:
        if attempt.conflicts and self.flagged is None:
            self.flagged = self._subject.made
        if attempt.is_wrong:
            self.wrong = attempt
        return not attempt.is_wrong
