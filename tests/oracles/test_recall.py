"""What is recalled of other runs is what oracles would have said."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import numpy as np

from racegate.faults.catalogue import find_fault
from racegate.history.observe import Boundary, Observation
from racegate.history.trace import Misowned
from racegate.oracles.invariants import find_violations
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.recall import Recall
from racegate.oracles.stepwise import find_divergence
from support import checker

NAME = "finish-and-condense"
RUNS = 40


def another_run(runs: Sequence[Sequence[Observation]], random: Random) -> tuple[Observation, ...]:
    """As one of the runs up to somewhere, with a wrong count or a missing end behind that."""
    base = random.choice(runs)
    place = random.randrange(len(base))
    if random.random() < 0.2:
        return tuple(base[: place + 1])
    seen = base[place]
    values, detail = dict(seen.values), dict(seen.detail)
    if seen.boundary is Boundary.INPUTS:
        values["computed"] = np.asarray(values["computed"]) + random.choice((0, 1))
    elif seen.boundary is Boundary.SCHEDULED:
        detail["frames_in_flight"] = random.choice((1, 9))
    changed = msgspec.structs.replace(seen, values=values, detail=detail)
    return (*base[:place], changed, *base[place + 1 :])


def test_each_run_is_judged_as_if_it_were_the_first() -> None:
    subject, random, recall = checker(NAME), Random(1), Recall()
    expected = subject.reference.observations
    runs: list[tuple[Observation, ...]] = [subject.execute().observations]
    found = set()
    for _ in range(RUNS):
        runs.append(another_run(runs[-4:] if random.random() < 0.8 else runs[:1], random))
        # A run that stopped is compared up to there.
        right = expected[: len(runs[-1])] if random.random() < 0.5 else expected
        wanted = find_divergence(runs[-1], right)
        assert recall.divergence(runs[-1], right) == wanted
        violations = find_violations(runs[-1], subject.scenario)
        assert recall.violations(runs[-1], subject.scenario) == violations
        found.add((wanted is None, not violations))
    assert len(found) == 4


def test_conflicts_are_those_of_the_trace() -> None:
    subject, recall = checker(NAME), Recall()
    faults = [None, find_fault("accepted-double-remap"), find_fault("pinned-input-overwrite")]
    traces = [subject.execute(fault=fault).trace for fault in (*faults, *faults[:2])]
    for trace in traces:
        assert recall.conflicts(trace) == find_conflicts(trace)
    once = recall.conflicts(traces[-1])
    owner = Misowned("host:correct@1", 1, "accepted_counts_cpu", 0, ("A", 1), None)
    other = msgspec.structs.replace(traces[-1], events=(*traces[-1].events, owner))
    assert recall.conflicts(other) is once, "owners are no matter of order"


def test_more_observations_than_expected_are_counted_in_each_run() -> None:
    """Two runs that go on behind the end of the reference, and share all that the first has."""
    observed = checker(NAME).execute().observations
    right, recall = observed[:4], Recall()
    for seen in (6, 8, 7):
        found = recall.divergence(observed[:seen], right)
        assert found == find_divergence(observed[:seen], right)
        assert found is not None and (found.expected, found.actual) == (4, seen)
