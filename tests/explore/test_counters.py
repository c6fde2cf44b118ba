"""What a run says it exercised is what its observations show: an expectation that a counter meets
by counting too much would be worth nothing.
"""

from __future__ import annotations

from collections import Counter

import pytest

from racegate.check.checker import Checker
from racegate.explore.features.facts import SeenEntry, SeenPreempt, facts_of
from racegate.scenario.settings import EngineSpec
from racegate.scenario.spec import Budget, OwnScenario, Preempt, Request
from support import checker

SCRIPTS = (
    "steady-mixed-accepts",
    "all-rejected-all-accepted",
    "stop-inside-accepted-run",
    "chunked-prefill-backup-token",
    "mtp-drafter",
    "two-row-cycle",
)


def processed(subject: Checker) -> tuple[Counter[str], list[SeenEntry]]:
    """The run's counters, and its entries up to the one with which each request ended."""
    run = subject.execute()
    assert run.result is not None
    left = {name: len(tokens) for name, tokens in run.result.delivered.items()}
    entries = []
    for step in facts_of(subject.scenario, run).steps:
        for entry in step.entries:
            if left[entry.request] > 0:
                entries.append(entry)
                left[entry.request] -= 0 if entry.is_discarded else entry.accepted
    return Counter(run.result.counters), entries


@pytest.mark.parametrize("name", SCRIPTS)
def test_accepts_and_rejects_are_those_of_the_steps(name: str) -> None:
    counters, entries = processed(checker(name))
    drafted = [entry for entry in entries if entry.drafts and not entry.is_discarded]
    assert drafted
    whole = sum(entry.accepted == 1 + entry.drafts for entry in drafted)
    assert counters["full_accepts"] == whole
    assert counters["rejections"] == len(drafted) - whole
    assert counters["full_rejects"] == sum(entry.accepted == 1 for entry in drafted)


def test_masked_rows_are_the_constrained_ones_that_draw() -> None:
    subject = checker("constrained-rows")
    run = subject.execute()
    assert run.result is not None
    modulus = {request.name: request.grammar_modulus for request in subject.scenario.requests}
    drawing = [
        entry
        for step in facts_of(subject.scenario, run).steps
        for entry in step.entries
        if modulus[entry.request] and not entry.is_discarded
    ]
    assert run.result.counters["masked_rows"] == len(drawing) > 0


@pytest.mark.parametrize("depth", [1, 2])
def test_a_preemption_is_told_once_however_many_steps_without_a_plan_follow(depth: int) -> None:
    """Of such a step nothing is observed: what an event did then is known from the scenario."""
    events = (Preempt(step=3, request="A"), Budget(step=3, tokens=0), Budget(step=4, tokens=0))
    request = Request(name="A", arrive=0, prompt=(1, 2, 3), max_tokens=9)
    script = OwnScenario(
        name="idle", title="", requests=(request,), events=events, engine=EngineSpec(depth=depth)
    )
    found = facts_of(script, Checker(script).execute())
    assert found.preemptions == (SeenPreempt(step=3, request="A", is_forced=True),)
    assert [entry.step for entry in found.entries if entry.hit is not None] == [0, 5]
