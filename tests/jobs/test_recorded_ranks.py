"""Recorded runs of ranks as one: each rank's own run can be had back out of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from racegate.history.recorded.log import NOWHERE, LogKind, RecordedRun, RecordedStep
from racegate.jobs.foreign.recorded import side_by_side

LANES = 2


@st.composite
def recorded(draw: st.DrawFn) -> list[RecordedStep]:
    steps: list[RecordedStep] = []
    for at in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from((LogKind.OPERATION, LogKind.WAIT, LogKind.BEGIN)))
        lane, thread = draw(st.integers(0, LANES - 1)), draw(st.integers(0, LANES - 1))
        source = draw(st.integers(NOWHERE, at - 1)) if kind is LogKind.WAIT else NOWHERE
        steps.append(RecordedStep(kind, lane, thread, f"step {at}", "x.py:1", source, at))
    return steps


@given(st.lists(recorded(), min_size=2, max_size=3))
def test_the_run_of_each_rank_stands_in_the_run_of_all(ranks: list[list[RecordedStep]]) -> None:
    runs = [RecordedRun(("host", "stream"), tuple(one), at) for at, one in enumerate(ranks)]
    whole = side_by_side(runs[::-1])
    assert len(set(whole.lanes)) == len(whole.lanes) == LANES * len(runs)
    for rank, steps in enumerate(ranks):
        offset = LANES * rank
        there = [at for at, one in enumerate(whole.steps) if one.lane // LANES == rank]
        for one, at in zip(steps, there, strict=True):
            found = whole.steps[at]
            assert (found.kind, found.nbytes) == (one.kind, one.nbytes)
            assert (found.lane - offset, found.thread - offset) == (one.lane, one.thread)
            assert found.source == (NOWHERE if one.source == NOWHERE else there[one.source])
            assert found.name.startswith(one.name)
    turns = [one.nbytes for one in whole.steps]
    assert turns == sorted(turns), "the same entry of each rank beside that of the others"
