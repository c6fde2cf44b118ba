"""LatchedStreams: work on real streams, with holds as latches.

The host keeps the same pending queues as on the virtual device: what was issued and may not have
happened. There they are the execution; here they say which latches are closed, what a host wait has
to open first, and when an operation that is the point of a hold has completed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from racegate.device.chooser import HoldChooser, Ticket
from racegate.device.cuda.backlog import Backlog
from racegate.device.cuda.driver import CudaDriver, Handle
from racegate.device.cuda.latches import Latch, Latches
from racegate.device.cuda.pacing import Pace, Pacing
from racegate.device.cuda.watchdog import Watchdog
from racegate.device.cuda.work import PutWork
from racegate.device.nodes import Event, Flag, Node, Op, Stream
from racegate.device.pending import PendingQueues
from racegate.device.recorder import Recorder
from racegate.history.edge import Edge
from racegate.history.trace import Access, HoldOutcome, Trace


class LatchedOp(Op):
    """An operation that the device has. latch: in front of it; done: recorded behind it."""

    __slots__ = ("done", "latch")

    def __init__(
        self,
        name: str,
        run: Callable[[], None],
        ticket: Ticket | None,
        *,
        latch: Latch | None,
        done: Handle,
    ) -> None:
        super().__init__(name, run, ticket)
        self.latch = latch
        self.done = done


class LatchedStreams:
    """The streams of one run, its pending queues and its latches.

    setup: a stream for what belongs to no lane; it has no latches
    """

    def __init__(
        self,
        lanes: tuple[str, ...],
        cuda: CudaDriver,
        *,
        pace: Pace,
        chooser: HoldChooser | None,
        dropped: frozenset[str],
        recorder: Recorder | None,
    ) -> None:
        self.queues = PendingQueues(lanes, recorder=recorder, chooser=chooser, dropped=dropped)
        cuda.begin()
        self._cuda = cuda
        self._is_eager = pace.pacing is Pacing.EAGER
        if not self._is_eager:
            unheld = self.queues.complete_unheld
            # The point of a hold may be an operation that nothing holds and that is still running.
            self.queues.follow(may_pass=self._has_happened, before_forcing=unheld)
        self._handles = [cuda.stream() for _ in lanes]
        self.setup = cuda.stream()
        self._is_set_up = True
        self._latches = Latches(cuda, self.setup)
        self._flag_latches: dict[Flag, Latch] = {}
        self._backlog = Backlog(cuda)
        self._watchdog = Watchdog(seconds=pace.patience_s, on_expiry=self._latches.expire)
        # Without holds and flags nothing the host waits for can be held up: no queues are needed.
        self._keeps_queues = self._is_eager or self.queues.chooser.has_holds
        self._events: list[Handle] = []
        self._is_finished = False

    @property
    def has_expired(self) -> bool:
        """Whether the watchdog had to open the latches."""
        return self._watchdog.has_expired

    @property
    def watches_accesses(self) -> bool:
        """Whether `before_access` has to be called."""
        return self._is_eager or self.queues.chooser.watches_accesses

    def beat(self) -> None:
        self._watchdog.beat()

    def expect_setup(self) -> None:
        """Something was put on the stream `setup` that must be there before what follows."""
        self._is_set_up = False

    def _set_up(self) -> None:
        """What was made since the last time is there before anything that follows on a stream."""
        self._is_set_up = True
        event = self._done(self.setup)
        for handle in self._handles:
            self._cuda.wait(handle, event)
        self._events.append(event)

    def flag(self, name: str) -> Flag:
        """A flag that is a latch."""
        latch = self._latches.make()

        def on_set() -> None:
            self._open(latch)
            self._progress()

        flag = Flag(name, on_set)
        self._flag_latches[flag] = latch
        return flag

    def put(
        self,
        stream: Stream,
        name: str,
        work: PutWork,
        ticket: Ticket | None,
        accesses: Sequence[Access] = (),
    ) -> None:
        """Hands work to the device, behind a latch if it may not run at once."""
        self._watchdog.beat()
        if not self._is_set_up:
            self._set_up()
        handle = self._handles[stream.index - 1]
        latch = None
        if ticket is None and not (self._is_eager and stream.queue):
            self._backlog.wait_unless_on(handle)
        else:
            self._backlog.wait()
            latch = self._latches.make(ticket)
            self._watchdog.start()
            self._latches.put(handle, latch)
        work.put(handle)
        if latch is None and (self._is_eager or not self._keeps_queues):
            self._let_go(handle, name, work, accesses)
            return
        done = self._done(handle)

        def run() -> None:
            self._complete(work, latch, done)

        stream.queue.append(LatchedOp(name, run, ticket, latch=latch, done=done))
        self._progress()

    def _let_go(self, handle: Handle, name: str, work: PutWork, accesses: Sequence[Access]) -> None:
        """Nothing stands before this work: for the pending queues it has happened."""
        work.settle()
        if self._is_eager:
            self._backlog.add(handle, accesses)
            if self.queues.chooser.reach(name):
                self._progress()

    def _open(self, latch: Latch) -> None:
        """What stands behind the latch comes after everything that the pending queues say has
        happened.
        """
        self._backlog.wait()
        self._latches.open(latch)

    def _done(self, handle: Handle) -> Handle:
        """An event recorded behind what the stream has."""
        event = self._events.pop() if self._events else self._cuda.event()
        self._cuda.record(event, handle)
        return event

    def _complete(self, work: PutWork, latch: Latch | None, done: Handle) -> None:
        """The pending queues let an operation happen: the host waits until it has."""
        if latch is not None:
            self._open(latch)
        self._cuda.synchronize(done)
        self._events.append(done)
        work.settle()

    def before_access(self, access: Access) -> None:
        self._backlog.wait_for(access)
        if self.queues.chooser.watches_accesses:
            self.queues.before_access(access)

    def record(self, stream: Stream, event: Event) -> None:
        """In the pending queues and on the device."""
        self.queues.record(stream, event)
        self._cuda.record(event.handle, self._handles[stream.index - 1])

    def wait_stream(self, stream: Stream, event: Event, edge: Edge, *, step: int) -> None:
        """In the pending queues and on the device."""
        version = self.queues.wait_stream(stream, event, edge, step=step)
        if version is not None:
            if not version.is_done:
                self._backlog.wait()
            self._cuda.wait(self._handles[stream.index - 1], event.handle)

    def wait_host(self, event: Event, edge: Edge, *, step: int) -> None:
        """Opens what stands before the event, then waits. Raises DeadlockError."""
        self._watchdog.beat()
        if self.queues.wait_host(event, edge, step=step) is not None:
            self._cuda.synchronize(event.handle)

    def wait_flag(self, stream: Stream, flag: Flag) -> None:
        """What is put on the stream from now on waits for the flag's latch."""
        self._keeps_queues = True
        self._backlog.wait()
        self._watchdog.start()
        self.queues.wait_flag(stream, flag)
        self._latches.put(self._handles[stream.index - 1], self._flag_latches[flag])

    def query(self, event: Event) -> bool:
        """Whether the latest record of the event is complete."""
        version = event.latest
        if version is None:
            return True
        self._watchdog.beat()
        self._progress()
        self.queues.recorder.query(version)
        # Eagerly by the pending queues: the host waits when it touches what came before the record.
        return version.is_done if self._is_eager else self._cuda.query(event.handle)

    def _progress(self) -> None:
        """EAGER: waits for whatever nothing holds. NATURAL: takes note of what has completed."""
        if self._keeps_queues:
            self.queues.progress()

    def _has_happened(self, node: Node) -> bool:
        """NATURAL: whether the device got past the head of a queue. Opens its latch if no hold
        keeps it.
        """
        if node.is_held:
            return False
        if isinstance(node, LatchedOp):
            if node.latch is not None:
                self._latches.open(node.latch)
            return self._cuda.query(node.done)
        return True

    def finish(self) -> Trace:
        self._watchdog.beat()
        self.queues.finish()
        self.close()
        return self.trace()

    def close(self) -> None:
        """Opens what is still closed and waits for the device: so a stopped run ends."""
        self._latches.expire()
        self._cuda.drain()
        self._watchdog.stop()
        self._latches.gather()
        self._is_finished = True

    def trace(self) -> Trace:
        """What has been recorded. A hold is realised if the device's evidence says so too."""
        trace = self.queues.trace()
        missing = self._latches.unconfirmed() if self._is_finished else {}
        holds = tuple(
            HoldOutcome(
                hold=hold.hold,
                matched=hold.matched,
                realised=max(0, hold.realised - missing.get(hold.hold, 0)),
            )
            for hold in trace.holds
        )
        return Trace(lanes=trace.lanes, events=trace.events, holds=holds)
