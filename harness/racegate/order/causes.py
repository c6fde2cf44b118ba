"""Conflicts that one missing edge explains."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple


class UnorderedInterval(NamedTuple):
    """Where an edge could stand that orders a conflict: from after its first access to before its
    second, by their places among all events of the run. between: what the edge would connect
    """

    between: Hashable
    first: int
    second: int


def fewest_edges(gaps: Sequence[UnorderedInterval]) -> list[list[int]]:
    """The gaps by the fewest edges that order all of them, each edge as late as it may be: right
    before the second access of the first gap of its list. Lists of positions in `gaps`.
    """
    edges: list[list[int]] = []
    last: dict[Hashable, list[int]] = {}
    for at in sorted(range(len(gaps)), key=lambda at: gaps[at].second):
        gap = gaps[at]
        shared = last.get(gap.between)
        if shared is None or gaps[shared[0]].second <= gap.first:
            shared = last[gap.between] = []
            edges.append(shared)
        shared.append(at)
    return edges
