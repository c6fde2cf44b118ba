"""Drawn programs of two threads: no wrong pass and no false finding against all interleavings."""

from __future__ import annotations

import pytest
from threaded_programs import Standing, judged

from cuda_torch import needs_cuda_torch
from drawn_threads import Drawn, Statement, truth_of
from racegate.targets.program.launch import DeviceServer

SEEDS = range(36)
RIGHT = (Standing.RACE, Standing.SILENT, Standing.BY_ORDER)


@needs_cuda_torch
def test_verdicts_are_those_of_every_interleaving(device: DeviceServer) -> None:
    rows = [judged(device, seed) for seed in SEEDS]
    assert [row for row in rows if row.standing not in RIGHT] == []
    assert {Standing.RACE, Standing.SILENT} <= {row.standing for row in rows}


START, JOIN = Statement(kind="start"), Statement(kind="join")
DOWN, READ = Statement(kind="download", host=0, device=0, stream=0), Statement(kind="read", host=0)
RECORD, WAIT = (
    Statement(kind="record", event=0, stream=0),
    Statement(kind="wait", event=0),
)
LOCK, UNLOCK = Statement(kind="lock", name=0), Statement(kind="unlock", name=0)
PUT, GET = Statement(kind="put", name=0), Statement(kind="get", name=0)


@pytest.mark.parametrize(
    ("main", "worker", "races", "as_run"),
    [
        ((DOWN, RECORD, WAIT, READ, START, JOIN), (), False, False),
        ((DOWN, RECORD, START, JOIN, WAIT, READ), (), False, False),
        ((DOWN, RECORD, START, JOIN, READ), (), True, True),
        ((WAIT, DOWN, RECORD, READ, START, JOIN), (), True, True),
        ((DOWN, RECORD, START, JOIN), (WAIT, READ), False, False),
        ((START, DOWN, RECORD, JOIN), (WAIT, READ), True, False),
        ((START, DOWN, RECORD, PUT, JOIN), (GET, WAIT, READ), False, False),
        ((START, LOCK, DOWN, RECORD, UNLOCK, JOIN), (LOCK, WAIT, READ, UNLOCK), True, False),
    ],
)
def test_what_is_true_of_a_program(
    main: tuple[Statement, ...], worker: tuple[Statement, ...], *, races: bool, as_run: bool
) -> None:
    """as_run: with what the main thread comes to first"""
    kinds = [one.kind for one in main]
    behind = kinds.index("join") if "join" in kinds else len(main)
    order = (*[0] * behind, *[1] * len(worker), *[0] * (len(main) - behind))
    drawn = Drawn(threads=(main, worker), order=order)
    assert truth_of(drawn, streams=1).races is races
    assert truth_of(drawn, streams=1, order=order).races is as_run


def test_threads_that_wait_for_each_other_get_stuck() -> None:
    other = [Statement(kind=kind, name=1) for kind in ("put", "get")]
    drawn = Drawn(threads=((START, GET, other[0], JOIN), (other[1], PUT)), order=())
    assert truth_of(drawn, streams=1).stuck
