"""Conflicts of one rank that are none, because other ranks order the two accesses."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from racegate.interpose.ranks.group.orders import GroupKey, GroupStep, RankOrder, UnorderedPair
from racegate.order.clocks import knows

_Step = tuple[int, int]  # rank, place among its steps


def ordered_pairs(orders: Sequence[RankOrder]) -> list[tuple[tuple[str, str], ...]]:
    """For each rank the labels of its pairs that are ordered through other ranks."""
    takers = _takers(orders)
    return [
        tuple(
            pair.labels for pair in order.pairs if _is_ordered(orders, takers, rank=rank, pair=pair)
        )
        for rank, order in enumerate(orders)
    ]


def _takers(orders: Sequence[RankOrder]) -> dict[GroupKey, list[_Step]]:
    """By operation: who comes behind what comes before it elsewhere."""
    found: dict[GroupKey, list[_Step]] = defaultdict(list)
    for rank, order in enumerate(orders):
        for at, step in enumerate(order.steps):
            for key in step.takes:
                found[key].append((rank, at))
    return found


def _is_ordered(
    orders: Sequence[RankOrder],
    takers: dict[GroupKey, list[_Step]],
    *,
    rank: int,
    pair: UnorderedPair,
) -> bool:
    """Whether a way leads from the first access by operations of all ranks to the second. An access
    of an operation itself comes neither before nor behind what that orders.
    """
    waiting = deque(
        (rank, at)
        for at, step in enumerate(orders[rank].steps)
        if knows(step.clock, *pair.first) and (step.lane, step.number) != pair.first
    )
    seen = set(waiting)
    while waiting:
        here, at = waiting.popleft()
        step = orders[here].steps[at]
        place = (step.lane, step.number)
        if here == rank and place != pair.second and knows(pair.clock, *place):
            return True
        for found in (*_behind(orders[here].steps, here, step), *_matched(takers, here, step)):
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    return False


def _behind(steps: Sequence[GroupStep], rank: int, step: GroupStep) -> list[_Step]:
    return [
        (rank, at) for at, other in enumerate(steps) if knows(other.clock, step.lane, step.number)
    ]


def _matched(takers: dict[GroupKey, list[_Step]], rank: int, step: GroupStep) -> list[_Step]:
    return [one for key in step.gives for one in takers[key] if one[0] != rank]
