"""Forked runs: steppers of one scenario, each going on where it leaves the path of the one before.

A search that backtracks takes most steps of its last run again. A stepper that knows its first
steps is put behind those that the last run shares with it: the engine, the device and what was
observed go back to a checkpoint, which is kept before the engine's step in which two runs parted.
What is run from there, and everything that is left behind, is as if it were run from the start.
"""

from __future__ import annotations

import time
import warnings
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from racegate.check.checker import Checker
from racegate.check.checkpoint import Checkpoint, CheckpointError, never_changes
from racegate.check.judge import Judged
from racegate.check.limits import limited_memory
from racegate.check.sharing import SharingWarning
from racegate.check.subject import ENGINE_ERRORS, RunSettings, virtual_device
from racegate.device.stepping import PathStepper, Stepper, Transition
from racegate.device.virtual.device import VirtualDevice
from racegate.device.virtual.memo import OpMemo
from racegate.engine.engine import AsyncEngine
from racegate.engine.observe.recording import RecordingProbe
from racegate.faults.fault import Fault
from racegate.history.finding import FindingKind
from racegate.history.observe import Observation
from racegate.history.run import EngineResult, Run

# Steps of the engine that a further checkpoint has to save: it takes about as long as two of them.
STEPS_SAVED = 2
# Of all memory of the device: more is not copied for every checkpoint.
BYTES_MAX = 1 << 24


class _Relay:
    """The stepper of a device, whichever run it makes. taken: everything that this run took"""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper
        self.taken: list[Transition] = []

    def choose(self, enabled: Sequence[Transition]) -> int:
        """See Stepper."""
        index = self.stepper.choose(enabled)
        self.taken.append(enabled[index])
        return index


@dataclass(slots=True)
class _Site:
    """What runs are made of. engine: None until the first one has begun"""

    relay: _Relay
    device: VirtualDevice
    probe: RecordingProbe
    engine: AsyncEngine | None = None


class _Start(NamedTuple):
    """The beginning of a step of the engine. taken: transitions before it"""

    step: int
    taken: int


@dataclass(frozen=True, slots=True)
class _Fork:
    """Where runs may go on from."""

    start: _Start
    site: _Site
    checkpoint: Checkpoint


