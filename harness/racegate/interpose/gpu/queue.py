"""The queue of a real GPU: the device runs what is issued, and a latch holds an operation back.

What the virtual device's queue decides is decided here by the same rule, and the device does the
rest: whatever the program's edges order behind a held operation waits for it on the GPU. Nothing
is kept back that an edge forbids, because a latch opens at every wait that covers it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from racegate.history.schedule import Hold, Holds
from racegate.interpose.device.queue import Work, covers, holds_host
from racegate.interpose.gpu.forward import StreamLatches
from racegate.order.clocks import Clock, knows


@dataclass(slots=True, eq=False)
class _Node:
    """hold: what holds the operation, None for one that is only behind others; mark: complete when
    the operation is, 0 before it was launched.
    """

    lane: int
    number: int
    clock: Clock
    stream: int
    hold: Hold | None
    latch: int | None
    mark: int = 0


class LatchQueue:
    """The work of a real device, as `WorkQueue` says.

    settles: what nothing holds is waited for as soon as it was issued, as if it ran at once
    expired: operations that ran before their hold ended, because a latch stood too long
    """

    def __init__(
        self,
        latches: StreamLatches,
        stream_of: Callable[[int], int],
        *,
        holds: Holds = (),
        settles: Callable[[], bool] | None = None,
    ) -> None:
        self._latches = latches
        self._stream_of = stream_of
        self.holds = holds
        self.realised: dict[str, int] = {hold.text(): 0 for hold in holds}
        self._settles = settles
        self._nodes: list[_Node] = []
        self._local = threading.local()
        self.expired: dict[str, int] = {}

    @property
    def is_eager(self) -> bool:
        """Whether the device runs what is issued as it likes."""
        return not self.holds and self._settles is None

    def runs_now(self, kind: str) -> bool:
        """Never as far as is known: the device runs it when it gets there."""
        return False

    def keeps(self, label: str) -> bool:
        """No: what is held is on the device already."""
        return False

    def has_pending(self) -> bool:
        return bool(self._nodes)

    def holds_host(self, label: str) -> bool:
        return holds_host(self.holds, self.realised, label)

    def is_behind(self, lane: int, *clocks: Clock) -> bool:
        return any(map(self.is_pending, clocks))

    def is_asleep(self, clock: Clock) -> bool:
        """No: the device sleeps itself, and queries ask it."""
        return False

    def comes_to(self, clock: Clock) -> bool:
        """Yes: whoever is told so waits for it."""
        return True

    def land_at(self, label: str) -> None:
        """The one hold names this access from now on."""
        (hold,) = self.holds
        landing = msgspec.structs.replace(hold, until=label)
        self.holds = (landing,)
        self.realised = {landing.text(): self.realised[hold.text()]}
        for node in self._nodes:
            if node.hold is not None:
                node.hold = landing

    def is_held(self, label: str) -> bool:
        """No: asked of the parts of a graph, which a GPU replays as a whole. A hold that names one
        is not realised.
        """
        return False

    def submit(self, label: str, lane: int, number: int, clock: Clock, run: Work) -> None:
        """Launches the operation, behind a latch if it is held. `issued` has to follow."""
        if self.is_eager:
            run()
            return
        hold = next((hold for hold in self.holds if covers(hold, label) and not hold.half), None)
        behind = any(
            node.lane == lane or knows(clock, node.lane, node.number) for node in self._nodes
        )
        stream = self._stream_of(lane)
        latch = self._latches.put(stream) if hold is not None else None
        run()
        node = _Node(lane, number, list(clock), stream, hold, latch)
        self._local.node = node
        if latch is not None or behind:
            self._nodes.append(node)

    def issued(self) -> None:
        """The operation that this thread submitted last has reached the device."""
        node: _Node | None = getattr(self._local, "node", None)
        if node is None:
            return
        self._local.node = None
        if node in self._nodes:
            node.mark = self._latches.mark(node.stream)
        elif node.latch is None and self._settles is not None and self._settles():
            self._latches.wait_stream(node.stream)

    def is_pending(self, clock: Clock) -> bool:
        """Whether something that the clock covers is held or behind what is held."""
        return any(knows(clock, node.lane, node.number) for node in self._nodes)

    def force(self, clock: Clock) -> None:
        """Opens the latches of all that the clock covers, and waits until it has run."""
        if not self._nodes:
            return
        self._finish([node for node in self._nodes if knows(clock, node.lane, node.number)])
        self._follow()

    def reach(self, label: str) -> None:
        """The program comes to an access: holds that name it end."""
        for node in list(self._nodes):
            if node.hold is not None and node.hold.until == label and node in self._nodes:
                self.force(list(node.clock))

    def force_all(self) -> None:
        self._finish(list(self._nodes))

    def _finish(self, nodes: list[_Node]) -> None:
        self._nodes = [node for node in self._nodes if node not in nodes]
        for node in nodes:
            self._open(node)
        for node in nodes:
            if node.mark:
                self._latches.wait_mark(node.mark)

    def _open(self, node: _Node) -> None:
        """A hold counts if its operation was still waiting when its latch was opened."""
        if node.latch is None or node.hold is None:
            return
        is_held = not node.mark or not self._latches.is_complete(node.mark)
        self._latches.open(node.latch)
        is_held = is_held and not self._latches.has_expired(node.latch)
        counts = self.realised if is_held else self.expired
        counts[node.hold.text()] = counts.get(node.hold.text(), 0) + 1

    def _follow(self) -> None:
        """What was only behind others runs now that they have run."""
        waiting: list[_Node] = []
        for node in list(self._nodes):
            behind = any(
                other.lane == node.lane or knows(node.clock, other.lane, other.number)
                for other in waiting
            )
            if node.latch is not None or behind:
                waiting.append(node)
            else:
                self._finish([node])
