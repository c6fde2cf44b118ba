"""Landings: where an operation of a conflict may complete, seen from the accesses that it races.

An operation that nothing orders before some later accesses may complete before all of them, as it
does eagerly, or behind any of them. Each of the latter is a hold, and what can happen to several
operations are all their combinations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from racegate.history.finding import Finding, FindingKind
from racegate.history.run import Run
from racegate.history.schedule import Schedule
from racegate.history.trace import HostAccess, OpRecord
from racegate.oracles.findings import signature
from racegate.oracles.ordering import Conflict
from racegate.targets.adapters.wire import HelloAnswer, Offer


class Landings(msgspec.Struct, frozen=True, kw_only=True):
    """The landings of the operations in conflict.

    points: by operation, in issue order, the accesses behind which it may complete
    missing: in words, what these do not reach
    """

    points: dict[str, tuple[str, ...]] = {}
    missing: tuple[str, ...] = ()


def landings_of(conflicts: Sequence[Conflict], hello: HelloAnswer) -> Landings:
    """Where the first operation of each conflict may land, as far as the engine can hold it."""
    if Offer.HOLDS not in hello.offers:
        return Landings()
    seconds_of: dict[str, list[OpRecord | HostAccess]] = {}
    for found in conflicts:
        seconds_of.setdefault(found.first.name, []).append(found.second)
    missing = []
    points = {}
    for op, seconds in seconds_of.items():
        if not can_hold(hello, op):
            missing.append(f"the engine cannot hold {op}")
            continue
        if len({second.lane for second in seconds}) > 1:
            missing.append(f"{op} races several lanes, whose own order was not turned")
        names = Counter(second.name for second in seconds)
        missing += [f"{op} may land inside {name}" for name, count in names.items() if count > 1]
        points[op] = tuple(names)
    return Landings(points=points, missing=tuple(missing))


def can_hold(hello: HelloAnswer, op: str) -> bool:
    """Whether the engine says that it can hold this operation back."""
    return Offer.HOLDS in hello.offers and any(fnmatchcase(op, p) for p in hello.holdable)


def first_change(eager: Run, held: Run, schedule: Schedule) -> list[Finding]:
    """The first thing observed that is not what the eager run has, and then the tokens: what a
    landing changes depends on the schedule.
    """
    when = " and ".join(schedule.texts())
    for mine, its in zip(eager.observations, held.observations, strict=False):
        where = f"step {mine.step}, {mine.boundary}"
        if (mine.step, mine.boundary, mine.values.keys()) != (
            its.step,
            its.boundary,
            its.values.keys(),
        ):
            said = f"{its.boundary} of step {its.step}"
            return [_changed(str(mine.boundary), mine.step, where, said, when)]
        for name, value in mine.values.items():
            if value != its.values[name]:
                field = f"{mine.boundary}.{name}"
                return [_changed(field, mine.step, value, its.values[name], when)]
    if eager.result is None or held.result is None:
        return []  # what came before the end is the same, and the end is judged by itself
    if len(eager.observations) != len(held.observations):
        counts = len(eager.observations), len(held.observations)
        return [_changed("observations", None, *counts, when)]
    for request, tokens in eager.result.delivered.items():
        its_tokens = held.result.delivered[request]
        if tokens != its_tokens:
            found = _changed("delivered", None, list(tokens), list(its_tokens), when)
            return [msgspec.structs.replace(found, request=request)]
    return []


def _changed(field: str, step: int | None, expected: object, actual: object, when: str) -> Finding:
    at = "" if step is None else f"step {step}: "
    return Finding(
        kind=FindingKind.DIVERGENCE,
        signature=signature("divergence", field),
        message=f"{at}{field} depends on the schedule: with {when} it is {actual}, eagerly it is "
        f"{expected}",
        step=step,
        field=field,
        expected=expected,
        actual=actual,
    )
