"""Bisection: the first revision that shows a finding, where some cannot be asked.

As with `git bisect`: once it is there it stays. A revision that says nothing is passed over, and
its neighbours are asked; where only such are left, the answer is all of them and the next.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Shows(StrEnum):
    """What a revision shows of a finding. GOOD: nothing; BAD: the finding; SKIPPED: it cannot be
    said
    """

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


class RevisionRange(NamedTuple):
    """The last revision known to be good, and the first one known to be bad, by their places; those
    between could not be asked.
    """

    good: int
    bad: int


def bisected(last: int, ask: Callable[[int], Shows]) -> RevisionRange:
    """Asks revisions between place 0, which is good, and the last one, which is bad."""
    good, bad = 0, last
    skipped: set[int] = set()
    while left := [place for place in range(good + 1, bad) if place not in skipped]:
        middle = (good + bad) / 2
        place = min(left, key=lambda one: abs(one - middle))
        match ask(place):
            case Shows.GOOD:
                good = place
            case Shows.BAD:
                bad = place
            case Shows.SKIPPED:
                skipped.add(place)
    return RevisionRange(good, bad)
