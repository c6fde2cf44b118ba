"""Forked runs: the steppers of one scenario are run only where no earlier run was in their state.

A search repeats most steps of its runs, and most orders that it reverses soon lead to a state that
another run was in. What was run once is not run again: a stepper is asked along the known
transitions of the state graph. Where it leaves them, the engine, the device and the observations go
back to a checkpoint before that step, and the step is really run. The result is that of a run from
the beginning.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from racegate.check.checker import Checker
from racegate.check.checkpoint import Checkpoint, CheckpointError, never_changes
from racegate.check.judge import Judged
from racegate.check.limits import limited_memory
from racegate.check.sharing import SharingWarning
from racegate.check.state_graph import (
    Choice,
    GraphState,
    GraphTransition,
    NotRepeatedError,
    StateGraph,
    known_transition,
)
from racegate.check.subject import ENGINE_ERRORS, RunSettings, virtual_device
from racegate.device.stepping import PathStepper, Stepper, Transition
from racegate.device.virtual.device import VirtualDevice
from racegate.device.virtual.memo import OpMemo
from racegate.engine.engine import AsyncEngine
from racegate.engine.observe.recording import RecordingProbe
from racegate.engine.ranked import RankedEngine, RankProbes
from racegate.faults.fault import Fault
from racegate.history.observe import Observation
from racegate.history.run import EngineResult, Run
from racegate.oracles.recall import Recall

# Of all memory of the device: more is not copied for every checkpoint.
BYTES_MAX = 1 << 24
# Bounds on memory: the oldest checkpoint is let go; all that is known is forgotten.
FORKS_MAX = 64
STATES_MAX = 2048
# Judged runs that another is compared with.
TOLD_MAX = 4


class _Relay:
    """The stepper of a device, whichever run it makes. choices: all that it made in this step"""

    def __init__(self) -> None:
        self._stepper: Stepper | None = None
        self._known: Sequence[int] = ()
        self.choices: list[Choice] = []

    def begin(self, known: Sequence[int], stepper: Stepper | None) -> None:
        """A step. known: its first choices, made before; stepper: makes the others"""
        self._known, self._stepper, self.choices = known, stepper, []

    def choose(self, enabled: Sequence[Transition]) -> int:
        place = len(self.choices)
        if place < len(self._known):
            index = self._known[place]
        elif self._stepper is not None:
            index = self._stepper.choose(enabled)
        else:
            raise NotRepeatedError(f"{enabled[0].label} was not there before")
        self.choices.append(Choice(enabled, index))
        return index


@dataclass(slots=True)
class _Site:
    """What runs are made of. engine: None until the first one has begun"""

    relay: _Relay
    device: VirtualDevice
    probe: RecordingProbe | RankProbes
    engine: AsyncEngine | RankedEngine | None = None


@dataclass(frozen=True, slots=True)
class _Fork:
    """Where runs may go on from."""

    site: _Site
    checkpoint: Checkpoint


# A run so far: each state that it has passed, with the transition that it took from there.
_Path = list[tuple[GraphState, GraphTransition]]


class ForkedRuns:
    """Runs and judges steppers, each from where it leaves what is known.

    forked: how often a run went on from a checkpoint; shared: of how many runs the rest was known
    judged: of how many the oracles were asked; recall: what they said about other runs
    """

    def __init__(
        self,
        checker: Checker,
        fault: Fault | None,
        memo: OpMemo,
        *,
        recall: Recall | None = None,
    ) -> None:
        self._recall = Recall() if recall is None else recall
        self._checker = checker
        self._subject = checker.subject
        self._fault = fault
        self._memo = memo
        self._can_go_back = True
        self._graph = StateGraph()
        self._forks: dict[GraphState, _Fork] = {}
        self._site: _Site | None = None
        self._at: GraphState | None = None  # where the site stands
        self._stepper: Stepper | None = None  # the last, and the path of its run
        self._path: _Path = []
        self._began = 0.0
        self._told: deque[Judged] = deque(maxlen=TOLD_MAX)
        self.forked = 0
        self.shared = 0
        self.judged = 0

    def run(self, stepper: Stepper) -> Judged:
        """The run of a stepper, judged. Raises what the stepper raises."""
        self._began = time.perf_counter()
        if len(self._graph) > STATES_MAX:
            self._graph, self._at, self._stepper = StateGraph(), None, None
            self._forks.clear()
        try:
            with limited_memory():
                end = self._walk(stepper)
        except ENGINE_ERRORS as error:
            return self._judge(self._as_run(None, stopped=error))
        assert end.run is not None, "a walk ends where runs end"
        if end.judged is None:
            end.judged = self._judge(end.run)
        return end.judged

    def _walk(self, stepper: Stepper) -> GraphState:
        """Along what is known as far as that goes, and really where it does not."""
        path = self._path = self._beginning(stepper)
        self._stepper = stepper
        state = path[-1][1].end if path else self._graph.root
        while state.run is None:
            transition, made = known_transition(state, stepper)
            if transition is None:
                self._stand(path, state, stepper)
                transition = self._step(state, made, stepper)
                state.transitions.append(transition)
            elif transition.end.run is not None:
                self.shared += 1
            path.append((state, transition))
            state = transition.end
        return state

    def _beginning(self, stepper: Stepper) -> _Path:
        """What a stepper shares with the last one that was run, which it is not asked for again."""
        if not isinstance(stepper, PathStepper):
            return []
        other, count = stepper.shared
        if other is None or other is not self._stepper:
            return []
        path = [pair for pair in self._path if pair[1].end.taken <= count]
        if path:
            stepper.follow(path[-1][1].end.taken)
        return path

    def _stand(self, path: _Path, state: GraphState, stepper: Stepper) -> None:
        """Puts the site where a run is that has come by a path, and keeps a way back to where
        runs part: of a depth-first search any place may be that.
        """
        if self._at is not state:
            self._go_back(path, state, stepper)
        if state.transitions or isinstance(stepper, PathStepper):
            self._fork(state)

    def _go_back(self, path: _Path, state: GraphState, stepper: Stepper) -> None:
        """To the last checkpoint on the path, and from there as before."""
        begin = len(path)
        passed = [*(before for before, _ in path), state]
        is_deep = isinstance(stepper, PathStepper)
        if is_deep:
            # What lies beside the path of a depth-first search it has left for good.
            self._forks = {one: self._forks[one] for one in passed if one in self._forks}
        while begin and passed[begin] not in self._forks:
            begin -= 1
        if fork := self._forks.get(passed[begin]):
            fork.checkpoint.restore()
            self._site = fork.site
            self.forked += 1
        for before, transition in path[begin:]:
            if is_deep:
                self._fork(before)
            self._repeat(before, transition)

    def _repeat(self, before: GraphState, transition: GraphTransition) -> None:
        """A known transition, once more. Raises NotRepeatedError: what differs is no finding."""
        text = f"step {before.step} did not lead to where it led before"
        try:
            again = self._step(before, [choice.chosen for choice in transition.choices], None)
        except ENGINE_ERRORS as error:
            raise NotRepeatedError(text) from error
        if again.end is not transition.end:
            raise NotRepeatedError(text)

    def _step(
        self, state: GraphState, known: Sequence[int], stepper: Stepper | None
    ) -> GraphTransition:
        """One step, really. known: its first choices, made before"""
        self._at = None
        if self._site is None or state is self._graph.root:
            self._site = self._new_site()
        site = self._site
        site.relay.begin(known, stepper)
        result: EngineResult | None = None
        if site.engine is None:
            site.engine = self._subject.engine(site.device, site.probe, self._fault)
        elif state.step < self._subject.scenario.steps_max and not site.engine.is_done:
            site.engine.step(state.step)
        else:
            result = site.engine.result(state.step)
            site.device.finish()
        choices = site.relay.choices
        end = self._graph.behind(state, choices, site.device, is_end=result is not None)
        if result is not None and end.run is None:
            end.run = self._as_run(result)
        self._at = end
        return GraphTransition(choices, end)

    def _new_site(self) -> _Site:
        relay = _Relay()
        settings = RunSettings(stepper=relay, fault=self._fault, memo=self._memo)
        device = virtual_device(VirtualDevice, self._subject.lanes, settings)
        return _Site(relay, device, self._subject.probe(device))

    def _fork(self, state: GraphState) -> None:
        """Keeps a way back to where the site stands, unless there is one or it is too large."""
        site = self._site
        if site is None or site.engine is None or not self._can_go_back:
            return
        if state in self._forks:
            return
        if sum(storage.array.nbytes for storage in site.device.storages) > BYTES_MAX:
            return
        roots = (site.engine, site.device, site.probe)
        observed = site.probe.observations()
        known = (site.device.backend, self._memo, site.relay)
        frozen = (*self._subject.constants, *observed, *known)
        try:
            self._forks[state] = _Fork(site, Checkpoint(roots, frozen=frozen))
        except CheckpointError as error:
            self._can_go_back = False
            text = f"{self._subject.scenario.name}: every run is made whole, which is slower"
            warnings.warn(f"{text}: {error}", SharingWarning, stacklevel=2)
        if len(self._forks) > FORKS_MAX:
            del self._forks[next(iter(self._forks))]

    def _as_run(self, result: EngineResult | None, *, stopped: Exception | None = None) -> Run:
        """What the site has left behind."""
        assert self._site is not None
        seconds = time.perf_counter() - self._began
        device, probe = self._site.device, self._site.probe
        return self._subject.as_run(device, probe, result, stopped=stopped, seconds=seconds)

    def _judge(self, run: Run) -> Judged:
        """What is said about a run: of one that left behind what another did, the same."""
        for told in self._told:
            if left_the_same(told.run, run):
                return replace(told, run=run)
        self.judged += 1
        judged = self._checker.judged(run, fault=self._fault, recall=self._recall)
        self._told.append(judged)
        return judged


def left_the_same(one: Run, other: Run) -> bool:
    """Whether two runs of one program left everything behind alike, so that oracles, which look at
    nothing else, say the same of both.
    """
    return (
        one.stopped is None
        and other.stopped is None
        and one.result == other.result  # before what takes longer to compare
        and one.trace == other.trace
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
