"""What a run reached: pairs of features, edges that were waited for, and orderings.

An ordering is a pair of accesses in conflict, one behind the other on a buffer and from different
lanes: what the engine relies on, and what a race would turn round. Names of steps are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from racegate.explore.features.catalogue import features_of
from racegate.explore.features.facts import facts_of
from racegate.history.run import Run
from racegate.history.trace import HOST, HostAccess, OpRecord, Trace, Waited
from racegate.scenario.spec import OwnScenario

# What it is of, and two names.
Behaviour = tuple[str, str, str]


def behaviours_of(scenario: OwnScenario, run: Run) -> frozenset[Behaviour]:
    """All that a run reached; nothing, if it did not come to its end."""
    if run.result is None:
        return frozenset()
    names = sorted(features_of(facts_of(scenario, run)))
    pairs = (("features", first, second) for first, second in combinations(names, 2))
    return frozenset((*pairs, *_edges(run.trace), *_orderings(run.trace)))


def _edges(trace: Trace) -> Iterator[Behaviour]:
    for event in trace.events:
        if isinstance(event, Waited):
            yield ("edge", event.edge, trace.lanes[event.lane])


def _orderings(trace: Trace) -> Iterator[Behaviour]:
    """Each access that conflicts with the last one of the same memory."""
    last: dict[int, tuple[str, int, bool, int]] = {}
    for event in trace.events:
        if not isinstance(event, OpRecord | HostAccess):
            continue
        lane = HOST if isinstance(event, HostAccess) else event.lane
        name = event.name.partition("@")[0]
        for access in event.accesses:
            before = last.get(access.storage)
            last[access.storage] = (name, lane, access.is_write, access.rows)
            if before is None or before[1] == lane:
                continue
            if (before[2] or access.is_write) and before[3] & access.rows:
                yield (access.buffer, before[0], name)