class ForkedRuns:
    """Runs and judges steppers, each from as near as can be to where it parts from the last one.

    forked, judged: how many runs did not begin at the start, and of how many the oracles were asked
    """

    def __init__(self, checker: Checker, fault: Fault | None, memo: OpMemo) -> None:
        self._checker = checker
        self._subject = checker.subject
        self._fault = fault
        self._memo = memo
        self._can_go_back = True
        self._forks: list[_Fork] = []
        # Of the last run, the starts up to where the next one parts from it.
        self._taken: list[Transition] = []
        self._starts: list[_Start] = []
        self._right: Judged | None = None  # the last one that was
        self.forked = 0
        self.judged = 0

    def run(self, stepper: Stepper) -> Judged:
        """The run of a stepper. Raises what the stepper raises.

        Where it left behind the very same as one that was right, the oracles are not asked again.
        """
        run = self._run(stepper)
        right = self._right
        if right is not None and left_the_same(right.run, run):
            return replace(right, run=run)
        self.judged += 1
        judged = self._checker.judged(run, fault=self._fault)
        if all(found.kind is FindingKind.CONFLICT for found in judged.result.findings):
            self._right = judged
        return judged

    def _run(self, stepper: Stepper) -> Run:
        began = time.perf_counter()
        shared = _shared(stepper, self._taken)
        self._forks = [fork for fork in self._forks if fork.start.taken <= shared]
        self._starts = [start for start in self._starts if start.taken <= shared]
        site, step = self._begin(stepper)
        kept = self._kept(stepper, shared)
        result: EngineResult | None = None
        stopped: Exception | None = None
        try:
            with limited_memory():
                result = self._go_on(site, step, kept)
                site.device.finish()
        except ENGINE_ERRORS as error:
            result, stopped = None, error
        finally:
            self._taken = site.relay.taken
        seconds = time.perf_counter() - began
        return self._subject.as_run(
            site.device, site.probe, result, stopped=stopped, seconds=seconds
        )

    def _begin(self, stepper: Stepper) -> tuple[_Site, int]:
        """Where the run goes on, and the step with which it does."""
        if not self._forks:
            relay = _Relay(stepper)
            settings = RunSettings(stepper=relay, fault=self._fault, memo=self._memo)
            device = virtual_device(self._subject.lanes, settings)
            return _Site(relay, device, self._subject.probe(device)), 0
        fork = self._forks[-1]
        assert isinstance(stepper, PathStepper), "nothing is shared with any other"
        fork.checkpoint.restore()
        relay = fork.site.relay
        relay.stepper, relay.taken = stepper, self._taken[: fork.start.taken]
        stepper.skip(relay.taken)
        self.forked += 1
        return fork.site, fork.start.step

    def _kept(self, stepper: Stepper, shared: int) -> set[int]:
        """The steps before which a way back is worth keeping: in them this run leaves the last one,
        or a later run will leave this one.
        """
        partings = stepper.partings if isinstance(stepper, PathStepper) else ()
        takens = [start.taken for start in self._starts]
        return {bisect_right(takens, place) - 1 for place in (*partings, shared) if place <= shared}

    def _go_on(self, site: _Site, step: int, kept: set[int]) -> EngineResult:
        """Runs to the end. kept: steps before which a way back is kept"""
        if site.engine is None:
            site.engine = self._subject.engine(site.device, site.probe, self._fault)
        while step < self._subject.scenario.steps_max and not site.engine.is_done:
            start = _Start(step, len(site.relay.taken))
            if step == len(self._starts):
                self._starts.append(start)
            if step in kept:
                self._fork(site, start)
            site.engine.step(step)
            step += 1
        return site.engine.result(step)

    def _fork(self, site: _Site, start: _Start) -> None:
        """Keeps a way back, if it saves enough."""
        last = self._forks[-1].start.step if self._forks else -1
        size = sum(storage.array.nbytes for storage in site.device.storages)
        if start.step - last < STEPS_SAVED or size > BYTES_MAX or not self._can_go_back:
            return
        roots = (site.engine, site.device, site.probe)
        observed = site.probe.observations()
        frozen = (*self._subject.constants, *observed, self._memo, site.relay)
        try:
            self._forks.append(_Fork(start, site, Checkpoint(roots, frozen=frozen)))
        except CheckpointError as error:
            self._can_go_back = False
            text = f"{self._subject.scenario.name}: every run is made whole, which is slower"
            warnings.warn(f"{text}: {error}", SharingWarning, stacklevel=2)


def _shared(stepper: Stepper, taken: Sequence[Transition]) -> int:
    """How many transitions a stepper takes as the last run did; -1 if it does not say."""
    if not isinstance(stepper, PathStepper):
        return -1
    known = stepper.known
    pairs = enumerate(zip(known, taken, strict=False))
    parted = (n for n, (a, b) in pairs if (a.process, a.ordinal) != (b.process, b.ordinal))
    return next(parted, min(len(known), len(taken)))


def left_the_same(one: Run, other: Run) -> bool:
    """Whether two runs of one program left everything behind alike, so that oracles, which look at
    nothing else, say the same of both.
    """
    return (
        one.stopped is None
        and other.stopped is None
        and one.trace == other.trace
        and one.result == other.result
        and _alike(one.observations, other.observations)
    )


def _alike(one: object, other: object) -> bool:
    """Whether two observed values are the same, bit by bit; of a kind that is not known, no."""
    if one is other:
        return True
    match one, other:
        case (np.ndarray(), np.ndarray()):
            return (
                one.shape == other.shape
                and one.dtype == other.dtype
                and one.tobytes() == other.tobytes()
            )
        case (Mapping(), Mapping()):
            return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
        case (Observation(), Observation()):
            return (
                (one.step, one.boundary) == (other.step, other.boundary)
                and _alike(one.values, other.values)
                and _alike(one.detail, other.detail)
            )
        case (tuple() | list(), tuple() | list()):
            return len(one) == len(other) and all(map(_alike, one, other))
    return type(one) is type(other) and never_changes(type(one)) and one == other
