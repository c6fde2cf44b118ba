"""Where operations of an engine behind an adapter may land, how many steps its run may have had,
and what a stop is known by.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from racegate.history.finding import FindingKind
from racegate.history.trace import Conflict, OpRecord
from racegate.oracles.findings import signature
from racegate.targets.adapters.answers import check_ran
from racegate.targets.adapters.landings import points_of
from racegate.targets.adapters.reader import HistoryError
from racegate.targets.adapters.target import _stop
from racegate.targets.adapters.wire import SCHEMA, HelloAnswer, Offer, RanAnswer, RunQuestion
from support import scenario


def hello(*holdable: str) -> HelloAnswer:
    return HelloAnswer(
        to=0,
        schema=SCHEMA,
        engine="e",
        version="1",
        lanes=("copy", "main", "side"),
        offers=(Offer.HOLDS,),
        holdable=holdable,
    )


def op(name: str, lane: int) -> OpRecord:
    return OpRecord(name, 1, lane, 0, (), ())


def conflict(first: str, second: str, *, lane: int = 2) -> Conflict:
    return Conflict(
        buffer="b",
        rows=1,
        first=op(first, 1),
        first_writes=True,
        second=op(second, lane),
        second_writes=False,
    )


def test_what_cannot_be_held_is_missing_and_all_others_have_points() -> None:
    raced = [conflict("copy@1", "read@2"), conflict("move@1", "read@2"), conflict("copy@1", "z@3")]
    every = points_of(raced, hello("*"))
    assert every.points == {"copy@1": ("read@2", "z@3"), "move@1": ("read@2",)}
    assert every.missing == ()
    some = points_of(raced, hello("move*"))
    assert some.points == {"move@1": ("read@2",)}
    assert some.missing == ("the engine cannot hold copy@1",)


def test_what_races_several_lanes_or_one_name_twice_is_missing() -> None:
    lanes = points_of([conflict("c@1", "r@2"), conflict("c@1", "r@3", lane=3)], hello("*"))
    assert lanes.missing == ("c@1 races several lanes, whose own order was not turned",)
    twice = points_of([conflict("c@1", "r@2"), conflict("c@1", "r@2")], hello("*"))
    assert twice.missing == ("c@1 may land inside r@2",)
    assert twice.points == {"c@1": ("r@2",)}


@pytest.mark.parametrize(("last", "steps"), [(0, 1), (3, 3), (3, 4), (0, 0), (4, 3)])
def test_a_run_has_the_steps_that_its_history_names_and_not_more_than_its_script_allows(
    last: int, steps: int
) -> None:
    """At least one, and at least as many as the number of the last."""
    script = scenario("two_row_cycle")
    names = [request.name for request in script.requests]
    told: Any = SimpleNamespace(last_step=last, ops={}, check_owners=lambda: None)
    asked = RunQuestion(id=0, scenario=script, device="cpu")

    def answer(steps: int) -> RanAnswer:
        return RanAnswer(
            to=0,
            delivered=dict.fromkeys(names, ()),
            finished=dict.fromkeys(names, "stop"),
            steps=steps,
        )

    if steps >= max(1, last):
        check_ran(asked, answer(steps), told)
        check_ran(asked, answer(script.steps_max), told)
    else:
        with pytest.raises(HistoryError, match=f"`steps` is {steps}"):
            check_ran(asked, answer(steps), told)
    with pytest.raises(HistoryError, match="allows"):
        check_ran(asked, answer(script.steps_max + 1), told)


def test_a_stop_is_known_by_its_kind_and_then_by_what_stopped_it() -> None:
    crash = _stop(FindingKind.CRASH, "exited", "gone")
    assert crash.signature == signature(str(FindingKind.CRASH), "exited")
    assert crash.signature != _stop(FindingKind.DEADLOCK, "exited", "gone").signature
    assert crash.signature != _stop(FindingKind.CRASH, "KeyError", "gone").signature
