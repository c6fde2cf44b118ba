"""Every edge kept at a wrong place is found by the gate's scenarios, or shown to be harmless."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.engine.state.edges import EDGES
from racegate.faults.mutations import Mutation, MutationOperator
from racegate.history.finding import FindingKind
from racegate.history.trace import Trace
from racegate.measure.evaluation.mutate import (
    Dropped,
    Fate,
    MutationReport,
    as_fault,
    judge,
    mutations_of,
    waits_for,
)
from support import IS_NIGHTLY, NAMES, checker

COMMITTED = Path(__file__).parents[3] / "reports" / "faults" / "mutants.json"
ONE_PER_EDGE = {edge.name for edge in EDGES}


@cache
def traces() -> dict[str, Trace]:
    return {name: checker(name).execute().trace for name in NAMES}


@cache
def killers() -> dict[str, str | None]:
    """Which scenario killed a mutant when the committed report was made."""
    report = msgspec.json.decode(COMMITTED.read_bytes(), type=MutationReport)
    return {result.mutant: result.scenario for result in report.mutants}


def asked(mutation: Mutation, checkers: list[Checker]) -> list[Checker]:
    """What killed it last time goes first, then what killed most: nothing else is asked of a mutant
    that is killed. One that was not killed is looked at in the scripts that kill others and in
    every fifth, nightly in all.
    """
    killer = killers().get(mutation.text)
    kills = Counter(killers().values())

    def rank(each: Checker) -> tuple[bool, int]:
        return each.scenario.name != killer, -kills[each.scenario.name]

    ranked = sorted(checkers, key=rank)
    if killer is not None or IS_NIGHTLY:
        return ranked
    return [each for at, each in enumerate(ranked) if kills[each.scenario.name] or at % 5 == 0]


@cache
def mutations() -> list[Mutation]:
    return mutations_of(traces().values())


def test_every_edge_is_mutated_in_every_way_it_can_be() -> None:
    assert {mutation.edge for mutation in mutations()} == ONE_PER_EDGE
    for edge in ONE_PER_EDGE:
        operators = {m.operator for m in mutations() if m.edge == edge}
        always = {
            MutationOperator.DROP,
            MutationOperator.RECORD_EARLY,
            MutationOperator.RECORD_LATE,
            MutationOperator.WAIT_LATE,
        }
        assert operators >= always
    assert {m.operator for m in mutations()} == set(MutationOperator)


@pytest.mark.parametrize("edge", sorted(ONE_PER_EDGE))
def test_no_mutant_survives(edge: str) -> None:
    checkers = [checker(name) for name, trace in traces().items() if waits_for(trace, edge)]
    assert checkers
    dropped = Dropped()
    for mutation in (m for m in mutations() if m.edge == edge):
        result = judge(mutation, asked(mutation, checkers), dropped=dropped)
        if result.fate is not Fate.KILLED and not result.pairs:  # none of them showed anything
            result = judge(mutation, checkers, dropped=dropped)
        assert result.fate in (Fate.KILLED, Fate.EQUIVALENT), result
        if result.fate is Fate.EQUIVALENT:
            assert result.pairs > 0 and result.path, "nothing was shown to be ordered"
        else:
            assert result.signature is not None
            assert not result.signature.startswith("crash/"), result
        if mutation.operator is MutationOperator.DROP:
            assert result.fate is Fate.KILLED, f"{edge} is implied everywhere"


def test_a_dropped_edge_is_named_by_what_finds_it() -> None:
    mutation = Mutation(edge="accepted-landed", operator=MutationOperator.DROP)
    result = checker("align-boundary-and-prefix-hit").run(fault=as_fault(mutation))
    named = {f.edge for f in result.findings if f.kind is FindingKind.CONFLICT}
    assert named == {"accepted-landed"}


def test_an_edge_waited_for_too_late_leaves_what_it_should_order() -> None:
    """docs/mechanism.md#landings: the wait that stands behind the row moves."""
    late = Mutation(
        edge="input-prep-guard",
        operator=MutationOperator.WAIT_LATE,
        event="input_preparation",
        place="reorder",
    )
    result = checker("finish-and-condense").run(fault=as_fault(late))
    conflicts = [f for f in result.findings if f.kind is FindingKind.CONFLICT]
    assert {f.other.partition("@")[0] for f in conflicts if f.other} <= {
        "host:update_states",
        "host:condense",
        "host:reorder",
    }
    assert conflicts
