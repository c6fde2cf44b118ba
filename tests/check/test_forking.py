"""Forked runs are, and are judged, as if each were made from its start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from racegate.check.checker import Checker
from racegate.check.checkpoint import CheckpointError
from racegate.check.forking import ForkedRuns, left_the_same
from racegate.check.judge import Judged
from racegate.check.sharing import SharingWarning, agree
from racegate.device.stepping import PathStepper, Stepper, Transition
from racegate.device.virtual.memo import OpMemo
from racegate.explore.dpor import BlockedError, explore
from racegate.explore.ladder import Noting
from racegate.explore.samplers.random_walk import RandomStepper
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from support import checker

# In rows and in slots; the second goes wrong in most schedules.
CASES = [
    ("finish-and-condense", "accepted-double-remap"),
    ("finish-and-condense", "pinned-input-overwrite"),
    ("slots-steady", "pool-guard-too-narrow"),
]
CLASSES = 4


def whole_runs(subject: Checker, fault: Fault, memo: OpMemo) -> Callable[[Stepper], Judged]:
    """Every run made from its start and judged."""

    def run(stepper: Stepper) -> Judged:
        made = subject.execute(stepper=stepper, fault=fault, memo=memo)
        return subject.judged(made, fault=fault)

    return run


def same(one: Judged, other: Judged) -> bool:
    return (
        left_the_same(one.run, other.run)
        and agree([one.result, other.result])
        and one.conflicts == other.conflicts
    )


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_forking_changes_nothing(name: str, fault: str) -> None:
    subject, seeded = checker(name), find_fault(fault)
    forks = ForkedRuns(subject, seeded, OpMemo())
    found = explore(forks.run, classes_max=CLASSES)
    wanted = explore(whole_runs(subject, seeded, OpMemo()), classes_max=CLASSES)
    assert found.progress == wanted.progress
    assert len(found.results) > 2 and forks.forked > 0
    # All of them afterwards: going back spoils no run that was made before.
    for one, other in zip(found.results, wanted.results, strict=True):
        assert same(one, other)


def test_what_leaves_the_same_behind_is_judged_once() -> None:
    forks = ForkedRuns(checker("finish-and-condense"), find_fault(CASES[0][1]), OpMemo())
    found = explore(forks.run, classes_max=CLASSES)
    assert len(found.results) > forks.judged == 1
    wrong = ForkedRuns(checker("finish-and-condense"), find_fault(CASES[1][1]), OpMemo())
    explore(wrong.run, classes_max=2)
    assert wrong.judged == 2, "what went wrong is no pattern for others"


class Stopping(PathStepper):
    """Goes where another does, and breaks off behind its path."""

    partings = ()

    def __init__(self, path: Sequence[Transition]) -> None:
        self._path = path
        self._count = 0

    @property
    def known(self) -> Sequence[Transition]:
        return self._path

    def skip(self, taken: Sequence[Transition]) -> None:
        self._count = len(taken)

    def choose(self, enabled: Sequence[Transition]) -> int:
        if self._count == len(self.known):
            raise BlockedError
        wanted = self.known[self._count].process
        self._count += 1
        return next(i for i, step in enumerate(enabled) if step.process == wanted)


def test_a_stepper_that_breaks_off_or_shares_nothing_spoils_nothing() -> None:
    subject, fault = checker("finish-and-condense"), find_fault(CASES[0][1])
    forks = ForkedRuns(subject, fault, OpMemo())
    noting = Noting(RandomStepper(1))
    first = forks.run(noting)
    for share in (0.9, 0.8, 0.9):
        with pytest.raises(BlockedError):
            forks.run(Stopping(noting.steps[: int(len(noting.steps) * share)]))
    assert forks.forked == 1
    again = forks.run(RandomStepper(1))
    assert same(first, again)


@pytest.mark.parametrize("hindrance", ["size", "state"])
def test_where_there_is_no_way_back_every_run_is_made_whole(
    hindrance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*roots: object, **rest: object) -> None:
        raise CheckpointError("of a socket")

    if hindrance == "size":
        monkeypatch.setattr("racegate.check.forking.BYTES_MAX", 0)
    else:
        monkeypatch.setattr("racegate.check.forking.Checkpoint", refuses)
    forks = ForkedRuns(checker("finish-and-condense"), find_fault(CASES[0][1]), OpMemo())
    with nullcontext() if hindrance == "size" else pytest.warns(SharingWarning, match="socket"):
        found = explore(forks.run, classes_max=CLASSES)
    assert forks.forked == 0 and found.is_complete


@pytest.mark.parametrize("field", ["values", "detail"])
def test_any_difference_is_one(field: str) -> None:
    run = checker("finish-and-condense").execute()
    assert left_the_same(run, replace(run, seconds=0.0))
    for place, seen in enumerate(run.observations):
        for name, value in getattr(seen, field).items():
            changed = msgspec.structs.replace(seen, **{field: {**getattr(seen, field), name: 0.5}})
            others = (*run.observations[:place], changed, *run.observations[place + 1 :])
            assert not left_the_same(run, replace(run, observations=others)), name
            if isinstance(value, np.ndarray) and value.size:
                bits = value.copy()
                bits.view(np.uint8).flat[-1] ^= 1
                contents = {**getattr(seen, field), name: bits}
                changed = msgspec.structs.replace(seen, **{field: contents})
                others = (*run.observations[:place], changed, *run.observations[place + 1 :])
                assert not left_the_same(run, replace(run, observations=others)), name


def test_runs_that_stopped_or_ended_otherwise_are_not_the_same() -> None:
    run = checker("finish-and-condense").execute()
    assert run.result is not None
    fewer = msgspec.structs.replace(run.trace, events=run.trace.events[:-1])
    assert not left_the_same(run, replace(run, stopped=ValueError()))
    assert not left_the_same(run, replace(run, trace=fewer))
    other = msgspec.structs.replace(run.result, steps=run.result.steps + 1)
    assert not left_the_same(run, replace(run, result=other))
