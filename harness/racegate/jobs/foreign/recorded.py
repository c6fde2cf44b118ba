"""A recorded run of a program or a release, with everything that was recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from racegate.history.recorded.log import NOWHERE, LogKind, RecordedRun
from racegate.interpose.outcome import Plan
from racegate.interpose.ranks.group.kinds import MAIN
from racegate.interpose.ranks.holds import of_rank
from racegate.targets.common.landings import Ran

_LABELLED = (LogKind.OPERATION, LogKind.ACCESS)


def recorded_run(run: Callable[[Plan], Ran]) -> tuple[Ran, RecordedRun]:
    """One run in which nothing is held, and its log, in which ranks stand side by side. The log is
    in memory, because a program may empty the folder of temporary files; of a process that was
    lost nothing stands in it.
    """
    file = os.memfd_create("racegate-log")
    try:
        outcome = run(Plan(log=f"/proc/{os.getpid()}/fd/{file}"))
        data = os.pread(file, os.fstat(file).st_size, 0)
    finally:
        os.close(file)
    runs = [msgspec.json.decode(line, type=RecordedRun) for line in data.splitlines()]
    return outcome, runs[0] if len(runs) == 1 else side_by_side(runs)


def side_by_side(runs: Sequence[RecordedRun]) -> RecordedRun:
    """The runs of ranks as one, with the rank in each lane and label. They have no clock in common:
    the same entry of each stands beside that of the others.
    """
    ordered = sorted(runs, key=lambda one: MAIN if one.rank is None else one.rank)
    keys = sorted((at, which) for which, one in enumerate(ordered) for at in range(len(one.steps)))
    places = {key: place for place, key in enumerate(keys)}
    lanes: list[str] = []
    first: list[int] = []  # by run, the number of its first lane
    for one in ordered:
        first.append(len(lanes))
        lanes += [_named(lane, one) for lane in one.lanes]
    steps = []
    for at, which in keys:
        step, offset = ordered[which].steps[at], first[which]
        steps.append(
            msgspec.structs.replace(
                step,
                lane=step.lane + offset,
                thread=step.thread + offset,
                name=_named(step.name, ordered[which]) if step.kind in _LABELLED else step.name,
                source=NOWHERE if step.source == NOWHERE else places[step.source, which],
            )
        )
    return RecordedRun(tuple(lanes), tuple(steps))


def _named(text: str, run: RecordedRun) -> str:
    return text if run.rank is None else of_rank(text, run.rank)
