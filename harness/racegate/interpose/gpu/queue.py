"""The queue of a real GPU: the device runs what is issued, and a latch holds an operation back.

What the virtual device's queue decides is decided here by the same rule, and the device does the
rest: whatever the program's edges order behind a held operation waits for it on the GPU. Nothing
is kept back that an edge forbids, because a latch opens at every wait that covers it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from racegate.history.schedule import Holds
from racegate.interpose.device.queue import PendingWork, Work, WorkQueue, covers
from racegate.interpose.gpu.forward import ForwardLibrary
from racegate.order.clocks import Clock


@dataclass(slots=True, eq=False)
class LatchedWork(PendingWork):
    """held_by: the place of the hold that holds it; mark: complete when the operation is, 0 before
    it was launched. What is only behind others has neither that nor a latch.
    """

    stream: int
    held_by: int | None
    latch: int | None
    mark: int = 0


class LatchQueue(WorkQueue):
    """The work of a real device. What expired ran before its hold ended, because a latch stood too
    long.

    settles: what nothing holds is waited for as soon as it was issued, as if it ran at once
    """

    def __init__(
        self,
        latches: ForwardLibrary,
        stream_of: Callable[[int], int],
        *,
        holds: Holds = (),
        settles: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(holds)
        self._latches = latches
        self._stream_of = stream_of
        self._settles = settles
        self._local = threading.local()

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

    def is_asleep(self, clock: Clock) -> bool:
        """No: the device sleeps itself, and queries ask it."""
        return False

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
        stream, held_by = self._stream_of(lane), self._held_by(label)
        latch = None if held_by is None else self._latches.put(stream)
        until = "" if held_by is None or latch is None else self.holds[held_by].until
        run()
        # What was launched is not kept: it holds tensors of the program, whose memory others may
        # be given while the operation waits.
        clock = list(clock)
        node = LatchedWork(label, lane, number, clock, _launched, until, stream, held_by, latch)
        self._local.node = node
        if latch is not None or node.is_behind(self._pending):
            self._pending.append(node)

    def _held_by(self, label: str) -> int | None:
        return next(
            (i for i, one in enumerate(self.holds) if covers(one, label) and not one.half), None
        )

    def issued(self) -> None:
        node: LatchedWork | None = getattr(self._local, "node", None)
        if node is None:
            return
        self._local.node = None
        if node in self._pending:
            node.mark = self._latches.mark(node.stream)
        elif node.latch is None and self._settles is not None and self._settles():
            self._latches.wait_stream(node.stream)

    def _land_all(self, nodes: Sequence[PendingWork]) -> None:
        """Opens their latches, and waits until they have run."""
        latched = [node for node in nodes if isinstance(node, LatchedWork)]
        for node in latched:
            self._open(node)
        for node in latched:
            if node.mark:
                self._latches.wait_mark(node.mark)

    def _tell(self, ran: Sequence[PendingWork]) -> None:
        """Nobody: a GPU tells of no landing."""

    def _open(self, node: LatchedWork) -> None:
        """A hold counts if its operation was still waiting when its latch was opened."""
        if node.latch is None or node.held_by is None:
            return
        is_held = not node.mark or not self._latches.is_complete(node.mark)
        self._latches.open(node.latch)
        is_held = is_held and not self._latches.has_expired(node.latch)
        counts, text = self.realised if is_held else self.expired, self.holds[node.held_by].text()
        counts[text] = counts.get(text, 0) + 1


def _launched() -> None:
    """What is left to do of an operation that is on the device."""
