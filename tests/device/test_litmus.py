"""Litmus programs on the virtual device: the outcomes over all schedules are exactly the allowed
ones.
"""

from __future__ import annotations

import pytest

from conformance import allowed_outcomes
from litmus_form import Litmus
from litmus_programs import ALL
from litmus_run import LITMUS_LANES, LitmusError, LitmusRun, Outcome
from racegate.device.chooser import HoldChooser
from racegate.device.protocol import DeadlockError
from racegate.device.virtual.device import VirtualDevice
from racegate.history.schedule import LATE, Schedule, lane_late
from racegate.history.trace import Trace
from racegate.oracles.ordering import find_conflicts, has_unordered_query


def run_with(program: str, schedule: Schedule) -> tuple[Outcome, Trace]:
    device = VirtualDevice(LITMUS_LANES, chooser=HoldChooser(schedule))
    return LitmusRun(device).run(program)


@pytest.mark.parametrize("litmus", ALL, ids=lambda litmus: litmus.name)
def test_outcomes_over_all_schedules_are_the_allowed_ones(litmus: Litmus) -> None:
    assert allowed_outcomes(litmus.program) == litmus.allowed


@pytest.mark.parametrize("litmus", ALL, ids=lambda litmus: litmus.name)
def test_one_run_tells_whether_the_program_is_racy(litmus: Litmus) -> None:
    # The happens-before check depends on the program's edges, not on the order in which things
    # happened.
    for schedule in (Schedule(), LATE, lane_late("s0"), lane_late("s1")):
        outcome, trace = run_with(litmus.program, schedule)
        assert outcome in litmus.allowed
        if not has_unordered_query(trace):
            assert bool(find_conflicts(trace)) == litmus.racy
    if len(litmus.allowed) > 1:
        _, trace = run_with(litmus.program, Schedule())
        assert find_conflicts(trace) or has_unordered_query(trace)


def test_the_suite_is_large_enough() -> None:
    assert len(ALL) >= 40
    assert len({litmus.name for litmus in ALL}) == len(ALL)


def test_a_wait_behind_an_unset_flag_is_a_deadlock_that_names_the_wait() -> None:
    program = "s0: wait flag go\ns0: d0 = 5\ns0: record e\nwait e"
    with pytest.raises(DeadlockError, match=r"host waits for edge litmus, behind the flag go .*s0"):
        run_with(program, Schedule())


def test_a_deadlock_through_another_stream_names_the_flag() -> None:
    program = "s0: wait flag go\ns0: record a\ns1: wait a\ns1: record e\nwait e"
    with pytest.raises(DeadlockError, match="flag go"):
        run_with(program, Schedule())


def test_a_flag_nobody_sets_is_reported_at_the_end() -> None:
    with pytest.raises(DeadlockError, match="the end of the run"):
        run_with("s0: wait flag go\ns0: d0 = 5", Schedule())


def test_an_unreadable_statement_is_named() -> None:
    with pytest.raises(LitmusError, match=r"line 2: cannot read 'nonsense'"):
        run_with("h0[0] = 1\nnonsense", Schedule())
