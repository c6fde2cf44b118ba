"""From conflicts to landings, on a small engine with planted races."""

from __future__ import annotations

import io
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from racegate.history.finding import Verdict
from racegate.history.schedule import Hold
from racegate.interpose.outcome import DeviceKind, Ending, Plan
from racegate.report.targets.releases import print_engine_verdict
from racegate.scenario.expect import Expect
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.judge import (
    NOT_RECORDED,
    RUNS_MAX,
    Gaps,
    ReleaseVerdict,
    judge,
    judge_under,
)
from racegate.targets.common.result import replay_command
from racegate.targets.common.search import Effect, search
from racegate.targets.common.sensitivity import Pulse
from racegate.targets.common.wire import Observed, ReleaseRun
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode
from small_engine import Served, SmallEngine, Wait

CELL = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE)
SCENARIO = Scenario(
    name="small",
    title="one step",
    requests=(Request(name="A", arrive=0, prompt=(1,), max_tokens=1),),
    expect=Expect(reorder_moves=1),
)


def judged(wait: Wait, scenario: Scenario = SCENARIO, *, runs_max: int = 100) -> ReleaseVerdict:
    engine = Served(SmallEngine(wait))
    return judge(engine, scenario, CELL, runs_max=runs_max)


def test_a_wait_before_the_move_leaves_nothing_to_try() -> None:
    found = judged(Wait.BEFORE)
    assert found.verdict is Verdict.PROVED
    assert found.search is None


def test_a_wait_behind_the_move_is_found_wrong() -> None:
    """The value was waited for, and is another row's all the same."""
    found = judged(Wait.BEHIND)
    assert found.verdict is Verdict.DIVERGENT
    assert found.search is not None and found.search.is_complete
    wrong = [c for c in found.search.races if c.effect is Effect.WRONG]
    assert wrong
    landing = wrong[0].landing
    assert landing is not None and landing.what.wrong[0].true == 1


def test_a_landing_is_tried_in_every_gap() -> None:
    base = SmallEngine(Wait.BEHIND).run(Plan())
    tried: list[Plan] = []

    def run(plan: Plan) -> ReleaseRun:
        tried.append(plan)
        return SmallEngine(Wait.BEHIND).run(plan)

    search(SimpleNamespace(run=run), base, Gaps(), runs_max=RUNS_MAX)
    untils = [hold.until.partition("@")[0] for plan in tried for hold in plan.holds]
    assert untils == ["forced", "host write counts.cpu"]


def test_a_dead_copy_is_benign() -> None:
    found = judged(Wait.DEAD)
    assert found.verdict is Verdict.BENIGN
    assert found.text == "BENIGN in each of 2 landings of one operation; combinations not tried"
    assert found.search is not None
    assert {c.effect for c in found.search.races} == {Effect.BENIGN}


def test_too_few_runs_are_no_proof() -> None:
    found = judged(Wait.DEAD, runs_max=1)
    assert found.verdict is Verdict.CONFLICT
    assert found.search is not None and not found.search.is_complete
    console = Console(width=200, file=io.StringIO())
    print_engine_verdict(console, found, "small.toml")
    assert isinstance(console.file, io.StringIO)
    assert "not every landing was tried: runs were 1, the most" in console.file.getvalue()


def test_accesses_that_nobody_places_leave_landings_untried() -> None:
    base = SmallEngine(Wait.DEAD).run(Plan())
    kind = "pinned memory touched below Python (the first byte of each touch)"
    raw = msgspec.structs.replace(base, not_seen={kind: 1})
    found = search(SmallEngine(Wait.DEAD), raw, Gaps(), runs_max=RUNS_MAX)
    assert {c.effect for c in found.races} == {Effect.UNKNOWN}


def test_a_run_that_was_cut_off_says_nothing_of_its_landing() -> None:
    base = SmallEngine(Wait.BEHIND).run(Plan())
    cut = ReleaseRun(ending=Ending.LOST, message="ended with exit code -11")
    found = search(SimpleNamespace(run=lambda plan: cut), base, Gaps(), runs_max=RUNS_MAX)
    assert not found.is_complete
    assert found.limits == ("ended with exit code -11",)
    assert {c.effect for c in found.races} == {Effect.UNKNOWN}


def test_what_was_not_exercised_is_no_pass() -> None:
    expecting = msgspec.structs.replace(SCENARIO, expect=Expect(condense_moves=1))
    found = judged(Wait.BEFORE, expecting)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.unmet == ("condense_moves: 0, the scenario expects at least 1",)


def test_a_found_landing_runs_again() -> None:
    found = judged(Wait.BEHIND)
    assert found.search is not None
    landing = next(c.landing for c in found.search.races if c.landing is not None)
    again = judge_under(Served(SmallEngine(Wait.BEHIND)), SCENARIO, CELL, landing.holds)
    assert again.verdict is Verdict.DIVERGENT
    assert again.shown.wrong == landing.what.wrong


