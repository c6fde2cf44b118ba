"""What stands in the streams of a device, and what lets it happen: the part that all devices share.

A queue holds what was issued and may not have happened yet. On the virtual device it is the stream
itself. On CUDA it says which operations the device is allowed to have completed; the same holds,
points and waits empty it in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from racegate.device.chooser import HoldChooser
from racegate.device.driver import Driver
from racegate.device.memory import VirtualBuffer, VirtualHostBuffer
from racegate.device.nodes import Node, Op, VirtualEvent, VirtualFlag, VirtualStream
from racegate.device.protocol import DeadlockError
from racegate.device.recorder import Recorder, Version
from racegate.device.stepping import Stepper
from racegate.history.edge import Edge
from racegate.history.schedule import Schedule
from racegate.history.trace import Access, Trace


class QueuedDevice:
    """Streams with their queues, holds, points and forced completion.

    lanes: the names of the streams
    chooser: the holds over the eager baseline
    stepper: takes every step by choice, instead of the eager baseline
    dropped: names of edges whose waits do nothing (seeded faults)
    """

    def __init__(
        self,
        lanes: tuple[str, ...],
        *,
        recorder: Recorder | None = None,
        chooser: HoldChooser | None = None,
        stepper: Stepper | None = None,
        dropped: frozenset[str] = frozenset(),
    ) -> None:
        self.lanes = lanes
        self.recorder = Recorder(lanes) if recorder is None else recorder
        self._streams = {lane: VirtualStream(lane, 1 + i) for i, lane in enumerate(lanes)}
        self._in_order = list(self._streams.values())
        self._chooser = HoldChooser(Schedule()) if chooser is None else chooser
        self._driver: Driver | None = None
        if stepper is not None:
            self._driver = Driver(
                stepper, self.recorder, self._in_order, progress=self.progress, take=self._pass
            )
        self._accesses_in_action = 0
        self._dropped = dropped

    def stream(self, lane: str) -> VirtualStream:
        return self._streams[lane]

    def upload(
        self,
        stream: VirtualStream,
        target: VirtualBuffer,
        source: VirtualHostBuffer,
        *,
        step: int,
        rows: int,
    ) -> None:
        self._copy(stream, f"h2d:{target.name.removesuffix('_gpu')}", target, source, step, rows)

    def download(
        self,
        stream: VirtualStream,
        target: VirtualHostBuffer,
        source: VirtualBuffer,
        name: str,
        *,
        step: int,
        rows: int,
    ) -> None:
        self._copy(stream, f"d2h:{name}", target, source, step, rows)

    def _copy(
        self,
        stream: VirtualStream,
        name: str,
        target: VirtualBuffer,
        source: VirtualBuffer,
        step: int,
        rows: int,
    ) -> None:
        """One copy, or two where a hold tears it."""
        full_name = f"{name}@{step}"
        torn_at = self._chooser.tear_row(stream.lane, full_name) or rows
        torn_at = torn_at if 0 < torn_at < rows else rows
        self._issue_rows(stream, full_name, step, target, source, (0, torn_at))
        if torn_at < rows:
            torn = f"{full_name}[{torn_at}:]"
            self._issue_rows(stream, torn, step, target, source, (torn_at, rows))

    def _issue_rows(
        self,
        stream: VirtualStream,
        name: str,
        step: int,
        target: VirtualBuffer,
        source: VirtualBuffer,
        rows: tuple[int, int],
    ) -> None:
        """Issues a copy of the rows from the first to before the last."""
        raise NotImplementedError

    def record(self, stream: VirtualStream, event: VirtualEvent) -> None:
        event.records += 1
        version = self.recorder.record(stream.index, event.name, event.records)
        event.latest = version
        if stream.queue:
            stream.queue.append(version)
        else:
            version.is_done = True

    def wait_stream(
        self, stream: VirtualStream, event: VirtualEvent, edge: Edge, *, step: int
    ) -> None:
        version = event.latest
        if version is None:
            return
        is_dropped = edge.name in self._dropped
        self.recorder.wait(stream.index, version, edge.name, step=step, is_dropped=is_dropped)
        if not is_dropped and not version.is_done:
            stream.queue.append((version,))

    def wait_host(self, event: VirtualEvent, edge: Edge, *, step: int) -> None:
        version = event.latest
        if version is None:
            return
        is_dropped = edge.name in self._dropped
        if self._driver is not None and not is_dropped:
            self._driver.run_until(version)
        self.recorder.wait(0, version, edge.name, step=step, is_dropped=is_dropped)
        if not is_dropped and not version.is_done:
            self._force(version, f"host waits for edge {edge.name}")
            self.progress()

    def wait_flag(self, stream: VirtualStream, flag: VirtualFlag) -> None:
        if not flag.is_set or stream.queue:
            stream.queue.append(flag)

    @contextmanager
    def action(self, name: str, *, step: int) -> Iterator[None]:
        outer = (self.recorder.action, self._accesses_in_action)
        point = f"host:{name}@{step}"
        self.recorder.action = (point, step)
        self._accesses_in_action = 0
        try:
            yield
        finally:
            last = f"{point}#{self._accesses_in_action}"
            self.recorder.action, self._accesses_in_action = outer
        if self._chooser.has_holds and (self._chooser.reach(last) | self._chooser.reach(point)):
            self.progress()

    def mark(self, alias: str, *, step: int) -> None:
        if self._chooser.has_holds:
            self._chooser.mark(alias, step)

    def use_chooser(self, chooser: HoldChooser) -> None:
        """Other holds from here on, on a device that was gone back to."""
        self._chooser = chooser

    @property
    def has_pending(self) -> bool:
        return any(stream.queue for stream in self._in_order)

    def pending(self) -> tuple[str, ...]:
        """Names of the operations that were issued and have not run."""
        return tuple(
            node.name
            for stream in self._in_order
            for node in stream.queue
            if isinstance(node, Op) and node.name
        )

    def progress(self) -> None:
        """Runs whatever is at the head of its stream and neither held nor waiting."""
        moved = True
        while moved:
            moved = False
            for stream in self._in_order:
                if stream.queue:
                    moved |= self._advance(stream)

    def _advance(self, stream: VirtualStream) -> bool:
        moved = False
        while stream.queue:
            node = stream.queue[0]
            if isinstance(node, Op):
                if node.step is not None:
                    break
                if node.ticket is not None and node.ticket.is_held:
                    break
            elif isinstance(node, tuple):
                if not node[0].is_done:
                    break
            elif isinstance(node, VirtualFlag) and not node.is_set:
                break
            self._pass(stream, node)
            moved = True
        return moved

    def _before_access(self, access: Access) -> None:
        """The host is about to touch pinned memory."""
        point = f"{self.recorder.action[0]}#{self._accesses_in_action}"
        self._accesses_in_action += 1
        if self._driver is not None:
            label = f"{self.recorder.action[0]}#{self._accesses_in_action}"
            self._driver.host_step(label, (access,))
        elif self._chooser.reach(point):
            self.progress()

    def _pass(self, stream: VirtualStream, node: Node) -> None:
        """Takes the head of a stream off the queue and lets it happen."""
        stream.queue.popleft()
        if isinstance(node, Op):
            node.run()
            self._chooser.reach(node.name)
        elif isinstance(node, Version):
            node.is_done = True

    def _force(self, version: Version, waiter: str) -> None:
        """Completes the cone of a version, held or not."""
        stream = self._in_order[version.lane - 1]
        while not version.is_done:
            self._force_head(stream, waiter)

    def _force_head(self, stream: VirtualStream, waiter: str) -> None:
        node = stream.queue[0]
        if isinstance(node, Op):
            if node.ticket is not None:
                self._chooser.forced(node.ticket)
        elif isinstance(node, tuple):
            self._force(node[0], waiter)
        elif isinstance(node, VirtualFlag) and not node.is_set:
            raise DeadlockError(
                f"{waiter}, behind the flag {node.name} on stream {stream.lane}, which the host "
                "has not set: nothing can end this wait"
            )
        self._pass(stream, node)

    def finish(self) -> Trace:
        if self._driver is not None:
            self._driver.run_all()
        for stream in self._in_order:
            while stream.queue:
                self._force_head(stream, "the end of the run waits")
        return self.trace()

    def trace(self) -> Trace:
        """What has been recorded so far."""
        return Trace(
            lanes=self.recorder.lanes,
            events=tuple(self.recorder.events),
            holds=self._chooser.outcomes(),
        )
