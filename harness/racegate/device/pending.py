"""The pending queues of a device: what was issued to its streams and may not have happened yet.

On the virtual device these queues are the execution. On CUDA they say which operations the device
may have completed. The same holds, points and waits empty them in the same order on both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from racegate.device.chooser import HoldChooser
from racegate.device.nodes import Event, Flag, Node, Op, Stream, Wait, is_unheld, told_apart
from racegate.device.recorder import Recorder, Version
from racegate.device.stepped import SteppedRun
from racegate.device.stepping import Stepper
from racegate.history.edge import Edge
from racegate.history.schedule import Schedule
from racegate.history.trace import Access, Trace


class DeadlockError(Exception):
    """A wait that nothing can end: names the waiter, the edge and what it waits for."""


class PendingQueues:
    """The streams of a device with their pending operations, holds, points and forced completion.

    lanes: the names of the streams
    chooser: the holds over the eager baseline, or what takes every step by choice instead of it
    dropped: names of edges whose waits do nothing (seeded faults)
    """

    def __init__(
        self,
        lanes: tuple[str, ...],
        *,
        recorder: Recorder | None = None,
        chooser: HoldChooser | Stepper | None = None,
        dropped: frozenset[str] = frozenset(),
    ) -> None:
        self.recorder = Recorder(lanes) if recorder is None else recorder
        self.streams = tuple(Stream(lane, 1 + i) for i, lane in enumerate(lanes))
        self._by_lane = {stream.lane: stream for stream in self.streams}
        self.stepped: SteppedRun | None = None
        self.chooser = HoldChooser(Schedule())
        if isinstance(chooser, HoldChooser):
            self.chooser = chooser
        elif chooser is not None:
            self.stepped = SteppedRun(
                chooser, self.recorder, self.streams, progress=self.progress, take=self._pass
            )
        self._dropped = dropped
        self._accesses_in_action = 0
        self._may_pass: Callable[[Node], bool] = is_unheld
        self._before_forcing: Callable[[], None] = _nothing

    def follow(
        self, *, may_pass: Callable[[Node], bool], before_forcing: Callable[[], None]
    ) -> None:
        """Makes these the queues of a device that goes on by itself.

        may_pass: whether the device got past the head of a queue
        before_forcing: called before something held is let go because a wait needs it
        """
        self._may_pass = may_pass
        self._before_forcing = before_forcing

    def use_chooser(self, chooser: HoldChooser) -> None:
        """Other holds from here on."""
        self.chooser = chooser

    def stream(self, lane: str) -> Stream:
        """The stream of that name."""
        return self._by_lane[lane]

    def pieces(self, stream: Stream, name: str, rows: int) -> list[tuple[str, int, int]]:
        """A copy of so many rows as (name, first, end): one piece, or two where a hold tears it."""
        torn_at = self.chooser.tear_row(stream.lane, name)
        if torn_at is None or not 0 < torn_at < rows:
            return [(name, 0, rows)]
        return [(name, 0, torn_at), (f"{name}[{torn_at}:]", torn_at, rows)]

    def record(self, stream: Stream, event: Event) -> None:
        """A new version of the event, complete when the stream gets there."""
        version = self.recorder.record(stream.index, event.name, event.records + 1)
        event.add(version)
        self.arrange(stream, version)

    def arrange(self, stream: Stream, version: Version) -> None:
        """The version is complete when the stream gets there."""
        version.begin(is_done=not stream.queue)
        if stream.queue:
            stream.queue.append(version)

    def wait_stream(self, stream: Stream, event: Event, edge: Edge, *, step: int) -> Version | None:
        """The version that the stream has to wait for from now on, if any."""
        version = event.latest
        if version is None:
            return None
        is_dropped = edge.name in self._dropped
        self.recorder.wait(stream.index, version, edge.name, step=step, is_dropped=is_dropped)
        if is_dropped:
            return None
        self.hold_back(stream, version)
        return version

    def hold_back(self, stream: Stream, version: Version) -> None:
        """What is issued to the stream from now on waits for the version."""
        if not version.is_done:
            stream.queue.append(Wait(version))

    def wait_host(self, event: Event, edge: Edge, *, step: int) -> Version | None:
        """The version that the host has waited for, if any. Raises DeadlockError."""
        version = event.latest
        if version is None:
            return None
        is_dropped = edge.name in self._dropped
        if self.stepped is not None and not is_dropped:
            self.stepped.run_until(version)
        host = self.recorder.host
        self.recorder.wait(host, version, edge.name, step=step, is_dropped=is_dropped)
        if is_dropped:
            return None
        self.complete(version, f"host waits for edge {edge.name}")
        return version

    def complete(self, version: Version, waiter: str) -> None:
        """What a wait of the host needs happens, held or not. Raises DeadlockError."""
        if not version.is_done:
            self._force(version, waiter)
            self.progress()

    def arrive(self, stream: Stream, arrival: Version) -> None:
        """The stream's part in a meeting, complete when the stream gets there."""
        self.recorder.arrive(stream.index, arrival)
        self.come(stream, arrival)

    def come(self, stream: Stream, arrival: Version) -> None:
        """The stream's part is complete when the stream gets there, and others may go on."""
        arrival.begin(is_done=False)
        stream.queue.append(arrival)
        self.progress()

    def wait_arrival(self, stream: Stream, arrival: Version, edge: Edge, *, step: int) -> None:
        """What is issued to the stream from now on waits for another stream, which may not have
        been given its part yet.
        """
        is_dropped = edge.name in self._dropped
        self.recorder.wait(stream.index, arrival, edge.name, step=step, is_dropped=is_dropped)
        if not is_dropped:
            self.hold_back(stream, arrival)

    def is_kept(self, edge: Edge) -> bool:
        """Whether the waits of an edge wait."""
        return edge.name not in self._dropped

    def wait_flag(self, stream: Stream, flag: Flag) -> None:
        """What is issued to the stream from now on waits for the flag."""
        if not flag.is_set or stream.queue:
            stream.queue.append(flag)

    @contextmanager
    def action(self, name: str, *, step: int) -> Iterator[None]:
        """A host action: a point when it ends, and after each of its accesses."""
        point = f"host:{name}{self.recorder.suffix}@{step}"
        outer = self.recorder.enter((point, step)), self._accesses_in_action
        self._accesses_in_action = 0
        try:
            yield
        finally:
            accesses = self._accesses_in_action
            self.recorder.enter(outer[0])
            self._accesses_in_action = outer[1]
        self.pass_point(point, accesses)

    def pass_point(self, point: str, accesses: int = 0) -> None:
        """The host has ended an action. accesses: how many of them were counted in it"""
        if not self.chooser.has_holds:
            return
        if self.chooser.reach(f"{point}#{accesses}") | self.chooser.reach(point):
            self.progress()

    def before_access(self, access: Access) -> None:
        """The host is about to touch pinned memory."""
        point = f"{self.recorder.action[0]}#{self._accesses_in_action}"
        self._accesses_in_action += 1
        if self.stepped is not None:
            self.stepped.host_step(self._access_label(), (access,))
        elif self.chooser.reach(point):
            self.progress()

    def before_query(self, version: Version) -> None:
        """The host is about to read a completion flag."""
        if self.stepped is not None:
            self._accesses_in_action += 1
            flags = self.recorder.unknown_flags(version)
            self.stepped.host_step(self._access_label(), flags)

    def _access_label(self) -> str:
        return f"{self.recorder.action[0]}#{self._accesses_in_action}"

    def mark(self, alias: str, *, step: int) -> None:
        """Holds may name this step `@alias`."""
        if self.chooser.has_holds:
            self.chooser.mark(alias, step)

    @property
    def has_pending(self) -> bool:
        """Whether anything was issued that has not happened."""
        return any(stream.queue for stream in self.streams)

    def pending(self) -> tuple[str, ...]:
        """Names of the operations that were issued and have not run."""
        return tuple(
            node.name
            for stream in self.streams
            for node in stream.queue
            if isinstance(node, Op) and node.name
        )

    def queued(self) -> Hashable:
        """What stands in each queue."""
        return tuple([tuple(map(told_apart, stream.queue)) for stream in self.streams])

    def progress(self) -> None:
        """Lets happen whatever is at the head of its stream and may."""
        self._pass_all(self._may_pass)

    def complete_unheld(self) -> None:
        """Lets happen whatever nothing holds, also what a device that goes on by itself has not
        done yet.
        """
        self._pass_all(is_unheld)

    def _pass_all(self, may_pass: Callable[[Node], bool]) -> None:
        moved = True
        while moved:
            moved = False
            for stream in self.streams:
                while stream.queue and may_pass(stream.queue[0]):
                    self._pass(stream)
                    moved = True

    def _pass(self, stream: Stream) -> None:
        """Takes the head of a stream off the queue and lets it happen."""
        node = stream.queue.popleft()
        if isinstance(node, Op):
            node.run()
            self.chooser.reach(node.name)
        elif isinstance(node, Version):
            node.is_done = True

    def _force(self, version: Version, waiter: str) -> None:
        """Completes the cone of a version, held or not."""
        stream = self.streams[version.lane - 1]
        while not version.is_done:
            if not stream.queue:
                raise DeadlockError(
                    f"{waiter}, behind {version.event} number {version.number}, which nobody has "
                    f"issued to stream {stream.lane}: nothing can end this wait"
                )
            self._force_head(stream, waiter)

    def _force_head(self, stream: Stream, waiter: str) -> None:
        node = stream.queue[0]
        if isinstance(node, Op) and node.ticket is not None and node.ticket.is_held:
            self._before_forcing()
            self.chooser.forced(node.ticket)
        elif isinstance(node, Wait):
            self._force(node.version, waiter)
        elif isinstance(node, Flag) and node.is_held:
            raise DeadlockError(
                f"{waiter}, behind the flag {node.name} on stream {stream.lane}, which the host "
                "has not set: nothing can end this wait"
            )
        # On a device that goes on by itself it may have happened meanwhile.
        if stream.queue and stream.queue[0] is node:
            self._pass(stream)

    def finish(self) -> Trace:
        """Completes everything that is pending and returns the trace."""
        if self.stepped is not None:
            self.stepped.run_all()
        for stream in self.streams:
            while stream.queue:
                self._force_head(stream, "the end of the run waits")
        return self.trace()

    def trace(self) -> Trace:
        """What has been recorded so far."""
        return Trace(
            lanes=self.recorder.lanes,
            events=tuple(self.recorder.events),
            holds=self.chooser.outcomes(),
        )


def _nothing() -> None:
    """What there is to do before something held is let go."""
