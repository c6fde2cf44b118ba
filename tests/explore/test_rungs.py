"""What the ladder tries, rung by rung, of conflicts that a run had."""

from __future__ import annotations

import msgspec
import pytest

from racegate.explore.ladder import Attempt, Rung, climb
from racegate.history.schedule import EAGER, FORCED, LATE, Hold, Schedule, lane_late
from racegate.history.trace import Conflict, OpRecord

LANES = ("main", "copy", "spare")


def op(name: str, lane: int, step: int) -> OpRecord:
    return OpRecord(f"{name}@{step}", step, lane, 0, (), ())


def conflict(step: int, *, lanes: tuple[int, int] = (1, 2)) -> Conflict:
    first, second = (
        op(name, lane, step) for name, lane in zip(("write", "read"), lanes, strict=True)
    )
    return Conflict(
        buffer="b", rows=1, first=first, first_writes=True, second=second, second_writes=False
    )


class Harmless:
    """A program with some conflicts of which none does any harm. tried: schedules"""

    def __init__(self, *conflicts: Conflict) -> None:
        self.tried: list[Schedule] = []
        self._conflicts = conflicts

    def with_schedule(self, schedule: Schedule) -> Attempt[None]:
        self.tried.append(schedule)
        return Attempt(
            schedule=schedule,
            is_wrong=False,
            is_branching=False,
            conflicts=self._conflicts,
            value=None,
        )

    def with_stepper(self, stepper: object) -> Attempt[None]:
        raise AssertionError("the budget ends before")


def tried(*conflicts: Conflict, budget: int) -> list[Schedule]:
    subject = Harmless(*conflicts)
    ended = climb(subject, lanes=LANES, budget=budget, seed=0)
    assert ended.schedules == budget == len(subject.tried)
    return subject.tried


def reversed_at(step: int) -> Schedule:
    return Schedule(holds=(Hold(op=f"write@{step}", until=f"read@{step}"),))


def only_in_time(lane: str) -> Schedule:
    others = (Hold(op=f"{other}/*", until=FORCED) for other in LANES if other != lane)
    return Schedule(holds=tuple(others))


def test_each_pair_is_turned_round_once_the_first_that_recurs_before_lanes() -> None:
    """In the first step memory often holds the right value, the one that it began with."""
    found = tried(conflict(1), conflict(2), conflict(3), budget=9)
    assert found[:3] == [EAGER, LATE, reversed_at(2)]
    assert found[7:] == [reversed_at(1), reversed_at(3)]


def test_a_lane_that_is_in_no_conflict_is_neither_late_nor_alone_in_time() -> None:
    found = tried(conflict(1), conflict(2), budget=7)
    assert found[3:] == [*map(lane_late, LANES[:2]), *map(only_in_time, LANES[:2])]


def test_conflicts_with_the_host_concern_the_other_lane() -> None:
    assert tried(conflict(1, lanes=(3, 0)), budget=5)[3:] == [
        lane_late("spare"),
        only_in_time("spare"),
    ]


@pytest.mark.parametrize("budget", range(1, 8))
def test_the_rung_where_the_budget_ends_is_said(budget: int) -> None:
    ended = climb(Harmless(conflict(1)), lanes=LANES, budget=budget, seed=0)
    rungs = [Rung.LATE, Rung.REVERSALS, *[Rung.LANES] * 4, Rung.DPOR]
    assert (ended.stage, ended.wrong, ended.is_complete) == (rungs[budget - 1], None, False)


class Wrong(Harmless):
    """The same, wrong from the first run on."""

    def with_schedule(self, schedule: Schedule) -> Attempt[None]:
        return msgspec.structs.replace(super().with_schedule(schedule), is_wrong=True)


def test_what_is_wrong_eagerly_is_run_once() -> None:
    subject = Wrong(conflict(1))
    found = climb(subject, lanes=LANES, budget=9, seed=0)
    assert found.wrong is found.first and (found.stage, found.schedules) == (Rung.EAGER, 1)
    assert subject.tried == [EAGER]
