"""Session: one program on one virtual device, from the first call to the verdict."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import FrameType

from racegate.interpose.device.copies import is_late
from racegate.interpose.device.frames import OwnDepth, kind_of_code
from racegate.interpose.device.graphs import Graphs
from racegate.interpose.device.guards import Guards
from racegate.interpose.device.host_threads import HeldThreads, HostThreads
from racegate.interpose.device.listener import Listener, Runtime
from racegate.interpose.device.queue import Queue, Work, WorkQueue
from racegate.interpose.device.spans import AllocationSites, Place, ProgramSites, Spans
from racegate.interpose.device.touches import (
    BLOCKING,
    OTHER_THREADS,
    QUERIES,
    RefuseWrite,
    TouchWatch,
)
from racegate.interpose.native.library import new_walk
from racegate.interpose.native.streams import DeviceStreams, current_stream
from racegate.order.clocks import Clock, OpenRecords, covers
from racegate.order.ranges import Ranges
from racegate.order.recorder import Conflict, Recorder, Stack


class Session:
    """Lanes of this program's threads and streams, its memory, and the queue of its device.

    polls_max: how often a query of unfinished work is answered "not ready" first
    is_over: nothing is judged any more: the program has ended, or this is a forked child
    not_seen: what was asked and could not be followed exactly, by kind, for the verdict
    parts: labels of a graph's operations, by the label of its replay
    drain: takes in what was logged, if anything was: always before anything else is judged
    within: the frames of torch inside the innermost of a stack that `stack` gave
    off_record: inside, what a thread does is a compiler's: no operation of the program, no wait
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        on_conflict: Callable[[Conflict], None] | None = None,
        refuse_write: RefuseWrite | None = None,
        listener: Listener | None = None,
    ) -> None:
        label = None if listener is None else listener.label
        self.recorder = Recorder(label=label, on_conflict=on_conflict)
        self.host_threads = HostThreads(self.recorder, runtime.thread_number)
        self.queue: WorkQueue = Queue()
        self.work = runtime.work
        self.spans = Spans()
        self.allocation_sites = AllocationSites()
        self.origins = ProgramSites(self)
        self.guards = Guards(runtime.guard)
        self.not_seen: Counter[str] = Counter()
        self.touches = TouchWatch(
            self, refuse_write=refuse_write, lands_at_once=runtime.lands_at_once
        )
        self.parts: dict[str, list[str]] = {}
        self.graphs = Graphs(self)
        self.held_threads = HeldThreads()
        self.is_recording = True
        self.is_over = False
        self.drain: Callable[[], None] = partial(runtime.take_in, self)
        self.polls_max = 0
        self._settle = runtime.settle_event
        self._listener = listener
        self._polls: Counter[tuple[int | None, tuple[int, ...]]] = Counter()
        self.lock = threading.RLock()
        self._own = OwnDepth()
        self.off_record = OwnDepth()
        self._unsettled = OpenRecords()
        self._walk, self.within = new_walk(kind_of_code)
        self._main = threading.get_ident()
        self._streams = DeviceStreams(self.recorder)

    def begin(self, queue: WorkQueue, *, polls_max: int = 0, is_recording: bool = True) -> None:
        """A run begins under a plan: what is held, what queries answer, whether it is recorded."""
        self.queue = queue
        self.polls_max = polls_max
        self.is_recording = is_recording
        self.is_over = False

    def end(self) -> None:
        """The program has ended: nothing is judged any more."""
        self.is_over = True
        self.guards.open_all()

    # ---- whose work it is

    @property
    def is_own(self) -> bool:
        """Whether this thread does the device's own work, which is nobody's access."""
        return self._own.depth > 0 or self.is_over

    def own(self) -> AbstractContextManager[None]:
        """What the thread does inside is the device's own work."""
        return self._own

    def leave(self) -> None:
        """This is a forked child of the program: whatever it does is computed and not judged."""
        self.begin(Queue(), is_recording=False)
        self.lock = threading.RLock()  # another thread may have held these
        self.allocation_sites, self.origins = AllocationSites(), ProgramSites(self)
        self.work.leave()
        self.end()

    @property
    def is_bare(self) -> bool:
        """Nobody watches and nothing is held: the device only computes."""
        return self.holds_nothing and (self._listener is None or not self._listener.hears)

    @property
    def holds_nothing(self) -> bool:
        """Nothing will be held any more, and nothing is recorded."""
        return not self.is_recording and self.queue.is_eager and not self.polls_max

    def thread_lane(self, number: int | None = None) -> int:
        """Lane of a thread that touches what the device can reach. number: as it is logged"""
        lane = self.host_threads.acting_lane(number)
        if self.host_threads.acting:
            self.not_seen[OTHER_THREADS] = len(self.host_threads.acting)
        return lane

    def hand_on(self) -> Clock:
        """This thread releases a lock, puts into a queue, starts or ends a thread."""
        self.drain()
        return self.host_threads.hand_on()

    def take(self, clock: Clock) -> None:
        """This thread learns what another handed on."""
        self.drain()
        self.host_threads.take(clock)

    def stream_lane(self, handle: int) -> int:
        return self._streams.lane(handle)

    def stream_handle(self, lane: int) -> int:
        """The stream of a lane, as the runtime knows it."""
        return self._streams.handle(lane)

    def name_stream(self, handle: int, *, is_blocking: bool, gpu: int = 0) -> None:
        """A stream was created."""
        self._streams.created(handle, gpu)
        self.not_seen.update((BLOCKING,) if is_blocking and gpu else ())
        if is_blocking and not gpu:
            self._streams.blocks(handle)

    def stack(self, frame: FrameType | None = None) -> Stack:
        """Frames of the program, innermost first: no torch, no standard library, none of ours.
        frame: where to begin, if not with the caller.
        """
        if not self.is_recording and self.is_bare:
            return ()
        frames = self._walk(frame)
        if not frames and threading.get_ident() != self._main:  # a backward pass has no own ones
            caller = self.host_threads.caller()
            if caller is not None:
                frames = self._walk(sys._current_frames().get(caller.ident))
        return frames if self._listener is None else self._listener.stack(frames)

    def main_frame(self) -> FrameType | None:
        """Where the main thread stands."""
        return sys._current_frames().get(self._main)

    # ---- what the device is asked

    def issue(
        self,
        kind: str,
        stream: int,
        reads: Ranges,
        writes: Ranges,
        run: Work | None,
        *,
        stack: Stack | None = None,
    ) -> str:
        """An operation on a stream; returns its label. run: its work, if it was not done already
        (eager runs).
        """
        self.work.add()
        listener = self._listener
        if listener is not None and run is not None:
            run = listener.work(kind, run)
        is_unseen = self.off_record.depth > 0
        if is_unseen and self.queue.has_pending():
            self.force_stream(stream)
        if is_unseen or (not self.is_recording and self.is_bare):
            self.allocation_sites.hide(writes if self.is_recording else ())
            if run is not None:
                run()
            return ""
        if listener is not None:
            kind = listener.kind(kind, reads, writes)
        with self.lock:
            self.drain()
            lane = self._streams.lane(stream)
            stack = self.stack() if stack is None else stack
            recorder, is_eager = self.recorder, self.queue.is_eager
            label = recorder.label(kind, stack)
            if not is_eager:
                self._reach(label, reads, writes, recorder.lanes.of(self.thread_lane(), lane))
            seen = (reads, writes) if self.is_recording else ((), ())
            lane = recorder.issue(self.thread_lane(), lane, label, stack, *seen)
            if is_eager and run is not None and not is_late(run):
                run()
            elif run is not None:
                lanes = recorder.lanes
                self.queue.submit(label, lane, lanes.number(lane), lanes.clock(lane), run)
            if recorder.is_watched():
                self.touches.use(recorder.last_access(), *seen)
            if self.guards.has_lifted:
                self.guards.settle()
            if listener is not None and not is_eager:
                listener.reached(self.queue, label, reads, writes)
        return label

    def _reach(self, label: str, reads: Ranges, writes: Ranges, lane: int | None = None) -> None:
        """The program comes to an access. lane: of an operation; None for the host"""
        if self._listener is not None:
            self._listener.reach(self.queue, label, reads, writes, partial(self._is_behind, lane))
        self.queue.reach(label)

    def _is_behind(self, lane: int | None) -> bool:
        """Whether an operation of this lane would wait for what has not run; never the host."""
        if lane is None:
            return False
        clock = self.recorder.lanes.clock
        return self.queue.is_behind(lane, clock(lane), clock(self.thread_lane()))

    def host_access(self, kind: str, reads: Ranges, writes: Ranges) -> None:
        """The program is about to touch pinned memory."""
        if self.is_own or not (reads or writes):
            return
        self.work.add()
        if not self.is_bare:
            self._note_access(kind, reads, writes)
        if self._listener is not None:
            self._listener.touches(reads, writes)

    def _note_access(self, kind: str, reads: Ranges, writes: Ranges) -> None:
        if self._listener is not None:
            kind = self._listener.access_kind(kind, reads, writes)
        with self.lock:
            self.drain()
            stack = self.stack()
            label = self.recorder.label(kind, stack)
        if self.queue.holds_host(label):
            self.held_threads.keep_back()
        with self.lock:
            if self.queue.has_pending():
                self._reach(label, reads, writes)
                if self._listener is not None:
                    self._listener.reached(self.queue, label, reads, writes)
            if self.is_recording:
                self.recorder.host(self.thread_lane(), label, stack, reads, writes)
                self.touches.expect(reads, writes)

    def wait_stream(self, stream: int) -> None:
        """The operation that was issued last waits, inside, for its stream: the host with it."""
        if not self.is_recording:  # nobody knows which it was, and nobody asks
            self.synchronize(stream)
        elif not self.off_record.depth:
            kind = self.recorder.last_access().label.partition("@")[0]
            self.synchronize(stream, by=f"the implicit wait of {kind}")

    def synchronize(self, *streams: int, by: str = "") -> None:
        """The host waits for streams. by: what does, in words, if not the program itself"""
        if self.off_record.depth:
            return
        with self.lock:
            self.drain()
            stack, thread = self.stack(), self.thread_lane()
            for lane in dict.fromkeys(map(self.stream_lane, streams)):
                self._arrive(self.recorder.wait_stream(thread, lane, stack, by=by))

    def synchronize_gpu(self, gpu: int) -> None:
        """The host waits for each stream of a GPU."""
        self.drain()
        self.synchronize(*self._streams.of_gpu(gpu), by="the wait for the whole device")

    def wait_event(self, event: int) -> None:
        """The host waits for an event."""
        with self.lock:
            self.drain()
            clock = self.recorder.wait(self.thread_lane(), event, self.stack())
            if clock is not None:
                self._arrive(clock)

    def query_event(self, event: int) -> bool:
        """The program asks whether an event is complete. A True answer is an edge."""
        with self.lock:
            self.drain()
            version = self.recorder.version(event)
            return version is None or self._answer(version.clock, event)

    def query_stream(self, stream: int) -> bool:
        with self.lock:
            self.drain()
            lane = self.stream_lane(stream)
            clock = self.recorder.given(self.thread_lane(), lane)
            if not self._answer(clock, None):
                return False
            self._arrive(self.recorder.wait_stream(self.thread_lane(), lane, self.stack()))
            return True

    def _answer(self, clock: Clock, event: int | None) -> bool:
        thread = self.thread_lane()
        if covers(self.recorder.lanes.clock(thread), clock):
            return True
        self.not_seen[QUERIES] += 1
        asked = (event, tuple(clock))
        self._polls[asked] += 1
        if self._polls[asked] <= max(self.polls_max, self.queue.is_asleep(clock)):
            return False
        if not self.queue.comes_to(clock):
            return False
        if event is not None:
            self.recorder.wait(thread, event, self.stack())
        self._arrive(clock)
        return True

    def _arrive(self, clock: Clock) -> None:
        """The host knows that all of clock is complete."""
        known = self.recorder.lanes.clock(self.thread_lane())
        if self.spans.pinned:
            self.touches.arrive(known)
        self.queue.force(clock)
        for event, number in self._unsettled.take_covered(known):
            self._settle(event, number)

    def host_learns(self, value: object) -> None:
        """The host has waited for a value of the device, or for a size that follows from one."""
        if self._listener is not None and not self.is_own:
            self._listener.learns(value)

    # ---- what the log says

    def event_recorded(self, event: int, stream: int, number: int, thread: int) -> None:
        lane = self.stream_lane(stream)
        acting = self.thread_lane(thread)
        version = self.recorder.record(event, acting, lane, self.stack())
        self._unsettled.add(event, number, version.clock, by=(acting, lane))

    def found_complete(self, event: int, thread: int) -> None:
        """An allocator was told that an event is complete."""
        lane = self.thread_lane(thread)
        self.recorder.found_complete(lane, event, self.stack())
        self.touches.found_complete(self.recorder.lanes.clock(lane))

    def event_destroyed(self, event: int) -> None:
        self.recorder.forget(event)
        self._unsettled.forget(event)

    def stream_waits(self, stream: int, event: int, thread: int) -> None:
        lane = self.stream_lane(stream)
        self.recorder.make_wait(self.thread_lane(thread), lane, event, self.stack())

    def handed_out(self, low: int, size: int, stack: Stack) -> None:
        """An allocator gave this thread memory of the device, on the current stream."""
        is_unseen = not self.is_recording or self.off_record.depth > 0
        self.allocation_sites.add(low, size, self.recorder.events, stack, is_unseen=is_unseen)
        if self.host_threads.acting and self.is_recording:
            lane = self.stream_lane(current_stream())
            self.recorder.handed_out(self.thread_lane(), low, low + size, stream=lane)

    def pinned(self, low: int, high: int) -> None:
        """An allocator gave this thread pinned memory."""
        if self.host_threads.acting and self.is_recording:
            self.recorder.handed_out(self.thread_lane(), low, high)

    def force_stream(self, stream: int) -> None:
        """All that a stream was given runs; the host learns nothing by it."""
        with self.lock:
            for lane in self.recorder.lanes.given(self.stream_lane(stream)):
                self.queue.force(self.recorder.lanes.clock(lane))

    def memory_added(
        self, base: int, size: int, place: Place, *, is_whole_pages: bool = True
    ) -> None:
        if not self.is_over:  # a forked child is told what its parent was
            self.work.add()
        self.spans.add(base, size, place, is_whole_pages=is_whole_pages)
        self.recorder.memory.add(base, size, is_watched=place is Place.PINNED)

    def memory_removed(self, base: int) -> None:
        span = self.spans.find(base)
        if span is not None:
            self.touches.forget(span)
        self.spans.remove(base)
        self.recorder.memory.remove(base)
