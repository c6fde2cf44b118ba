"""What ranks have to agree on: told of runs of three ranks, event by event."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from racegate.history.observe import Boundary, Observation
from racegate.history.trace import OpRecord, Trace
from racegate.oracles.ranks import INVARIANT, SPREAD, WrongPair, find_disagreements, find_wrong_pair

RANKS = 3
LANES = ("host", *(f"compute.rank{rank}" for rank in range(RANKS)))


def sends(rank: int, place: str, seq: int) -> OpRecord:
    return OpRecord(f"kernel:send.{place}.rank{rank}", 0, 1 + rank, seq, (), ())


def trace_of(*places: tuple[str, ...]) -> Trace:
    """places: for each rank, where its collectives are"""
    events = [
        sends(rank, place, seq)
        for rank, issued in enumerate(places)
        for seq, place in enumerate(issued)
    ]
    other = OpRecord("kernel:layer.0", 0, 1, 9, (), ())
    return Trace(lanes=LANES, events=(other, *events))


def seen(rank: int | None, step: int = 0, **values: Any) -> Observation:
    arrays = {name: np.array(value) for name, value in values.items()}
    return Observation(step=step, boundary=Boundary.INPUTS, values=arrays, rank=rank)


def test_collectives_of_one_place_pair_though_a_rank_has_not_issued_the_last() -> None:
    assert find_wrong_pair(trace_of(("a", "b"), ("a", "b"), ("a",))) is None
    assert find_wrong_pair(trace_of(("a",), ("a",), ("a",))) is None


@pytest.mark.parametrize("wrong", range(1, RANKS))
def test_the_first_pair_of_two_places_is_told_with_rank_0_first(wrong: int) -> None:
    places = [["a", "b", "c"] for _ in range(RANKS)]
    places[wrong][1] = "other"
    found = find_wrong_pair(trace_of(*map(tuple, places)))
    assert found == WrongPair(1, sends(0, "b", 1), sends(wrong, "other", 1))


def test_each_rank_is_compared_with_rank_0_as_far_as_both_have_observed() -> None:
    ranks = [
        *(seen(0, step, computed=[step]) for step in range(2)),
        *(seen(1, step, computed=[step]) for step in range(3)),
        seen(2, 0, computed=[0]),
    ]
    assert find_disagreements(ranks) == []
    assert find_disagreements(ranks[::-1][:1]) == []


def test_the_first_value_that_a_rank_has_otherwise_is_told_rank_by_rank() -> None:
    """In the order of the ranks, whichever was heard first."""
    late = [seen(2, step, computed=[7 + step]) for step in range(2)]
    ranks = [*late, *(seen(rank, n, computed=[5 + n]) for rank in (1, 0) for n in range(2))]
    ranks[3] = seen(1, 1, computed=[9])
    found = find_disagreements(ranks)
    assert [(one.invariant, one.step) for one in found] == [(INVARIANT, 1), (INVARIANT, 0)]
    assert [" of rank 1 is 9" in one.message for one in found] == [True, False]
    assert "of rank 2 is 7, rank 0 has 5" in found[1].message


@pytest.mark.parametrize("field", sorted(SPREAD))
def test_of_what_is_spread_each_rank_has_its_part(field: str) -> None:
    parts = [seen(rank, **{f"{field}.A.0": [[rank]]}, computed=[1]) for rank in range(RANKS)]
    assert find_disagreements(parts) == []


def test_an_engine_without_ranks_has_nothing_to_agree_on() -> None:
    assert find_disagreements([seen(None, computed=[1]), seen(None, computed=[2])]) == []
