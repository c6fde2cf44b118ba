"""Shared runs: many schedules of one scenario without repeating what they have in common.

The eager run is made once, with a checkpoint before every step. A schedule starts from the
checkpoint of the first step in which it holds anything. From there the device does again what the
eager run asked of it, under the holds, as long as the host reads what it read then; else the engine
really runs: holds, device work, recording, oracles. Once nothing is held or pending, and since the
checkpoint the host has read the same contents, the program has done the same things, and all memory
and its owners are the same as in the eager run at that point, the rest would repeat the eager run,
and is taken from it. Anything else falls back to a run of its own. Where the state of an engine
cannot be gone back to, every schedule is a run of its own, and a SharingWarning says why.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable
from enum import StrEnum
from fnmatch import translate
from typing import NamedTuple

from racegate.check.checker import Checker
from racegate.check.checkpoint import Checkpoint, CheckpointError
from racegate.check.limits import limited_memory
from racegate.check.subject import ENGINE_ERRORS, RunSettings, virtual_device
from racegate.device.chooser import HoldChooser
from racegate.device.virtual.memo import OpMemo
from racegate.device.virtual.tape import TapedDevice, TapeDivergedError
from racegate.faults.fault import Fault
from racegate.history.finding import FindingKind
from racegate.history.observe import Boundary
from racegate.history.outcome import RunResult
from racegate.history.schedule import Schedule, step_alias, with_step
from racegate.history.trace import Misowned, OpRecord
from racegate.oracles.invariants import find_violations
from racegate.oracles.stepwise import find_divergence


class SharingWarning(RuntimeWarning):
    """Schedules are run one by one, which is slower: says what of the engine cannot be gone back
    to.
    """


class _Mark(NamedTuple):
    """How far the eager run was at the beginning of a step."""

    checkpoint: Checkpoint
    events: int
    reads: int
    observations: int
    standing: Hashable
    shown: tuple[int, ...]


class _Way(StrEnum):
    """How steps are made from a checkpoint. tape: by the device alone, as long as the engine would
    read what it read in the eager run
    """

    TAPE = "tape"
    ENGINE = "engine"


class SharedRuns:
    """Runs schedules of one scenario, with or without a fault, sharing prefixes and suffixes.

    shared, own: schedules that were run from checkpoints, and those that were run alone
    taped: how many of the shared ones needed no engine
    """

    def __init__(self, checker: Checker, fault: Fault | None = None) -> None:
        self._checker = checker
        self._fault = fault
        self._memo = OpMemo()
        subject = checker.subject
        settings = RunSettings(fault=fault, memo=self._memo)
        self._device = virtual_device(TapedDevice, subject.lanes, settings)
        self._probe = subject.probe(self._device)
        self._engine = subject.engine(self._device, self._probe, fault)
        self._marks: list[_Mark] = []
        self._can_go_back = True
        self.shared = 0
        self.taped = 0
        self.own = 0
        self.eager = self._run_eagerly()
        self._events = tuple(self._device.recorder.events)
        self._reads = tuple(self._device.reads)
        self._step_of: dict[str, int] = {}
        for event in self._events:
            if isinstance(event, OpRecord):
                self._step_of[event.name] = event.step
                self._step_of[f"{checker.lanes[event.lane - 1]}/{event.name}"] = event.step
        self._aliases = self._alias_steps()

    def run(self, schedule: Schedule) -> RunResult:
        """The result of a schedule: equal to that of a run of its own."""
        is_clean = all(finding.kind is FindingKind.CONFLICT for finding in self.eager.findings)
        is_coarse = not any("#" in hold.until for hold in schedule.holds)
        is_shareable = self._can_go_back and is_clean and is_coarse
        with limited_memory():
            for way in self._ways(schedule) if is_shareable else ():
                result = self._from_checkpoints(schedule, way)
                if result is not None:
                    self.shared += 1
                    self.taped += way is _Way.TAPE
                    return result
        return self._alone(schedule)

    def _ways(self, schedule: Schedule) -> tuple[_Way, ...]:
        """The quick one first. What a hold tears is no copy of the tape."""
        is_torn = any(hold.row_first is not None for hold in schedule.holds)
        is_taped = self._device.tape.is_whole and not is_torn
        return (_Way.TAPE, _Way.ENGINE) if is_taped else (_Way.ENGINE,)

    def holds_all(self, schedule: Schedule) -> bool:
        """Whether every hold of a schedule holds an operation of the eager run."""
        return all(self._held_steps(Schedule(holds=(hold,))) for hold in schedule.holds)

    def _alone(self, schedule: Schedule) -> RunResult:
        self.own += 1
        return self._checker.run(schedule=schedule, fault=self._fault, memo=self._memo)

    def _run_eagerly(self) -> RunResult:
        step = 0
        while not self._engine.is_done and step < self._checker.scenario.steps_max:
            self._mark()
            self._engine.step(step)
            step += 1
        self._mark()
        self._device.tape.end()
        result = self._engine.result(step)
        self._device.finish()
        run = self._checker.subject.as_run(self._device, self._probe, result)
        return self._checker.judge(run, fault=self._fault)

    def _mark(self) -> None:
        device = self._device
        device.tape.begin()
        if not self._can_go_back:
            return
        observed = self._probe.observations()  # once, and not in every run from here
        known = (device.backend, self._memo, device.tape)
        frozen = (*self._checker.subject.constants, *observed, *known)
        try:
            checkpoint = Checkpoint((self._engine, device, self._probe), frozen=frozen)
        except CheckpointError as error:
            self._can_go_back = False
            name = self._checker.scenario.name
            text = f"{name}: schedules are run one by one, which is slower: {error}"
            warnings.warn(text, SharingWarning, stacklevel=2)
            return
        self._marks.append(
            _Mark(
                checkpoint,
                len(device.recorder.events),
                len(device.reads),
                self._probe.count,
                device.standing(),
                device.shown,
            )
        )

    def _alias_steps(self) -> dict[str, int]:
        """`REQUEST.N` -> step, from the eager run's plans."""
        counts: dict[str, int] = {}
        aliases: dict[str, int] = {}
        for observation in self._probe.observations():
            if observation.boundary is Boundary.SCHEDULED:
                for name, _, _ in observation.values["plan"]:
                    aliases[f"{name}.{counts.get(name, 0)}"] = observation.step
                    counts[name] = counts.get(name, 0) + 1
        return aliases

    def _held_steps(self, schedule: Schedule) -> list[int]:
        """The steps in which a schedule holds an operation of the eager run, ascending."""
        steps: set[int] = set()
        for hold in schedule.holds:
            alias = step_alias(hold.op)
            op = hold.op if alias is None else with_step(hold.op, self._aliases.get(alias, -2))
            if "*" not in op:
                steps |= {self._step_of[op]} if op in self._step_of else set()
                continue
            pattern = re.compile(translate(op if "/" in op else f"*/{op}"))
            steps |= {step for name, step in self._step_of.items() if pattern.match(name)}
        return sorted(steps)

    def _from_checkpoints(self, schedule: Schedule, way: _Way) -> RunResult | None:
        """Runs from checkpoint to checkpoint, wherever something is held, and judges that."""
        steps = self._held_steps(schedule)
        if not all(0 <= step < len(self._marks) - 1 for step in steps):
            return None  # before the first step there is no checkpoint
        chooser = HoldChooser(schedule)
        marked = 0
        while steps:
            marked = self._mark_aliases(chooser, marked, steps[0])
            try:
                met = self._run_until_met(chooser, steps, way)
            except (*ENGINE_ERRORS, TapeDivergedError):
                return None  # a run of its own will say what stopped it
            if met is None:
                return None
            marked = met
            steps = [step for step in steps if step >= met]
        return self._checker.with_holds(self.eager, schedule, chooser.outcomes(), fault=self._fault)

    def _mark_aliases(self, chooser: HoldChooser, first: int, end: int) -> int:
        """Tells the chooser the names of steps that are not run again."""
        for alias, step in self._aliases.items():
            if first <= step < end:
                chooser.mark(alias, step)
        return end

    def _run_until_met(self, chooser: HoldChooser, steps: list[int], way: _Way) -> int | None:
        """Runs from the first held step until the eager run is met between held steps.

        Returns the step before which it was met; None if it was not, or an oracle speaks.
        """
        start = self._marks[steps[0]]
        start.checkpoint.restore()
        self._device.use_chooser(chooser)
        for step in range(steps[0], len(self._marks) - 1):
            if way is _Way.TAPE:
                self._device.again(step + 1)
            else:
                self._engine.step(step)
            if step + 1 in steps or self._device.has_pending:
                continue
            is_same = self._is_same(start, self._marks[step + 1], way)
            return step + 1 if is_same else None
        return None

    def _is_same(self, start: _Mark, here: _Mark, way: _Way) -> bool:
        """Whether the rest would repeat the eager run, and nothing is to be said until here."""
        if way is _Way.ENGINE:
            return self._is_met(start, here) and self._is_silent(start, here)
        device = self._device  # it has compared what was read; only what is misowned is an event
        return (
            len(device.recorder.events) == start.events
            and device.shown == here.shown
            and device.standing() == here.standing
        )

    def _is_met(self, start: _Mark, here: _Mark) -> bool:
        """Whether the program did, read and left behind the same as the eager run."""
        device = self._device
        events = device.recorder.events
        return (
            len(events) == here.events
            and device.standing() == here.standing
            and tuple(device.reads[start.reads :]) == self._reads[start.reads : here.reads]
            and tuple(events[start.events :]) == self._events[start.events : here.events]
        )

    def _is_silent(self, start: _Mark, here: _Mark) -> bool:
        """Whether the oracles find nothing in what was run.

        The trace is the eager run's, event by event, so the ordering oracle would say the same
        again; so would the others, if observers were shown the same contents.
        """
        if self._device.shown == here.shown:
            return True
        observed = self._probe.observations(first=start.observations)
        expected = self._checker.reference.observations[start.observations : here.observations]
        events = self._device.recorder.events
        return (
            find_divergence(observed, expected) is None
            and not find_violations(observed, self._checker.scenario)
            and not any(isinstance(event, Misowned) for event in events[start.events :])
        )
