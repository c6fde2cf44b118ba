"""Operations that were asked for and have not run: what is held, and what is ordered behind it.

An operation runs when it is issued, unless it is held or ordered behind one that has not run. A
held operation runs when a wait forces it, or before the access that its hold names. Nothing runs
where the program's own edges forbid it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from racegate.history.schedule import FORCED, Hold, Holds
from racegate.interpose.device.copies import Copy, CopyBatch, is_late, sleep, whole
from racegate.interpose.device.guards import Guards
from racegate.order.clocks import Clock, knows

Work = Callable[[], object]  # what an operation does; what it returns is of no use
EVERYTHING = "everything"


def covers(hold: Hold, label: str) -> bool:
    """Whether a hold is meant for the operation with this label. Here it may name a kind with a
    star (`d2h*`), or `everything`.
    """
    operation = whole(hold.operation)
    if operation == EVERYTHING:
        return True
    return label.startswith(operation[:-1]) if operation.endswith("*") else label == operation


def covers_many(hold: Hold) -> bool:
    """Whether it may keep back more than one operation."""
    return hold.operation == EVERYTHING or hold.operation.endswith("*")


@dataclass(slots=True, eq=False)
class PendingWork:
    """An operation that has not run. clock: of its lane when it was issued; until: before which
    access it runs at the latest, empty if it only waits behind others
    """

    label: str
    lane: int
    number: int
    clock: Clock
    run: Work
    until: str

    def is_behind(self, others: Sequence[PendingWork]) -> bool:
        """Whether an edge of the program orders it behind one of these."""
        return any(
            other.lane == self.lane or knows(self.clock, other.lane, other.number)
            for other in others
        )


class WorkQueue(ABC):
    """The work of a device, virtual or real, and what holds keep back of it.

    realised: by hold, how many operations it kept back; expired: likewise, of those that ran before
    their hold ended, as only a real device can
    """

    def __init__(self, holds: Holds) -> None:
        self.holds = holds
        self.realised: dict[str, int] = {hold.text(): 0 for hold in holds}
        self.expired: dict[str, int] = {}
        self._pending: list[PendingWork] = []

    @property
    @abstractmethod
    def is_eager(self) -> bool:
        """Whether every operation runs when it is issued: nothing will be held any more."""

    @abstractmethod
    def runs_now(self, kind: str) -> bool:
        """Whether the next operation runs when it is issued, if it is of this kind."""

    @abstractmethod
    def keeps(self, label: str) -> bool:
        """Whether the operation is held here, or waits behind one that is."""

    def has_pending(self) -> bool:
        """Whether any operation is held, or waits behind one that is."""
        return bool(self._pending)

    @abstractmethod
    def submit(self, label: str, lane: int, number: int, clock: Clock, run: Work) -> None:
        """Runs the operation or keeps it. clock: of its lane after issue; `issued` has to follow"""

    @abstractmethod
    def issued(self) -> None:
        """The operation that this thread submitted last has reached the device."""

    @abstractmethod
    def is_held(self, label: str) -> bool:
        """Whether a hold is meant for this operation."""

    def holds_host(self, label: str) -> bool:
        """Whether a hold names just this access of the host; it counts as realised."""
        hold = next((hold for hold in self.holds if hold.operation == label), None)
        if hold is not None:
            self.realised[hold.text()] += 1
        return hold is not None

    def is_pending(self, clock: Clock) -> bool:
        """Whether something that the clock covers has not run."""
        return any(knows(clock, node.lane, node.number) for node in self._pending)

    @abstractmethod
    def is_asleep(self, clock: Clock) -> bool:
        """Whether something that the clock covers takes long (`torch.cuda._sleep`) and has not been
        waited for: a query is then first answered "not ready".
        """

    def comes_to(self, clock: Clock) -> bool:
        """Whether all that the clock covers can run now, as far as that is up to the program."""
        return True

    def is_behind(self, lane: int, *clocks: Clock) -> bool:
        """Whether an operation of this lane that knows these clocks waits for what has not run."""
        return any(map(self.is_pending, clocks))

    def force(self, clock: Clock) -> None:
        """Runs all that the clock covers, in the order of issue."""
        if not self._pending:
            return
        ready = [node for node in self._pending if knows(clock, node.lane, node.number)]
        self._pending = [node for node in self._pending if node not in ready]
        self._land_all(ready)
        self._follow()
        self._tell(ready)

    def force_all(self) -> None:
        """Runs all that has not run."""
        ready, self._pending = self._pending, []
        self._land_all(ready)
        self._tell(ready)

    def reach(self, label: str) -> None:
        """The program comes to an access: holds that name it end."""
        for node in [node for node in self._pending if node.until == label]:
            self.force(list(node.clock))

    def land_at(self, label: str) -> None:
        """The one hold, which keeps its operation back, names this access from now on."""
        (hold,) = self.holds
        self.holds = (msgspec.structs.replace(hold, until=label),)
        self.realised = {self.holds[0].text(): self.realised[hold.text()]}
        for node in self._pending:
            if node.until:
                node.until = label

    def _follow(self) -> None:
        """What was only behind others runs when they have run."""
        waiting: list[PendingWork] = []
        for node in self._pending:
            if node.until or node.is_behind(waiting):
                waiting.append(node)
            else:
                self._land_all([node])
        self._pending = waiting

    @abstractmethod
    def _land_all(self, nodes: Sequence[PendingWork]) -> None:
        """Does what was kept back."""

    @abstractmethod
    def _tell(self, ran: Sequence[PendingWork]) -> None:
        """These have run, and what was only behind them."""


class Queue(WorkQueue):
    """The work of the virtual device."""

    def __init__(
        self,
        holds: Holds = (),
        *,
        on_landing: Callable[[str], None] | None = None,
        guards: Guards | None = None,
    ) -> None:
        """on_landing: is told the label of each operation that a hold kept back, when it has run

        guards: pages that operations closed, which what is late touches itself
        """
        super().__init__(holds)
        self._guards = guards
        self._on_landing = on_landing
        # Those that may still keep something back: of one operation, by its label, or of many.
        self._single: dict[str, Hold] = {}
        for hold in holds:
            if not covers_many(hold):
                self._single.setdefault(whole(hold.operation), hold)
        self._many = [hold for hold in holds if covers_many(hold)]
        self._held = frozenset(self._single)  # labels for which a hold is meant

    @property
    def is_eager(self) -> bool:
        return not (self._single or self._many or self._pending)

    def runs_now(self, kind: str) -> bool:
        if self._pending or self._many:
            return False
        return not any(label.startswith(f"{kind}@") for label in self._single)

    def keeps(self, label: str) -> bool:
        return any(node.label == label for node in self._pending)

    def submit(self, label: str, lane: int, number: int, clock: Clock, run: Work) -> None:
        hold = self._single.pop(label, None)  # a label is given once
        if hold is None and self._many:
            hold = next((hold for hold in self._many if covers(hold, label)), None)
        late = FORCED if is_late(run) else ""
        until = late if hold is None else hold.until
        node = PendingWork(label, lane, number, clock, run, until)
        is_behind = node.is_behind(self._pending)
        if not until and not is_behind:
            run()
            return
        if hold is not None:
            self.realised[hold.text()] += 1
            if hold.half is not None and not is_behind and isinstance(run, Copy | CopyBatch):
                node.run = run.tear(hold.half)
        node.clock = list(clock)
        self._pending.append(node)

    def issued(self) -> None:
        """Nothing: it ran when it was submitted, or waits here."""

    def is_held(self, label: str) -> bool:
        return label in self._held or any(covers(hold, label) for hold in self._many)

    def is_asleep(self, clock: Clock) -> bool:
        return any(
            node.run is sleep and knows(clock, node.lane, node.number) for node in self._pending
        )

    def is_behind(self, lane: int, *clocks: Clock) -> bool:
        return any(node.lane == lane for node in self._pending) or super().is_behind(lane, *clocks)

    def _land_all(self, nodes: Sequence[PendingWork]) -> None:
        for node in nodes:
            self._land(node)

    def _land(self, node: PendingWork) -> None:
        if self._guards is None or not self._guards.has_any():
            node.run()
            return
        with self._guards.landing(node.lane, node.number):
            node.run()

    def _tell(self, ran: Sequence[PendingWork]) -> None:
        if self._on_landing is not None:
            for node in ran:
                if node.until and node.run is not sleep:
                    self._on_landing(node.label)
