"""A race of two streams, judged as SGLang's are: by landings, and against plain decoding."""

from __future__ import annotations

import msgspec
import pytest
from rich.console import Console

from racegate.history.finding import Verdict
from racegate.history.schedule import Hold
from racegate.interpose.outcome import Ending, Plan
from racegate.report.targets.releases import print_engine_verdict
from racegate.scenario.expect import Expect
from racegate.scenario.spec import Abort, Gap, Pause, Request, Scenario
from racegate.targets.common.judge import ReleaseVerdict, judge, judge_under
from racegate.targets.common.search import Effect
from racegate.targets.common.wire import ReleaseRun
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.engine import WithPlain
from racegate.targets.sglang.wire import REQUESTS_MAX, TOKENS_MAX, ModelKind, Repair
from small_scheduler import TRUE, Copied, SmallScheduler

CELL = SchedulerCell(release="1.0", model=ModelKind.HYBRID, without=(Repair.WAR_BARRIER,))
REQUEST = Request(name="A", arrive=0, prompt=(1,), max_tokens=1)
SCENARIO = Scenario(name="small", title="one chunk", requests=(REQUEST,))
HOLD = Hold(op="kernel@write_state#1")


def judged(copied: Copied, scenario: Scenario = SCENARIO) -> ReleaseVerdict:
    return judge(WithPlain(SmallScheduler(copied)), scenario, CELL)


def test_a_copy_behind_a_barrier_leaves_nothing_to_try() -> None:
    found = judged(Copied.BEHIND_BARRIER)
    assert found.verdict is Verdict.PROVED
    assert found.search is None


def test_a_copy_of_a_state_in_flight_is_found_wrong() -> None:
    found = judged(Copied.AT_ONCE)
    assert found.verdict is Verdict.DIVERGENT
    assert found.search is not None
    conflict = found.search.races[0]
    assert conflict.effect is Effect.WRONG
    assert conflict.landing is not None
    assert conflict.landing.holds == (HOLD,)
    assert conflict.landing.what.delivered == {"A": (0,)}
    assert conflict.landing.what.plain == {"A": (TRUE,)}


def test_a_hold_is_judged_against_plain_decoding_too() -> None:
    engine = WithPlain(SmallScheduler(Copied.AT_ONCE))
    assert judge_under(engine, SCENARIO, CELL, (HOLD,)).verdict is Verdict.DIVERGENT


def test_each_request_is_decoded_alone_once() -> None:
    scheduler = SmallScheduler(Copied.BEHIND_BARRIER)
    engine = WithPlain(scheduler)
    for _ in range(3):
        assert engine.run(SCENARIO, Plan()).plain == {"A": (TRUE,)}
    assert scheduler.runs == 4


def test_a_request_that_is_given_up_is_the_beginning_of_plain_decoding() -> None:
    class Cut(SmallScheduler):
        """Delivers nothing of a request that is given up."""

        def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
            told = super().run(scenario, plan)
            is_cut = bool(scenario.events)
            return msgspec.structs.replace(told, delivered={"A": ()}) if is_cut else told

    given_up = msgspec.structs.replace(SCENARIO, events=(Abort(step=1, request="A"),))
    told = WithPlain(Cut(Copied.BEHIND_BARRIER)).run(given_up, Plan())
    assert told.plain == told.delivered == {"A": ()}


def test_a_request_is_stopped_by_what_plain_decoding_says_in_that_place() -> None:
    asked: list[Request] = []

    class Saying:
        """Says the same of a request, up to the token that stops it."""

        def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
            (request,) = scenario.requests
            asked.append(request)
            said = (7, 8, 9, 8, 6)
            if request.stop_token is not None:
                said = said[: said.index(request.stop_token) + 1]
            return ReleaseRun(ending=Ending.FINISHED, delivered={"A": said})

    def stopped(after: int) -> ReleaseRun:
        request = msgspec.structs.replace(REQUEST, max_tokens=5, stop_after=after)
        scenario = msgspec.structs.replace(SCENARIO, requests=(request,))
        return WithPlain(Saying()).run(scenario, Plan())

    assert stopped(3).delivered == stopped(3).plain == {"A": (7, 8, 9)}
    assert stopped(4).delivered == stopped(4).plain == {"A": (7, 8)}  # said before
    assert {request.stop_after for request in asked} == {None}


def test_a_run_that_was_lost_has_no_plain_tokens() -> None:
    class Lost(SmallScheduler):
        """Ends without a word."""

        def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
            return ReleaseRun(ending=Ending.LOST)

    found = judge(WithPlain(Lost(Copied.AT_ONCE)), SCENARIO, CELL)
    assert found.verdict is Verdict.INCONCLUSIVE


def test_where_plain_decoding_is_lost_nothing_is_called_wrong() -> None:
    class LostAlone(SmallScheduler):
        """Loses its process in plain decoding."""

        def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
            if plan == Plan(is_recording=False):
                return ReleaseRun(ending=Ending.LOST, message="the process ended")
            return super().run(scenario, plan)

    found = judge(WithPlain(LostAlone(Copied.BEHIND_BARRIER)), SCENARIO, CELL)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.message == "plain decoding of request A: the process ended"


def test_what_was_not_exercised_is_no_pass() -> None:
    expecting = msgspec.structs.replace(SCENARIO, expect=Expect(prefix_hits=1))
    assert judged(Copied.BEHIND_BARRIER, expecting).verdict is Verdict.INCONCLUSIVE


def test_the_report_says_which_scheduler_and_how_to_see_it_again() -> None:
    console = Console(width=300, record=True, file=None, quiet=False)
    with console.capture() as capture:
        print_engine_verdict(console, judged(Copied.AT_ONCE), "small.toml")
    text = capture.get()
    assert "small on SGLang 1.0 hybrid without war-barrier" in text
    assert "request A delivers [0], plain decoding [5]" in text
    command = "racegate sglang run small.toml --release 1.0 --model hybrid --without war-barrier"
    assert f"{command} --hold 'kernel@write_state#1 until forced'" in text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"events": (Gap(step=1, request="A"),)}, "it needs gap"),
        (
            {"expect": Expect(rejections=1)},
            "it expects rejections, and nothing is drafted (--model mtp does)",
        ),
        ({"pauses": (Pause(step=1),)}, "it pauses the engine, which is done for vLLM alone"),
        ({"requests": (REQUEST,) * (REQUESTS_MAX + 1)}, "it has more than 8 requests"),
        (
            {"requests": (msgspec.structs.replace(REQUEST, temperature=1.0),)},
            "request A samples at random or under a grammar",
        ),
        (
            {"requests": (msgspec.structs.replace(REQUEST, stop_token=3),)},
            "request A has a stop token: only stop_after is known here",
        ),
        (
            {"requests": (msgspec.structs.replace(REQUEST, max_tokens=TOKENS_MAX),)},
            f"request A is longer than {TOKENS_MAX} tokens",
        ),
    ],
)
def test_what_cannot_be_run_says_why(changes: dict[str, object], reason: str) -> None:
    found = judged(Copied.AT_ONCE, msgspec.structs.replace(SCENARIO, **changes))
    assert found.refused == reason
    assert found.verdict is Verdict.INCONCLUSIVE
