"""Dynamic partial-order reduction over completions: one run per class of equivalent schedules.

Two steps of different processes depend on each other if they touch common rows and one writes; the
order of steps of one stream, of issue and completion, and of waits are edges, not conflicts. Every
run's races are reversed by wake-up sequences, and sleep sets keep what was already tried from being
tried again (Abdulla, Aronsson, Jonsson and Sagonas, Source Sets, JACM 2017, optimal DPOR; stream
order as an edge: Maiya et al., TACAS 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Generic, TypeVar

import msgspec

from racegate.device.stepping import PathStepper, Stepper, Transition, conflict

T = TypeVar("T")

# In place of the one process that touches a storage; processes are never negative.
SHARED = -1

Sequence_ = tuple[Transition, ...]


class ScheduleDivergedError(Exception):
    """A replayed prefix did not meet the step it met before: the program is not deterministic."""


class BlockedError(Exception):
    """Every enabled step was tried before in an equivalent run: this run would be redundant."""


@dataclass(slots=True)
class WakeupTree:
    """Sequences still to be explored from a node, as an ordered tree."""

    children: list[tuple[Transition, WakeupTree]] = field(default_factory=list)

    def insert(self, sequence: Sequence_) -> bool:
        """Adds a sequence unless one that is already here leads to it; whether it was added."""
        if not sequence:
            return False
        for step, subtree in self.children:
            place = _initial(step, sequence)
            if place is None and not _independent_of_all(step, sequence):
                continue
            rest = sequence if place is None else sequence[:place] + sequence[place + 1 :]
            if not subtree.children:
                return False  # a leaf: what is explored from it covers the sequence
            return subtree.insert(rest)
        node = self
        for step in sequence:
            child = WakeupTree()
            node.children.append((step, child))
            node = child
        return True


@dataclass(slots=True)
class Node:
    """A point of the current run. sleep: steps tried from here; tree: what is left to try."""

    sleep: dict[int, Transition]
    tree: WakeupTree
    taken: Transition | None = None
    branches: int = 1


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """classes: runs made; blocked: redundant ones cut short; estimate: expected classes in all."""

    classes: int
    blocked: int
    estimate: float


class Exploration(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """results: one per class; is_complete: every class was run."""

    results: tuple[T, ...]
    progress: Progress
    is_complete: bool


class _Run(PathStepper):
    """Follows the current path, then takes steps that are not asleep, and notes every step.

    before: the run that has left the path as it is
    """

    def __init__(self, nodes: list[Node], before: _Run | None) -> None:
        self._nodes = nodes
        self._before = before
        self.steps: list[Transition] = []
        if before is not None:
            before._before = None  # or every run would keep all that were before it

    @property
    def shared(self) -> tuple[PathStepper | None, int]:
        """See PathStepper. The last node of the path was left for another step."""
        return self._before, max(0, len(self._nodes) - 1)

    def follow(self, count: int) -> None:
        """See PathStepper."""
        assert self._before is not None, "it shares nothing"
        self.steps = self._before.steps[:count]

    def choose(self, enabled: Sequence[Transition]) -> int:
        depth = len(self.steps)
        if depth < len(self._nodes) and self._nodes[depth].taken is not None:
            taken = self._nodes[depth].taken
        else:
            taken = self._extend(depth, enabled)
        assert taken is not None
        for index, step in enumerate(enabled):
            if step.process == taken.process:
                if step.label != taken.label:
                    raise ScheduleDivergedError(f"{taken.label} was expected, {step.label} is next")
                self.steps.append(step)
                return index
        raise ScheduleDivergedError(f"{taken.label} is not enabled")

    def _extend(self, depth: int, enabled: Sequence[Transition]) -> Transition:
        """A new node behind the last one, and the step taken from it."""
        if depth == len(self._nodes):
            sleep, tree = _descend(self._nodes[depth - 1]) if depth else ({}, WakeupTree())
            self._nodes.append(Node(sleep, tree))
        node = self._nodes[depth]
        if not node.tree.children:
            awake = [step for step in enabled if step.process not in node.sleep]
            if not awake:
                raise BlockedError
            # Completions first, the host last: the eager baseline is the first run.
            node.tree.children.append((awake[-1], WakeupTree()))
        node.taken = node.tree.children[0][0]
        return node.taken


def _descend(node: Node) -> tuple[dict[int, Transition], WakeupTree]:
    """What sleeps and what is to be tried behind the step taken from a node."""
    taken = node.taken
    assert taken is not None
    sleep = {p: step for p, step in node.sleep.items() if not conflict(step, taken)}
    sleep.pop(taken.process, None)
    return sleep, node.tree.children[0][1]


def explore(
    run: Callable[[Stepper], T],
    *,
    classes_max: int,
    on_result: Callable[[T, Progress, list[Transition]], bool] = lambda result, progress, steps: (
        True
    ),
) -> Exploration[T]:
    """Runs a program once per class, up to a bound, or until on_result says to stop.

    run: runs the program from its start with a stepper. Raises ScheduleDivergedError if the program
    does not repeat itself.
    """
    nodes: list[Node] = []
    results: list[T] = []
    order = _Order()
    blocked = 0
    weights: list[float] = []
    stepper: _Run | None = None
    while True:
        stepper = _Run(nodes, stepper)
        try:
            results.append(run(stepper))
        except BlockedError:
            blocked += 1
        else:
            _reverse_races(stepper.steps, nodes, order)
            weights.append(_weight(nodes))
            progress = _progress(results, blocked, weights)
            if not on_result(results[-1], progress, stepper.steps):
                return Exploration(results=tuple(results), progress=progress, is_complete=False)
        if not _backtrack(nodes):
            progress = Progress(classes=len(results), blocked=blocked, estimate=len(results))
            return Exploration(results=tuple(results), progress=progress, is_complete=True)
        if len(results) + blocked >= classes_max:
            progress = _progress(results, blocked, weights)
            return Exploration(results=tuple(results), progress=progress, is_complete=False)


def _backtrack(nodes: list[Node]) -> bool:
    """Leaves the current path for the deepest untried sequence; False if nothing is left."""
    while nodes:
        node = nodes[-1]
        if node.taken is not None:
            node.sleep[node.taken.process] = node.taken
            node.tree.children.pop(0)
            node.taken = None
        if node.tree.children:
            node.branches += 1
            return True
        nodes.pop()
    return False


def _weight(nodes: list[Node]) -> float:
    """The product of the branches along the path (Knuth's estimate of a tree's leaves)."""
    return prod([node.branches + len(node.tree.children) - 1 for node in nodes], start=1.0)


def _progress(results: Sequence[object], blocked: int, weights: list[float]) -> Progress:
    estimate = max(float(len(results)), sum(weights) / len(weights))
    return Progress(classes=len(results), blocked=blocked, estimate=estimate)


def _reverse_races(steps: list[Transition], nodes: list[Node], order: _Order) -> None:
    """For every race of a run, a sequence that takes its second step before its first."""
    order.follow(steps)
    clocks = order.clocks
    for later, earlier in order.races:
        first = steps[earlier]
        behind = [
            steps[i] for i in range(earlier + 1, later) if clocks[i][first.process] < first.ordinal
        ]
        sequence = (*behind, steps[later])
        node = nodes[earlier]
        if not _is_asleep(node, sequence):
            node.tree.insert(sequence)


def _is_asleep(node: Node, sequence: Sequence_) -> bool:
    """Whether a step that sleeps at the node could come first in the sequence."""
    return any(
        _initial(step, sequence) is not None
        or (
            all(other.process != step.process for other in sequence)
            and _independent_of_all(step, sequence)
        )
        for step in node.sleep.values()
    )


def _initial(step: Transition, sequence: Sequence_) -> int | None:
    """The place of the step's process in a sequence, if nothing before it there must precede it."""
    for place, other in enumerate(sequence):
        if other.process == step.process:
            before = sequence[:place]
            return None if any(_precedes(x, other) for x in before) else place
    return None


