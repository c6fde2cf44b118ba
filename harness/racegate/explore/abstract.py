"""Abstract device programs: the order structure of a program without its kernels.

Steps of processes with footprints and program edges, and a value per memory cell that mixes what
was read: two schedules that differ in a conflict differ in the outcome. Used to check the reduced
search against brute force, and to measure schedulers without an engine.
"""

from __future__ import annotations

from random import Random

import msgspec

from racegate.device.recorder import Recorder
from racegate.device.stepping import Stepper, Transition
from racegate.history.trace import HOST, Access, HostAccess, OpRecord, rows_of

Outcome = tuple[int, ...]
Cell = tuple[int, int]  # (storage, row)

_MASK = (1 << 64) - 1


class FastTransition(msgspec.Struct, frozen=True, gc=False):
    """A transition ready to be run fast.

    reads, writes: cells; after: (process, count) pairs of other processes that must have got so far
    """

    step: Transition
    reads: tuple[Cell, ...]
    writes: tuple[Cell, ...]
    after: tuple[tuple[int, int], ...]
    salt: int


class AbstractProgram(msgspec.Struct, frozen=True, kw_only=True):
    """processes: the transitions of each process, in its order; process 0 is the host."""

    processes: tuple[tuple[FastTransition, ...], ...]

    @property
    def size(self) -> int:
        """Transitions of all processes together."""
        return sum(len(actions) for actions in self.processes)


def as_fast(step: Transition) -> FastTransition:
    """A transition with its cells and predecessors spelled out."""
    reads = [_cells(access) for access in step.accesses if not access.is_write]
    writes = [_cells(access) for access in step.accesses if access.is_write]
    return FastTransition(
        step,
        tuple(cell for cells in reads for cell in cells),
        tuple(cell for cells in writes for cell in cells),
        tuple((p, n) for p, n in enumerate(step.clock) if n and p != step.process),
        hash((step.process, step.ordinal)),
    )


def _cells(access: Access) -> tuple[Cell, ...]:
    return tuple((access.storage, row) for row in rows_of(access.rows))


class State:
    """How far each process is, what the cells hold, and what the host has seen."""

    __slots__ = ("_program", "_ready", "cells", "done", "seen")

    def __init__(self, program: AbstractProgram) -> None:
        self._program = program
        self.done = [0] * len(program.processes)
        self.cells: dict[Cell, int] = {}
        self.seen: list[int] = []
        self._ready: list[FastTransition | None] = [None] * len(program.processes)

    def copy(self) -> State:
        """The same, to go on from in another way."""
        other = State(self._program)
        other.done = list(self.done)
        other.cells = dict(self.cells)
        other.seen = list(self.seen)
        return other

    def enabled(self) -> list[FastTransition]:
        """Next actions whose predecessors are done, by process."""
        done, ready = self.done, self._ready
        for process, actions in enumerate(self._program.processes):
            if ready[process] is None and done[process] < len(actions):
                action = actions[done[process]]
                for other, count in action.after:
                    if done[other] < count:
                        break
                else:
                    ready[process] = action
        return [action for action in ready if action is not None]

    def take(self, action: FastTransition) -> None:
        """An action reads its cells, and writes what it made of them."""
        cells = self.cells
        value = action.salt
        for cell in action.reads:
            value = (value ^ cells.get(cell, 0)) * 1_000_003 + 1 & _MASK
        for cell in action.writes:
            cells[cell] = value
        process = action.step.process
        if process == HOST:
            self.seen.append(value)
        self.done[process] += 1
        self._ready[process] = None

    def outcome(self) -> Outcome:
        """What the host saw, and the memory at the end."""
        return (*self.seen, *(value for _, value in sorted(self.cells.items())))


def run_program(program: AbstractProgram, stepper: Stepper) -> Outcome:
    """The outcome under a stepper's choices."""
    state = State(program)
    while enabled := state.enabled():
        state.take(enabled[stepper.choose([action.step for action in enabled])])
    return state.outcome()


def random_program(
    random: Random, *, streams: int, steps: int, storages: int, waits: float
) -> AbstractProgram:
    """A program of host accesses and operations on a few streams, with random records and waits.

    waits: the share of statements that are records and waits
    """
    recorder = Recorder(tuple(f"s{i}" for i in range(streams)))
    latest: list[tuple[int, str, int]] = []
    taken = 0
    while taken < steps:
        lane = random.randrange(streams + 1)
        if random.random() < waits:
            if lane != HOST and random.random() < 0.5:
                latest.append((lane, "e", len(latest)))
                version = recorder.record(lane, "e", len(latest))
                target = random.randrange(streams + 1)
                if target != lane:
                    recorder.wait(target, version, "edge", step=0, is_dropped=False)
            continue
        accesses = _random_accesses(random, storages)
        if lane == HOST:
            recorder.host_access(accesses[0])
        else:
            recorder.issue(lane, f"op{taken}", 0, accesses)
        taken += 1
    return from_events(recorder)


def _random_accesses(random: Random, storages: int) -> tuple[Access, ...]:
    return tuple(
        Access("b", random.randrange(storages), random.choice((1, 1, 2, 3)), random.random() < 0.5)
        for _ in range(random.choice((1, 1, 2)))
    )


def from_events(recorder: Recorder) -> AbstractProgram:
    """The program that a recorder was told, as steps with program edges."""
    processes: list[list[Transition]] = [[] for _ in recorder.lanes]
    for issued, event in enumerate(recorder.events):
        host_done = len(processes[HOST])
        if isinstance(event, OpRecord):
            clock = (host_done, *event.clock[1:])
            step = Transition(event.lane, event.seq, event.name, event.accesses, clock, issued)
            processes[event.lane].append(step)
        elif isinstance(event, HostAccess):
            clock = (host_done, *event.clock[1:])
            access = (event.access,)
            step = Transition(HOST, host_done + 1, event.name, access, clock, issued)
            processes[HOST].append(step)
    return AbstractProgram(
        processes=tuple(tuple(as_fast(step) for step in steps) for steps in processes)
    )
