"""The harm of a witness in other scenarios, on a small engine with planted races."""

from __future__ import annotations

import msgspec
from test_vllm_search import CELL, SCENARIO

from racegate.check.repro.minimise import smallest_scenario
from racegate.scenario.spec import Request
from racegate.targets.common.judge import judge
from racegate.targets.common.wire import Wrong
from racegate.targets.common.witnesses.again import shown_again
from racegate.targets.common.witnesses.witness import witnesses_of
from racegate.targets.vllm.witness import EngineWitness
from small_engine import Served, SmallEngine, Wait


def found() -> EngineWitness:
    scenario = msgspec.structs.replace(
        SCENARIO,
        requests=(*SCENARIO.requests, Request(name="B", arrive=2, prompt=(1, 2), max_tokens=3)),
    )
    judged = judge(Served(SmallEngine(Wait.BEHIND)), scenario, CELL)
    return witnesses_of(EngineWitness, judged, scenario)[0]


def test_a_landing_with_the_same_harm_is_found_in_another_scenario() -> None:
    witness = found()
    again = shown_again(Served(SmallEngine(Wait.BEHIND)), witness, SCENARIO)
    assert again is not None
    assert again == msgspec.structs.replace(witness, scenario=SCENARIO)


def test_other_engines_do_not_show_it() -> None:
    for wait in (Wait.BEFORE, Wait.DEAD):
        assert shown_again(Served(SmallEngine(wait)), found(), SCENARIO) is None


def test_another_harm_of_the_same_operation_is_none() -> None:
    wrong = (Wrong(step=1, what="blocks to zero", used=[1], true=[2]),)
    other = msgspec.structs.replace(found(), wrong=wrong)
    assert shown_again(Served(SmallEngine(Wait.BEHIND)), other, SCENARIO) is None


def test_what_the_harm_does_not_need_is_left_out() -> None:
    witness = found()
    engine = Served(SmallEngine(Wait.BEHIND))
    small = smallest_scenario(
        witness.scenario, lambda one: shown_again(engine, witness, one) is not None
    )
    assert small.is_minimal
    assert [len(request.prompt) for request in small.case.scenario.requests] == [1]
