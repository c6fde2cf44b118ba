"""Generated scenarios, fault-free: all proved, none skipped. The shard is part of the seed."""

from __future__ import annotations

import secrets

import msgspec
import pytest
from hypothesis import Phase, event, given, seed, settings, target
from hypothesis.stateful import run_state_machine_as_test

from engine_machine import EngineMachine
from racegate.check.checker import Checker
from racegate.check.repro.search import search
from racegate.explore.strategies import held_scenarios, scenarios
from racegate.faults.catalogue import find_fault
from racegate.history.finding import Verdict
from racegate.history.schedule import Schedule
from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import OwnScenario
from support import IS_NIGHTLY

SHARDS = 4
EXAMPLES = settings().max_examples if IS_NIGHTLY else 15


def shard_seed(shard: int) -> int:
    """The same examples on every run of `ci`, fresh ones under the other profiles."""
    return (20_000 if settings().derandomize else secrets.randbits(32)) + shard


@pytest.mark.parametrize("shard", range(SHARDS))
def test_generated_scenarios_are_proved(shard: int) -> None:
    seen = []

    @seed(shard_seed(shard))
    @settings(max_examples=EXAMPLES)
    @given(held_scenarios())
    def law(case: tuple[OwnScenario, Schedule]) -> None:
        scenario, schedule = case
        checker = Checker(scenario)
        result = search(checker)
        # A drawn scenario may be one in which every request is aborted before it starts.
        verdict = Verdict.PROVED if result.stats.boundaries else Verdict.INCONCLUSIVE
        assert result.verdict is verdict, result.findings[:1]
        held = checker.run(schedule=schedule)
        assert held.findings == ()
        exercised = result.stats.exercised
        target(float(exercised["row_moves"] * exercised["overlapped_ops"]), label="moves x overlap")
        event(f"cache {scenario.engine.cache_mode}, drafter {scenario.engine.drafter}")
        seen.append(scenario)

    law()
    assert len(seen) >= EXAMPLES


def _drawn(shard: int) -> set[str]:
    drawn: set[str] = set()

    @seed(shard_seed(shard))
    @settings(max_examples=60)
    @given(scenarios())
    def collect(scenario: OwnScenario) -> None:
        drawn.add(repr(scenario))

    collect()
    return drawn


def test_shards_do_not_repeat_each_other() -> None:
    first, second = _drawn(0), _drawn(1)
    assert len(first) > 30
    assert len(first & second) <= 3  # the simplest examples come up in every shard


@pytest.mark.parametrize("fault", ["correction-partial-fields", "accepted-not-reset-first-spec"])
def test_generated_scenarios_find_logic_faults(fault: str) -> None:
    # A law that cannot fail proves nothing.
    @seed(1)
    @settings(max_examples=60, phases=(Phase.generate,))
    @given(scenarios())
    def law(scenario: OwnScenario) -> None:
        assert not Checker(scenario).run(fault=find_fault(fault)).findings

    with pytest.raises(AssertionError):
        law()


MACHINE = settings(max_examples=15, stateful_step_count=25)


@pytest.mark.parametrize("cache_mode", CacheMode)
def test_whatever_a_serving_engine_sees(cache_mode: CacheMode) -> None:
    class Machine(EngineMachine):
        engine = msgspec.structs.replace(EngineMachine.engine, cache_mode=cache_mode)

    run_state_machine_as_test(Machine, settings=MACHINE)


def test_the_machine_can_fail() -> None:
    class Machine(EngineMachine):
        fault = find_fault("correction-partial-fields")

    quick = settings(MACHINE, phases=(Phase.generate,))
    with pytest.raises(AssertionError, match="inputs"):
        run_state_machine_as_test(Machine, settings=quick)
