"""Dummy steps schedule nothing, and time passes: on examples by hand, and as a law."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings

from racegate.history.observe import Boundary
from racegate.scenario.spec import Budget, Dummy, Gap, OwnScenario, Preempt
from racegate_reference.engine import Engine, run_reference
from reference_runs import NO_DRAFTS, assert_same, plans
from reference_scenarios import request, scenario, scenarios


def test_a_dummy_step_schedules_nothing_and_takes_a_frame_back() -> None:
    of = scenario(
        request(prompt_len=2, max_tokens=9),
        events=(Dummy(step=1), Dummy(step=2, rows=3)),
        depth=3,
        draft_len_max=1,
    )
    engine = Engine(of)
    tracked = engine.scheduler.requests["A"]
    seen = []
    for _ in range(5):
        engine.iterate()
        seen.append((tracked.computed, len(tracked.delivered), len(engine.frames), engine.rows))
    assert seen == [
        (2, 0, 1, ("A",)),
        (2, 1, 0, ()),  # an empty plan processes the oldest frame and takes the rows
        (2, 1, 0, ()),
        (3, 1, 1, ("A",)),  # the drafts of step 0 are gone
        (5, 1, 2, ("A",)),
    ]
    steps = [(o.step, o.boundary) for o in engine.observations]
    # Nothing is observed of the dummy steps, only the frame that came back in one.
    assert steps[4] == (0, Boundary.PROCESSED)
    assert {step for step, _ in steps} == {0, 3, 4}
    plan = plans(run_reference(of))
    assert (plan[3], plan[4]) == ((("A", 1, 0),), (("A", 2, 1),))


def test_what_else_happens_in_a_dummy_step_happens() -> None:
    run = run_reference(
        scenario(
            request("A", prompt_len=2, max_tokens=4),
            request("B", prompt_len=3, max_tokens=2, arrive=2),
            events=(Dummy(step=2), Preempt(step=2, request="A"), Gap(step=3, request="B")),
            depth=1,
            **NO_DRAFTS,
        )
    )
    # A was preempted with two tokens delivered, before B arrived behind it.
    assert plans(run) == {
        0: (("A", 2, 0),),
        1: (("A", 1, 0),),
        3: (("A", 4, 0),),
        4: (("A", 1, 0), ("B", 3, 0)),
        5: (("B", 1, 0),),
    }
    assert run.unmet_events == ()


def test_a_dummy_step_overrides_a_budget() -> None:
    run = run_reference(
        scenario(
            request(prompt_len=5, max_tokens=2),
            events=(Budget(step=0, tokens=4), Dummy(step=0), Budget(step=1, tokens=3)),
            depth=1,
            **NO_DRAFTS,
        )
    )
    assert plans(run) == {1: (("A", 3, 0),), 2: (("A", 2, 0),), 3: (("A", 1, 0),)}
    assert run.unmet_events == ("budget @0",)


def test_a_dummy_step_after_the_end_is_never_run() -> None:
    idle = scenario(request(prompt_len=2, max_tokens=1), events=(Dummy(step=0), Dummy(step=9)))
    run = run_reference(idle)
    # Prompt in step 1; the plan of step 2 is empty, so the frame is processed there.
    assert (run.steps, run.unmet_events) == (3, ("dummy @9",))


@given(scenarios())
@settings(max_examples=60)
def test_a_dummy_step_is_a_step_without_budget(of: OwnScenario) -> None:
    dummies = {event.step for event in of.events if isinstance(event, Dummy)}
    # A dummy is added, so that there always is one.
    dummies.add(2)
    rest = tuple(
        event
        for event in of.events
        if not isinstance(event, Dummy)
        and not (isinstance(event, Budget) and event.step in dummies)
    )
    first, second = (
        run_reference(msgspec.structs.replace(of, events=(*rest, *idle)))
        for idle in (
            tuple(Dummy(step=step) for step in dummies),
            tuple(Budget(step=step, tokens=0) for step in dummies),
        )
    )
    assert first.steps == second.steps
    assert dummies.isdisjoint(plans(first))
    assert_same(first, second)
