"""The queue of one rank's device: collectives stay in it until all ranks have come to them.

Nothing that waits for a collective runs before a host needs it, of this rank or of another. So
where it lands does not depend on which process is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from racegate.history.schedule import Holds
from racegate.interpose.device.copies import LateWork
from racegate.interpose.device.guards import Guards
from racegate.interpose.device.queue import PendingWork, Queue, Work
from racegate.interpose.ranks.group.collectives import GroupOperation
from racegate.interpose.ranks.group.messages import WaiterKind
from racegate.order.clocks import Clock, knows


class GroupWork(LateWork):
    """Operations of NCCL that this rank issued together. number: of the node, as all know it

    result: what they give, once all ranks have come; is_posted: the others have been told what this
    rank gives; is_asked: the device has asked for the result
    """

    def __init__(self, number: int, operations: tuple[GroupOperation, ...]) -> None:
        self.number = number
        self.operations = operations
        self.result: tuple[bytes, ...] | None = None
        self.is_posted = False
        self.is_asked = False

    def __call__(self) -> None:
        for operation, made in zip(self.operations, self.result or (), strict=False):
            operation.fill(made)


class OtherRanks(Protocol):
    """How a queue speaks with the other ranks. All of it is called with the lock of the session,
    which is `lock`.
    """

    @property
    def lock(self) -> AbstractContextManager[bool]: ...

    def issue(self, work: GroupWork, label: str, *, lane: int, number: int, clock: Clock) -> None:
        """The operations were put on a stream."""
        ...

    def post(self, work: GroupWork) -> None:
        """Nothing comes before them any more."""
        ...

    def ask(self, work: GroupWork) -> None:
        """Their result is needed, and nobody waits here."""
        ...

    def await_result(self, work: GroupWork, kind: WaiterKind) -> bool:
        """Waits without the lock until their result is there; False: nobody can go on."""
        ...


class RankQueue(Queue):
    """As `Queue`, of one rank.

    records: the run is recorded; one that is not has its collectives kept back all the same
    end: who waits for what is forced: behind the end of the script no host does
    """

    def __init__(
        self, holds: Holds, others: OtherRanks, *, records: bool, guards: Guards | None = None
    ) -> None:
        super().__init__(holds, guards=guards)
        self._others = others
        self._records = records
        self._targets: list[PendingWork] = []
        self._forced_by = WaiterKind.HOST

    @property
    def is_eager(self) -> bool:
        return self._records and super().is_eager

    def submit(self, label: str, lane: int, number: int, clock: Clock, run: Work) -> None:
        """As `Queue.submit`. What a rank gives to a collective is read as early as may be, and what
        it gets is written as late.
        """
        if isinstance(run, GroupWork):
            self._others.issue(run, label, lane=lane, number=number, clock=clock)
        super().submit(label, lane, number, clock, run)
        if isinstance(run, GroupWork) and not self.is_held(label):
            self._post_if_first(self._pending[-1])

    def end(self) -> None:
        """The script is over: what is forced from here on no host waits for."""
        self._forced_by = WaiterKind.END

    def abandon(self) -> None:
        """The run is over: what has not run never does."""
        self._pending = []

    def force(self, clock: Clock) -> None:
        self._run_all(lambda node: knows(clock, node.lane, node.number), self._forced_by)

    def force_all(self) -> None:
        self._run_all(lambda node: True, self._forced_by)

    def comes_to(self, clock: Clock) -> bool:
        return self._run_all(lambda node: knows(clock, node.lane, node.number), WaiterKind.QUERY)

    def reach(self, label: str) -> None:
        """The program comes to an access: holds that name it end, if other ranks come to it."""
        for node in [node for node in self._pending if node.until == label]:
            self.comes_to(list(node.clock))

    def advance(self, work: GroupWork | None = None) -> None:
        """Another rank waits for these operations, or something has arrived: the device comes to
        what is waited for, as far as it goes.
        """
        self._targets += [node for node in self._pending if node.run is work]
        self._targets = [node for node in self._targets if not self._comes_near(node)]

    def _run_all(self, is_meant: Callable[[PendingWork], bool], kind: WaiterKind) -> bool:
        if not self._pending:
            return True
        with self._others.lock:
            while (node := next(filter(is_meant, self._pending), None)) is not None:
                if not self._run(node, kind):
                    return False
            self._follow()
        return True

    def _run(self, node: PendingWork, kind: WaiterKind) -> bool:
        """The oldest of what is meant: nothing pending comes before it. False: it cannot run yet"""
        work = node.run
        if isinstance(work, GroupWork):
            self._post(work)
            if work.result is None and not self._others.await_result(work, kind):
                return False
            if node not in self._pending:  # the device came to it meanwhile
                return True
        self._do(node)
        return True

    def _do(self, node: PendingWork) -> None:
        self._pending.remove(node)
        self._land(node)
        if not isinstance(node.run, GroupWork):
            self._tell([node])

    def _comes_near(self, target: PendingWork) -> bool:
        """Runs what comes before an operation, and posts it; whether that is done."""
        for node in list(self._pending):
            is_before = node is not target and knows(target.clock, node.lane, node.number)
            if node in self._pending and is_before and not self._is_behind_any(node):
                self._run_if_ready(node)
        if target not in self._pending:
            return True
        return self._post_if_first(target)

    def _run_if_ready(self, node: PendingWork) -> None:
        work = node.run
        if isinstance(work, GroupWork):
            self._post(work)
            if work.result is None:
                self._ask(work)
                return
        self._do(node)

    def _is_behind_any(self, node: PendingWork) -> bool:
        return node.is_behind(self._pending[: self._pending.index(node)])

    def _post_if_first(self, node: PendingWork) -> bool:
        work = node.run
        is_first = not self._is_behind_any(node)
        if is_first and isinstance(work, GroupWork):
            self._post(work)
        return is_first

    def _post(self, work: GroupWork) -> None:
        if not work.is_posted:
            work.is_posted = True
            self._others.post(work)

    def _ask(self, work: GroupWork) -> None:
        if not work.is_asked:
            work.is_asked = True
            self._others.ask(work)

    def _follow(self) -> None:
        super()._follow()
        for node in self._pending:
            work = node.run
            if isinstance(work, GroupWork) and not work.is_posted and not self.is_held(node.label):
                self._post_if_first(node)