def _precedes(x: Transition, y: Transition) -> bool:
    """Whether x, taken before y, has to stay before it."""
    return y.clock[x.process] >= x.ordinal or conflict(x, y)


def _independent_of_all(step: Transition, sequence: Sequence_) -> bool:
    return all(other.process != step.process and not conflict(step, other) for other in sequence)


class _Order:
    """What precedes what in a run, and its races. Of the next run, what it shares with this one is
    not worked out again.

    clocks: per step, how many steps of each process precede it, itself included
    races: (later, earlier) pairs that conflict with nothing but their own order between them
    """

    def __init__(self) -> None:
        self._steps: list[Transition] = []
        self._owners: dict[int, int] = {}  # storage -> the process that touches it, or SHARED
        self._accessed: dict[int, list[int]] = {}
        self._place: dict[tuple[int, int], int] = {}
        self.clocks: list[list[int]] = []
        self.races: list[tuple[int, int]] = []

    def follow(self, steps: list[Transition]) -> int:
        """The next run; how many steps of it are the last one's."""
        begin = 0
        for one, other in zip(steps, self._steps, strict=False):
            # Most of them are the same objects: to compare what they hold costs a run's time.
            if one is not other and one != other:
                break
            begin += 1
        self._go_back(begin)
        self._steps = steps
        for index in range(begin, len(steps)):
            self._add(index)
        return begin

    def _go_back(self, count: int) -> None:
        """Forgets what is behind so many steps. A storage that was shared stays so, which costs a
        look.
        """
        for index in range(len(self._steps) - 1, count - 1, -1):
            step = self._steps[index]
            del self._place[step.process, step.ordinal]
            for access in step.accesses:
                self._accessed[access.storage].pop()
        del self.clocks[count:]
        while self.races and self.races[-1][0] >= count:
            self.races.pop()

    def _add(self, index: int) -> None:
        steps, clocks, owners = self._steps, self.clocks, self._owners
        step = steps[index]
        clock = [0] * len(step.clock)
        for process, count in enumerate(step.clock):
            if count > clock[process]:
                _join(clock, clocks[self._place[process, count]])
        shared = []
        for access in step.accesses:
            if owners.setdefault(access.storage, step.process) != step.process:
                owners[access.storage] = SHARED
                shared.append(access.storage)
        for earlier in self._dependent(step, shared):
            first = steps[earlier]
            if clock[first.process] < first.ordinal:
                self.races.append((index, earlier))
            _join(clock, clocks[earlier])
        clock[step.process] = step.ordinal
        clocks.append(clock)
        self._place[step.process, step.ordinal] = index
        for access in step.accesses:
            self._accessed.setdefault(access.storage, []).append(index)

    def _dependent(self, step: Transition, shared: list[int]) -> list[int]:
        """Earlier steps of other processes that conflict with a step, latest first.

        shared: the storages that it touches and other processes too
        """
        steps = self._steps
        candidates = {
            index
            for storage in shared
            for index in self._accessed.get(storage, ())
            if steps[index].process != step.process
        }
        return sorted((i for i in candidates if conflict(steps[i], step)), reverse=True)


def _join(clock: list[int], other: list[int]) -> None:
    for i, value in enumerate(other):
        if value > clock[i]:
            clock[i] = value
