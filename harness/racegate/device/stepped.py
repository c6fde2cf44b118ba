"""SteppedRun: lets a stepper take every step of the virtual device's host and streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from racegate.device.nodes import Op, Stream
from racegate.device.recorder import Recorder, Version
from racegate.device.stepping import Stepper, Transition, flag_of
from racegate.history.trace import HOST, Access, Clock, OpRecord


class SteppedRun:
    """Offers the stepper what could happen next, and makes its choice happen.

    progress: passes everything at the heads of streams that is no operation
    take: takes the head of a stream
    """

    def __init__(
        self,
        stepper: Stepper,
        recorder: Recorder,
        streams: Sequence[Stream],
        *,
        progress: Callable[[], None],
        take: Callable[[Stream], None],
    ) -> None:
        self._stepper = stepper
        self._recorder = recorder
        self._streams = streams
        self._progress = progress
        self._take = take
        self._host_steps = 0

    def as_step(self, stream: Stream) -> Transition:
        """The operation just issued, as a step of its stream."""
        record = self._recorder.events[-1]
        assert isinstance(record, OpRecord)
        seen = (one for one in record.accesses if one.storage not in self._recorder.met)
        accesses = (*seen, flag_of(record.lane, record.seq))
        clock = self._known(record.clock)
        issued = len(self._recorder.events)
        return Transition(stream.index, record.seq, record.name, accesses, clock, issued)

    def host_step(self, label: str, accesses: tuple[Access, ...]) -> None:
        """The host is about to do something: operations run until the stepper chooses it."""
        clock = self._known(self._recorder.host_clock)
        issued = len(self._recorder.events) + 1
        host = Transition(HOST, self._host_steps + 1, label, accesses, clock, issued)
        while True:
            ready = self._ready()
            chosen = self._stepper.choose([host, *(head for _, head in ready)])
            if chosen == 0:
                self._host_steps += 1
                return
            self._run(ready[chosen - 1][0])

    def _known(self, clock: Clock) -> Clock:
        """By process: all hosts take their steps in one, whose turn it is."""
        return (self._host_steps, *clock[1 : 1 + len(self._streams)])

    def run_until(self, version: Version) -> None:
        """The host is blocked: operations run until the version is complete."""
        while not version.is_done:
            ready = self._ready()
            if version.is_done or not ready:
                return
            self._run(ready[self._stepper.choose([head for _, head in ready])][0])

    def run_all(self) -> None:
        """The host has ended: everything that is pending runs."""
        while ready := self._ready():
            self._run(ready[self._stepper.choose([head for _, head in ready])][0])

    def _run(self, stream: Stream) -> None:
        self._take(stream)

    def _ready(self) -> list[tuple[Stream, Transition]]:
        """Streams whose next operation could run, with it."""
        self._progress()
        ready = []
        for stream in self._streams:
            head = stream.queue[0] if stream.queue else None
            if isinstance(head, Op) and head.step is not None:
                ready.append((stream, head.step))
        return ready
