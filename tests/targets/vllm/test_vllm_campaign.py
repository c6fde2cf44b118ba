"""Scenarios from seeds, and a campaign over them on the small engine."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from racegate.history.finding import Verdict
from racegate.interpose.outcome import Plan
from racegate.scenario.spec import Request, Scenario
from racegate.scenario.validation import validate
from racegate.targets.common.wire import ReleaseRun
from racegate.targets.common.witnesses.witness import write_witnesses
from racegate.targets.vllm.campaign import search_seeds
from racegate.targets.vllm.campaign_report import print_campaign
from racegate.targets.vllm.cell import Cell, cannot_run
from racegate.targets.vllm.generate import free_in, scenario_of
from racegate.targets.vllm.wire import ModelRunner, StateMode
from racegate.targets.vllm.witness import read_witness
from small_engine import SmallEngine, Wait

CELL = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE)


class Costly:
    """A small engine of which every run takes a second. broken: the seed of a faulty one"""

    def __init__(self, broken: tuple[int, ...]) -> None:
        self.broken = broken
        self.runs = 0
        self.cpu_s = 0.0

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        """As `Engine.run` of the client."""
        self.runs += 1
        self.cpu_s += 1.0
        is_broken = int(scenario.name.removeprefix("seed_")) in self.broken
        return SmallEngine(Wait.BEHIND if is_broken else Wait.DEAD).run(plan)


@given(st.integers(0, 100_000))
def test_a_drawn_scenario_can_be_run(seed: int) -> None:
    scenario = scenario_of(seed)
    assert cannot_run(scenario) == ""
    assert scenario == scenario_of(seed)
    assert len({request.name for request in scenario.requests}) == len(scenario.requests)
    assert validate(scenario) == scenario


def test_seeds_differ() -> None:
    assert len({msgspec.json.encode(scenario_of(seed).requests) for seed in range(50)}) == 50


def test_others_come_in_where_the_first_row_becomes_free() -> None:
    scenarios = [scenario_of(seed) for seed in range(50)]
    meeting = [s for s in scenarios if _arrivals(s) <= {free_in(s.requests[0]) - n for n in (1, 2)}]
    assert 25 <= len(meeting) < 50
    assert any(len(_arrivals(scenario)) == 2 for scenario in meeting)


def _arrivals(scenario: Scenario) -> set[int]:
    return {request.arrive for request in scenario.requests[1:]}


def test_a_row_is_free_later_if_more_than_one_token_was_missing() -> None:
    request = Request(name="A", arrive=2, prompt=(5, 6), max_tokens=9, accepts=(4,))
    assert free_in(request) == 7, "tokens in steps 3, 4 and 5; step 6 was planned by then"
    assert free_in(msgspec.structs.replace(request, max_tokens=6)) == 6
    assert free_in(msgspec.structs.replace(request, max_tokens=1)) == 4


def test_a_kind_of_harm_is_witnessed_once(tmp_path: Path) -> None:
    found = search_seeds(Costly(broken=(1, 2)), CELL, range(4), sensitivity={}, runs_max=100)
    verdicts = [one.verdict for one in found.seeds]
    assert verdicts == [Verdict.BENIGN, Verdict.DIVERGENT, Verdict.DIVERGENT, Verdict.BENIGN]
    assert [witness.scenario.name for witness in found.witnesses] == ["seed_1"]
    assert found.seeds[1].harm == ("d2h counts.cpu@_step",)
    assert found.runs_per_minute == 60 and found.runs == found.cpu_s
    path = write_witnesses(tmp_path, list(found.witnesses))[0]
    assert read_witness(path) == found.witnesses[0]


def test_the_campaign_is_told() -> None:
    found = search_seeds(Costly(broken=(1,)), CELL, range(3), sensitivity={}, runs_max=100)
    console = Console(width=200)
    with console.capture() as capture:
        print_campaign(console, found)
    text = capture.get()
    assert "HARM d2h counts.cpu@_step, first with seed 1" in text
    assert f"3 scenarios, {found.runs} runs" in text
