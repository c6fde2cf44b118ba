"""Places that let findings stand: where they match, and that a baseline only gets smaller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from racegate.history.gates.known import (
    KnownFinding,
    KnownPlace,
    PlacedFindings,
    Ratchet,
    baseline_of,
)

ONE = KnownFinding(scenario="s", signature="x")


@pytest.mark.parametrize(
    ("named", "path", "is_there"),
    [
        ("lib/b.py", "lib/b.py", True),
        ("lib/b.py", "/w/lib/b.py", True),
        ("lib/*", "/w/lib/b.py", True),
        ("b.py", "lib/c.py", False),
        ("lib/b.py", "/w/other/b.py", False),
    ],
)
def test_a_file_is_named_from_any_folder_above_it(named: str, path: str, *, is_there: bool) -> None:
    side = SimpleNamespace(stack=((path, 3, "f"), ("main.py", 9, "main")))
    finding: Any = SimpleNamespace(race=SimpleNamespace(first=side, second=side))
    assert KnownPlace(file=named).matches(finding) is is_there
    assert not KnownPlace(file=named, function="g").matches(finding)


def placed(most: int | None, causes: int) -> PlacedFindings:
    place = KnownPlace(file=f"{most}-{causes}.py", causes_max=most)
    return PlacedFindings(place=place, findings=(ONE,), causes=tuple("abcdef"[:causes]))


def ratchet(*places: PlacedFindings, **known: Any) -> Ratchet:
    nothing = {"known": (), "new": (), "gone": (), "kept": ()}
    return Ratchet(**{**nothing, "placed": places, **known})


@pytest.mark.parametrize(
    ("most", "causes", "left"),
    [(3, 1, 1), (3, 3, 3), (3, 5, 3), (3, 0, 3), (None, 2, None)],
)
def test_a_place_is_left_for_as_many_causes_as_there_are_and_never_more(
    most: int | None, causes: int, left: int | None
) -> None:
    found = ratchet(placed(most, causes))
    assert [one.causes_max for one in found.left.places] == [left]
    assert found.is_smaller is (left != most)


def test_a_baseline_is_smaller_if_anything_of_it_is_gone() -> None:
    assert not ratchet(placed(3, 3)).is_smaller
    assert ratchet(placed(3, 3), placed(3, 2)).is_smaller
    assert ratchet(placed(3, 3), gone=(ONE,)).is_smaller
    assert ratchet(placed(3, 3), stale=(KnownPlace(file="a.py"),)).is_smaller


def test_a_baseline_is_in_order_however_it_is_given() -> None:
    known = [KnownFinding(scenario=name, signature="x") for name in "cab"]
    assert [one.scenario for one in baseline_of(known).known] == ["a", "b", "c"]
