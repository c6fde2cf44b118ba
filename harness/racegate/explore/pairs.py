"""Pairs of steps in conflict that no program edge orders: what a schedule can turn round."""

from __future__ import annotations

from collections.abc import Sequence

from racegate.device.stepping import Transition, conflict


def unordered_pairs(steps: Sequence[Transition]) -> list[tuple[int, int]]:
    """(earlier, later) places in the order in which the steps were taken, sorted by the later."""
    by_storage: dict[int, list[int]] = {}
    owner: dict[int, int] = {}
    shared: set[int] = set()
    for place, step in enumerate(steps):
        for storage in {access.storage for access in step.accesses}:
            by_storage.setdefault(storage, []).append(place)
            if owner.setdefault(storage, step.process) != step.process:
                shared.add(storage)
    pairs: set[tuple[int, int]] = set()
    for storage in shared:
        places = by_storage[storage]
        for index, later in enumerate(places):
            for earlier in places[:index]:
                if (earlier, later) not in pairs and _is_race(steps[earlier], steps[later]):
                    pairs.add((earlier, later))
    return sorted(pairs, key=lambda pair: (pair[1], pair[0]))


def _is_race(first: Transition, second: Transition) -> bool:
    return (
        first.process != second.process
        and second.clock[first.process] < first.ordinal
        and first.clock[second.process] < second.ordinal
        and conflict(first, second)
    )


def interesting_steps(steps: Sequence[Transition]) -> frozenset[tuple[int, int]]:
    """(process, ordinal) of the steps that are part of an unordered pair."""
    places = {place for pair in unordered_pairs(steps) for place in pair}
    return frozenset((steps[place].process, steps[place].ordinal) for place in places)
