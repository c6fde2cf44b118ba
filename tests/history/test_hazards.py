"""Which kind of danger a finding is."""

from __future__ import annotations

import msgspec
import pytest

from racegate.history.finding import (
    Finding,
    FindingKind,
    Hazard,
    Race,
    Side,
    finding_of,
    hazard_of,
    with_hazards,
)

SIDE = Side(
    operation="d2h", label="d2h@a.py:f#1", lane="stream 7", is_host=False, is_write=True, stack=()
)
RACE = Race(
    signature="0123456789ab",
    hazard=Hazard.REUSE,
    buffer="buffer",
    nbytes=8,
    count=1,
    first=SIDE,
    second=msgspec.structs.replace(SIDE, label="read@a.py:g#1", is_write=False),
    edge="record an event",
    pairs=(("d2h@a.py:f#1", "read@a.py:g#1"),),
)


def wrong(kind: FindingKind, hazard: Hazard | None = None) -> Finding:
    return Finding(kind=kind, signature=str(kind), message="", hazard=hazard)


@pytest.mark.parametrize(
    ("first", "second", "is_reuse", "hazard"),
    [
        (True, False, False, Hazard.READ_AFTER_WRITE),
        (False, True, False, Hazard.WRITE_AFTER_READ),
        (True, True, False, Hazard.WRITE_AFTER_WRITE),
        (True, False, True, Hazard.REUSE),
        (False, True, True, Hazard.REUSE),
    ],
)
def test_a_race_is_named_by_what_the_later_access_does(
    first: bool,  # noqa: FBT001
    second: bool,  # noqa: FBT001
    is_reuse: bool,  # noqa: FBT001
    hazard: Hazard,
) -> None:
    assert hazard_of(first_writes=first, second_writes=second, is_reuse=is_reuse) is hazard


def test_a_wrong_value_is_without_a_race_only_if_there_is_none_beside_it() -> None:
    values = [FindingKind.DIVERGENCE, FindingKind.INVARIANT, FindingKind.LOSS]
    alone = with_hazards([wrong(kind) for kind in values])
    assert {one.hazard for one in alone} == {Hazard.WRONG_VALUE}
    race = wrong(FindingKind.CONFLICT, Hazard.WRITE_AFTER_READ)
    beside = with_hazards([race, wrong(FindingKind.DIVERGENCE)])
    assert [one.hazard for one in beside] == [Hazard.WRITE_AFTER_READ, None]
    owner = wrong(FindingKind.OWNERSHIP, Hazard.VALUE_OF_ANOTHER)
    assert with_hazards([owner, wrong(FindingKind.LOSS)])[1].hazard is None


def test_a_crash_or_a_deadlock_has_no_hazard() -> None:
    stops = [wrong(FindingKind.CRASH), wrong(FindingKind.DEADLOCK)]
    assert [one.hazard for one in with_hazards(stops)] == [None, None]


def test_a_race_of_a_program_is_a_finding_that_carries_it() -> None:
    found = finding_of(RACE)
    assert (found.kind, found.hazard, found.race) == (FindingKind.CONFLICT, Hazard.REUSE, RACE)
    assert (found.op, found.other, found.edge) == ("d2h@a.py:f#1", "read@a.py:g#1", None)
    assert found.message == (
        "d2h@a.py:f#1 writes and read@a.py:g#1 reads buffer, and no path of edges orders them "
        "(reuse of memory): record an event"
    )
