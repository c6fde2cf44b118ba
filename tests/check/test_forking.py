"""Forked runs are, and are judged, as if each were made from its start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from agreeing import agree
from racegate.check.checker import Checker
from racegate.check.checkpoint import CheckpointError
from racegate.check.forking import ForkedRuns, left_the_same
from racegate.check.judge import Judged
from racegate.check.sharing import SharingWarning
from racegate.check.state_graph import NotRepeatedError
from racegate.device.stepping import Stepper, Transition
from racegate.device.virtual.device import VirtualDevice
from racegate.device.virtual.memo import OpMemo
from racegate.explore.dpor import BlockedError, explore
from racegate.explore.ladder import Noting
from racegate.explore.samplers.random_walk import RandomStepper
from racegate.faults.catalogue import FAULTS, find_fault
from racegate.faults.fault import Fault, FaultKind
from support import IS_NIGHTLY, checker

# In rows and in slots; the second goes wrong in most schedules.
CASES = [
    ("finish-and-condense", "accepted-double-remap"),
    ("finish-and-condense", "pinned-input-overwrite"),
    ("slots-steady", "pool-guard-too-narrow"),
]
CLASSES = 4
BEHIND_THE_END = 10_000  # transitions
RACES = [fault for fault in FAULTS if fault.kind is FaultKind.ORDERING]
SAMPLE = RACES if IS_NIGHTLY else RACES[::8]


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
    forks = explored_both_ways(checker(name), find_fault(fault), CLASSES)
    assert forks.forked > 0


@pytest.mark.parametrize("fault", SAMPLE, ids=lambda fault: fault.name)
def test_no_seeded_race_looks_different(fault: Fault) -> None:
    explored_both_ways(checker(fault.scenarios[0]), fault, 24 if IS_NIGHTLY else CLASSES)


def explored_both_ways(subject: Checker, fault: Fault, classes: int) -> ForkedRuns:
    """What is known of others was taken for what it is, run by run."""
    forks = ForkedRuns(subject, fault, OpMemo())
    found = explore(forks.run, classes_max=classes)
    wanted = explore(whole_runs(subject, fault, OpMemo()), classes_max=classes)
    assert found.progress == wanted.progress
    # All of them afterwards: going back spoils no run that was made before.
    for one, other in zip(found.results, wanted.results, strict=True):
        assert same(one, other)
    return forks


def test_most_classes_meet_a_run_before_them() -> None:
    forks = explored_both_ways(checker("slots-steady"), find_fault("pool-guard-too-narrow"), 16)
    assert forks.shared > 8


def test_a_step_that_leads_elsewhere_the_second_time_is_no_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, fault = checker("finish-and-condense"), find_fault(CASES[1][1])
    monkeypatch.setattr("racegate.check.forking.FORKS_MAX", 0)  # or no step would be repeated
    forks = ForkedRuns(subject, fault, OpMemo())
    explore(forks.run, classes_max=1)
    monkeypatch.setattr(VirtualDevice, "standing", lambda device: (object(),))
    with pytest.raises(NotRepeatedError, match="did not lead"):
        explore(forks.run, classes_max=2)


@pytest.mark.parametrize("what", ["owner", "content", "pending", "shown", "query"])
def test_states_are_told_apart(what: str) -> None:
    def stand(changed: str) -> tuple[object, object]:
        device = VirtualDevice(("compute",), chooser=RandomStepper(1), memo=memo)
        stream, event = device.stream("compute"), device.event("done")
        source, target = (device.host_buffer(name, (2,), np.int32) for name in "ab")
        gpu = device.device_buffer("c", (2,), np.int32, stream=stream)
        source.storage.array[:], source.storage.content = 0, 1
        if changed == "owner":
            source.storage.owners[0] = ("A", 1)
        elif changed == "content":
            source.storage.changed(0, 1)
        elif changed == "pending":
            device.upload(stream, gpu, source, step=0, rows=1)
        elif changed == "shown":
            device.snapshot(stream, ((gpu, None),))
        elif changed == "query":
            device.record(stream, event)
            device.query(event, step=0)
        return device.standing(), (device.shown, tuple(device.reads), target.name)

    memo = OpMemo()
    assert stand("") == stand("")
    assert stand(what) != stand("")


def test_what_leaves_the_same_behind_is_judged_once() -> None:
    forks = ForkedRuns(checker("finish-and-condense"), find_fault(CASES[0][1]), OpMemo())
    found = explore(forks.run, classes_max=CLASSES)
    assert len(found.results) > forks.judged == 1
    wrong = ForkedRuns(checker("finish-and-condense"), find_fault(CASES[1][1]), OpMemo())
    found = explore(wrong.run, classes_max=12)
    assert len({id(judged) for judged in found.results}) < len(found.results) == 12
    assert 1 < wrong.judged < 12 and wrong.shared > 0


class Stopping:
    """Goes where another does, then so many steps where the host would not, and breaks off."""

    def __init__(self, path: Sequence[Transition], more: int) -> None:
        self._left = [step.process for step in path]
        self._more = more

    def choose(self, enabled: Sequence[Transition]) -> int:
        if self._left:
            wanted = self._left.pop(0)
            return next(i for i, step in enumerate(enabled) if step.process == wanted)
        if self._more == 0:
            raise BlockedError
        self._more -= 1
        return len(enabled) - 1


def test_a_stepper_that_breaks_off_or_shares_nothing_spoils_nothing() -> None:
    subject, fault = checker("finish-and-condense"), find_fault(CASES[0][1])
    forks = ForkedRuns(subject, fault, OpMemo())
    noting = Noting(RandomStepper(1))
    first = forks.run(noting)
    for share, more in ((0.9, 0), (0.9, 25), (0.8, 25), (0.9, 30)):
        with pytest.raises(BlockedError):
            forks.run(Stopping(noting.steps[: int(len(noting.steps) * share)], more))
    assert forks.shared == 0
    again = forks.run(RandomStepper(1))
    assert same(first, again)
    assert forks.shared == forks.judged == 1


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


@pytest.mark.parametrize("more", [4, 16])
def test_who_goes_on_where_another_broke_off_begins_that_step_again(more: int) -> None:
    """In the middle of a step the site stands nowhere that is known."""
    subject, fault, memo = checker("finish-and-condense"), find_fault(CASES[0][1]), OpMemo()
    forks, noting = ForkedRuns(subject, fault, memo), Noting(RandomStepper(1))
    forks.run(noting)
    path = noting.steps[: int(len(noting.steps) * 0.9)]
    with pytest.raises(BlockedError):
        forks.run(Stopping(path, more))
    whole = whole_runs(subject, fault, memo)(Stopping(path, BEHIND_THE_END))
    assert same(forks.run(Stopping(path, BEHIND_THE_END)), whole)


def test_a_run_has_no_more_steps_than_its_scenario_allows() -> None:
    """As whole runs, which end there with requests that are not done."""
    whole = checker("finish-and-condense")
    short = Checker(msgspec.structs.replace(whole.scenario, steps_max=4))
    fault, memo = find_fault(CASES[0][1]), OpMemo()
    found = ForkedRuns(short, fault, memo).run(RandomStepper(1))
    assert same(found, whole_runs(short, fault, memo)(RandomStepper(1)))
    assert found.run.result is not None and found.run.result.steps == 4
