"""Why a run is as it is: how two operations are ordered, which hold decides, and what a search that
broke off still says.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from racegate.check.repro import explain, search
from racegate.check.repro.explain import explain_pair, one_hold_difference
from racegate.check.repro.search import _broken_off, _tried
from racegate.explore.ladder import Climb, Rung
from racegate.history.breakage import Caught
from racegate.history.finding import Verdict
from racegate.history.schedule import Schedule, parse_schedule
from racegate.history.verdict import Reach
from racegate.oracles.paths import Ordered
from support import checker

FIRST, SECOND = "kernel:embed@1", "kernel:embed@2"


@pytest.mark.parametrize("names", [(FIRST, SECOND), (SECOND, FIRST)])
def test_two_that_are_ordered_are_so_whichever_is_named_first(names: tuple[str, str]) -> None:
    found = explain_pair(checker("steady-mixed-accepts").execute().trace, *names)
    assert isinstance(found, Ordered)
    assert explain_pair(checker("steady-mixed-accepts").execute().trace, *names[::-1]) == found


@pytest.mark.parametrize("deciding", [0, 1, 2])
def test_the_hold_that_decides_is_the_one_without_which_it_passes(
    deciding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = parse_schedule([f"d2h:{name}@1 until forced" for name in "abc"])

    def passes(subject: object, tried: Schedule, fault: object) -> bool:
        return schedule.holds[deciding] not in tried.holds

    monkeypatch.setattr(explain, "_passes", passes)
    any_checker: Any = None
    found = one_hold_difference(any_checker, schedule, None)
    assert found is not None and found.hold == schedule.holds[deciding].text()
    assert set(found.failing) - set(found.passing) == {found.hold}


def climbed(**known: Any) -> Climb[None]:
    first: Any = None
    fields = {"wrong": None, "stage": Rung.LATE, "progress": None, "is_complete": False}
    return Climb(first=first, **{**fields, **known})


def test_what_was_tried_is_all_but_the_eager_run() -> None:
    assert _tried(climbed(schedules=1)).reach is Reach.NOTHING
    some = _tried(climbed(schedules=7))
    assert (some.reach, some.number) == (Reach.SOME, 6)
    every: Any = _tried(climbed(schedules=7, is_complete=True))
    assert (every.reach, every.number, every.known) == (Reach.CLASSES, 7, 7)


def test_a_search_that_broke_off_keeps_what_the_eager_run_found_and_says_what_broke() -> None:
    first = checker("steady-mixed-accepts").run()
    with Caught("searching") as caught:
        raise ValueError("no way")
    assert caught.breakage is not None
    found = _broken_off(first, caught.breakage)
    assert found.verdict is Verdict.BROKEN_HARNESS
    assert found.breakages == (*first.breakages, caught.breakage)
    assert msgspec.structs.replace(found, verdict=first.verdict, breakages=()) == first


def test_a_search_counts_what_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the ladder says it."""
    seen: list[int] = []
    result = search.search(checker("steady-mixed-accepts"), on_run=seen.append)
    assert result.stats.schedules == len(seen) == 1
