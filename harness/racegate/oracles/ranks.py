"""What all ranks of an engine have to agree on: the collectives that they issue, and what they
observe of plans, counts and tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from racegate.history.observe import Observation
from racegate.history.trace import OpRecord, Trace, unranked
from racegate.oracles.invariants import Violation
from racegate.oracles.stepwise import find_divergence

INVARIANT = "I-70"
# Of these each rank has its part.
SPREAD = frozenset({"state", "conv", "kv", "loaded_kv", "checkpoint"})
_SENT = "kernel:send."


class WrongPair(NamedTuple):
    """Two ranks whose collectives of one number, from 0, are for different places."""

    number: int
    first: OpRecord
    other: OpRecord


def find_wrong_pair(trace: Trace) -> WrongPair | None:
    """The first collective that pairs with another one: of the same kind and size, so that nothing
    stops, and each rank goes on with what was meant for something else.
    """
    sent: dict[int, list[OpRecord]] = defaultdict(list)
    for event in trace.events:
        if isinstance(event, OpRecord) and event.name.startswith(_SENT):
            sent[event.lane].append(event)
    for number, together in enumerate(zip(*sent.values(), strict=False)):
        for other in together[1:]:
            if unranked(other.name) != unranked(together[0].name):
                return WrongPair(number, together[0], other)
    return None


def find_disagreements(observations: Sequence[Observation]) -> list[Violation]:
    """The first value of each rank that rank 0 has otherwise."""
    by_rank: dict[int, list[Observation]] = defaultdict(list)
    for seen in observations:
        if seen.rank is not None:
            by_rank[seen.rank].append(_common(seen))
    violations = []
    for rank in sorted(by_rank.keys() - {0}):
        both = min(len(by_rank[rank]), len(by_rank[0]))
        found = find_divergence(by_rank[rank][:both], by_rank[0][:both])
        if found is not None:
            violations.append(
                Violation(
                    invariant=INVARIANT,
                    step=found.step,
                    boundary=found.boundary,
                    request=found.request,
                    message=f"{found.field} of rank {rank} is {found.actual}, rank 0 has "
                    f"{found.expected}",
                )
            )
    return violations


def _common(seen: Observation) -> Observation:
    kept = {
        name: value for name, value in seen.values.items() if name.partition(".")[0] not in SPREAD
    }
    return msgspec.structs.replace(seen, values=kept, rank=None)
