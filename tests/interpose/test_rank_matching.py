"""Random programs of two ranks, without processes: the queue of each rank and what matches them,
beside every order in which hosts and devices can go on.
"""

from __future__ import annotations

import random

import pytest
from rank_orders import Orders, correct_programs, drawn_programs
from rank_simulation import found_in

from racegate.history.finding import FindingKind


@pytest.mark.parametrize("seed", range(4))
def test_a_program_is_stuck_if_no_order_brings_it_to_its_end(seed: int) -> None:
    draw, stuck = random.Random(seed), 0
    for _ in range(100):
        programs = drawn_programs(draw)
        kinds = found_in(programs, draw)
        is_found = bool(kinds & {FindingKind.DEADLOCK, FindingKind.MISMATCH})
        assert is_found == Orders(programs, meets=True).is_stuck, programs
        stuck += is_found
    assert 30 < stuck < 70


def test_what_is_found_does_not_depend_on_who_is_faster() -> None:
    draw = random.Random(7)
    for _ in range(60):
        programs = drawn_programs(draw)
        found = [found_in(programs, random.Random(seed)) for seed in range(4)]
        assert found[1:] == found[:-1], programs


def test_a_correct_program_is_never_stuck() -> None:
    draw = random.Random(1)
    for _ in range(1000):
        programs = correct_programs(draw)
        assert found_in(programs, draw) == set(), programs


def test_no_order_of_a_correct_program_is_stuck() -> None:
    draw = random.Random(2)
    for _ in range(200):
        programs = correct_programs(draw)
        assert not Orders(programs, meets=True).is_stuck, programs