NOWHERE = (Hold(op="d2h nowhere@nothing#1"),)


def test_one_hold_that_changes_nothing_leaves_a_conflict_open() -> None:
    """What the recorded run has is asked with a hold too: its conflicts, and what it exercised."""
    base = SmallEngine(Wait.DEAD).run(Plan())
    hold = Hold(op=base.findings[0].pairs[0][0])
    found = judge_under(Served(SmallEngine(Wait.DEAD)), SCENARIO, CELL, (hold,))
    assert (found.verdict, found.unmet) == (Verdict.CONFLICT, ())
    assert found.text == "CONFLICT; 1 schedule tried, without harm"
    expecting = msgspec.structs.replace(SCENARIO, expect=Expect(condense_moves=1))
    calm = judge_under(Served(SmallEngine(Wait.BEFORE)), expecting, CELL, (hold,))
    assert calm.verdict is Verdict.INCONCLUSIVE
    assert calm.unmet[-1] == "condense_moves: 0, the scenario expects at least 1"


def test_a_dead_observation_is_no_pass_with_a_hold_either() -> None:
    engine = Served(SmallEngine(Wait.BEFORE))
    dead = {Observed.ACCEPTED: Pulse.DEAD}
    hold = (Hold(op=SmallEngine(Wait.DEAD).run(Plan()).findings[0].pairs[0][0]),)
    assert judge_under(engine, SCENARIO, CELL, hold).verdict is Verdict.PROVED
    found = judge_under(engine, SCENARIO, CELL, hold, sensitivity=dead)
    assert found.verdict is Verdict.INCONCLUSIVE


def test_on_a_gpu_nobody_knows_what_races() -> None:
    engine = Served(SmallEngine(Wait.DEAD))
    hold = Hold(op=SmallEngine(Wait.DEAD).run(Plan()).findings[0].pairs[0][0])
    found = judge_under(engine, SCENARIO, CELL, (hold,), kind=DeviceKind.CUDA)
    assert not any(plan.is_recording for plan in engine.plans)
    assert (found.verdict, found.unmet) == (Verdict.INCONCLUSIVE, (NOT_RECORDED,))


@pytest.mark.parametrize(
    ("wait", "verdict"),
    [(Wait.DEAD, Verdict.CONFLICT), (Wait.BEFORE, Verdict.INCONCLUSIVE)],
)
def test_a_hold_of_nothing_tries_nothing(wait: Wait, verdict: Verdict) -> None:
    found = judge_under(Served(SmallEngine(wait)), SCENARIO, CELL, NOWHERE)
    assert (found.verdict, found.tried.number) == (verdict, 0)
    assert found.unmet == ("hold 'd2h nowhere@nothing#1 until forced' was not realised",)


@pytest.mark.parametrize(
    ("ending", "verdict"),
    [
        (Ending.NOT_MODELLED, Verdict.INCONCLUSIVE),
        (Ending.TIMED_OUT, Verdict.INCONCLUSIVE),
        (Ending.LOST, Verdict.INCONCLUSIVE),
        (Ending.FAILED, Verdict.DIVERGENT),
    ],
)
def test_a_run_that_does_not_finish(ending: Ending, verdict: Verdict) -> None:
    told = ReleaseRun(ending=ending, exit_code=1, message="why")
    served = Served(SmallEngine(Wait.DEAD), told)
    found = judge(served, SCENARIO, CELL)
    assert (found.verdict, found.message, len(served.plans)) == (verdict, "why", 1)


def test_the_report_names_the_landing() -> None:
    found = judged(Wait.BEHIND)
    console = Console(width=300, record=True, file=None, quiet=False)
    with console.capture() as capture:
        print_engine_verdict(console, found, "small.toml")
    text = capture.get()
    assert "step 1: count: 4 used, 1 true" in text
    assert "racegate vllm run small.toml --release 1.0 --runner v1 --cache-mode none" in text
    assert text.rstrip().splitlines()[-1].startswith("DIVERGENT")


def test_a_replay_command_is_one_line_on_any_terminal() -> None:
    found = judged(Wait.BEHIND)
    assert found.search is not None
    holds = next(c.landing.holds for c in found.search.races if c.landing is not None)
    console = Console(width=40, file=None)
    with console.capture() as capture:
        print_engine_verdict(console, found, "small.toml")
    assert replay_command(found, "small.toml", holds) in capture.get()


def test_a_replay_command_quotes_its_holds() -> None:
    found = judged(Wait.BEHIND)
    text = replay_command(found, "s.toml", (Hold(op="d2h counts.cpu@_step#1"),))
    assert text.endswith("--hold 'd2h counts.cpu@_step#1 until forced'")
