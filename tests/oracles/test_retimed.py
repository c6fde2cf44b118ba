"""Which edge is missing, or waited for too late: histories told once more, with other waits."""

from __future__ import annotations

import pytest
from hypothesis import given

from racegate.history.trace import HostAccess, OpRecord
from racegate.oracles.missing_edge import late_wait
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.retiming import retimed
from stories import S0, S1, S2, Story, read, stories, write


@given(stories)
def test_a_history_with_its_own_waits_is_the_same_history(story: Story) -> None:
    trace = story.trace()
    again = retimed(trace, lambda wait: not wait.is_dropped)
    assert len(again.events) == len(trace.events)
    for one, other in zip(trace.events, again.events, strict=True):
        if isinstance(one, OpRecord | HostAccess):
            assert isinstance(other, OpRecord | HostAccess)
            assert (one.seq, list(one.clock)) == (other.seq, list(other.clock))


def test_without_a_wait_what_it_orders_is_a_conflict() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, S1)
    story.op(S1, read())
    assert not find_conflicts(story.trace())
    assert len(find_conflicts(retimed(story.trace(), lambda wait: False))) == 1


@pytest.mark.parametrize("is_recorded_in_time", [True, False])
@pytest.mark.parametrize("waiting", [S1, S2])
def test_a_wait_that_would_order_the_two_stands_too_late(
    is_recorded_in_time: bool,  # noqa: FBT001
    waiting: int,
) -> None:
    story = Story()
    story.record(S0, "before")
    story.op(S0, write())
    if is_recorded_in_time:
        story.record(S0, "behind")
    story.op(S1, read())
    if not is_recorded_in_time:
        story.record(S0, "behind")
    story.wait(S1, "before")
    story.wait(waiting, "behind")
    trace = story.trace()
    (conflict,) = find_conflicts(trace)
    found = late_wait(trace, conflict.first, conflict.second)
    is_too_late = is_recorded_in_time and waiting == S1
    assert (found is trace.events[-1]) == is_too_late
    assert (found is None) != is_too_late
