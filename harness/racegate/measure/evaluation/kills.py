"""Kills: what shows one seeded fault. Which oracles speak of it, and under which schedules; how
many schedules each strategy needs until a value is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from racegate.check.checker import Checker
from racegate.check.repro.search import BUDGET
from racegate.faults.fault import Fault, FaultKind
from racegate.history.finding import ORACLE_OF, Finding
from racegate.history.run import Run
from racegate.history.schedule import EAGER, LATE, Schedule, lane_late, parse_schedule
from racegate.measure.evaluation.cells import (
    SPEAKING,
    Look,
    MatrixRow,
    OracleCell,
    Sight,
    Strategy,
    first_field,
    is_expected,
    sight_of,
)
from racegate.measure.evaluation.strategies import try_strategy
from racegate.oracles.losslessness import is_output_wrong

# A control is run on all scripts of the gate, so less often on each.
CONTROL_BUDGET = 2


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
) -> MatrixRow:
    """One fault on its scripts; a control on all. checkers: by script."""
    names = fault.scenarios or tuple(checkers)
    chosen = [checkers[name] for name in names]
    looked = look(fault, chosen)
    is_control = fault.kind is FaultKind.CONTROL
    each = min(budget, CONTROL_BUDGET) if is_control else budget
    return MatrixRow(
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
            strategy: try_strategy(strategy, fault, chosen, budget=each, seed=seed)
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
            is_expected=is_expected(fault, seen[0].field),
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


def _shown(fault: Fault, checker: Checker) -> Sight | None:
    """The fault as the catalogue shows it."""
    schedule = parse_schedule(list(fault.holds.get(checker.scenario.name, ())))
    started = time.perf_counter()
    result = checker.run(schedule=schedule, fault=fault)
    seconds = time.perf_counter() - started
    return sight_of(fault, result, schedules=1, seconds=seconds)
