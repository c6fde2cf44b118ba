"""Recorder: turns what a program asks of a device into a trace with vector clocks. Shared by all
devices.

It knows the program's edges only (host order, issue, stream order, waits), never when something
really ran, so a trace is the same for every schedule of a program that does not branch on what it
reads.
"""

from __future__ import annotations

from racegate.device.stepping import flag_of
from racegate.history.trace import (
    HOST,
    Access,
    Clock,
    HostAccess,
    Misowned,
    OpRecord,
    Owner,
    Queried,
    Recorded,
    TraceEvent,
    Waited,
)
from racegate.order.clocks import Clocks, covers


class Version:
    """One record of an event. is_done is the device's business, the clock the recorder's.

    is_held: never: a record happens when its stream gets there
    """

    __slots__ = ("clock", "event", "is_done", "lane", "number")

    is_held = False

    def __init__(self, event: str, number: int, lane: int, clock: Clock) -> None:
        self.event = event
        self.number = number
        self.lane = lane
        self.clock = clock
        self.is_done = False


class Recorder:
    """Vector clocks per lane, and the list of trace events.

    is_recording: whether it is worth working out what an operation touches
    """

    is_recording = True

    def __init__(self, lanes: tuple[str, ...]) -> None:
        self.lanes = ("host", *lanes)
        self.events: list[TraceEvent] = []
        self.action = ("host:start", -1)
        self._clocks = Clocks(len(self.lanes))

    def enter(self, action: tuple[str, int]) -> tuple[str, int]:
        """What the host does is part of another action, (name, step), from now on; returns the one
        before.
        """
        outer, self.action = self.action, action
        return outer

    def issue(self, lane: int, name: str, step: int, accesses: tuple[Access, ...]) -> None:
        """An operation is put on a stream by the host."""
        number, clock = self._clocks.issue(HOST, lane)
        self.events.append(OpRecord(name, step, lane, number, clock, accesses))

    def host_access(self, access: Access) -> None:
        """The host touches memory, as part of the action that goes on."""
        name, step = self.action
        number = self._clocks.number(HOST)
        self.events.append(HostAccess(name, step, number, self._clocks.known(HOST), access))

    def record(self, lane: int, event: str, number: int) -> Version:
        """An event is recorded behind what the lane has. number: of its records, from 1"""
        version = Version(event, number, lane, self._clocks.record(HOST, lane))
        self.events.append(Recorded(event, number, lane, version.clock))
        return version

    def wait(self, lane: int, version: Version, edge: str, *, step: int, is_dropped: bool) -> None:
        """A stream, or the host (lane 0), waits for a version; a dropped wait orders nothing."""
        if not is_dropped:
            self._clocks.learn(lane, version.clock)
        seq = self._clocks.number(lane)
        self.events.append(Waited(edge, version.event, version.number, lane, step, seq, is_dropped))

    @property
    def host_clock(self) -> Clock:
        """What the host knows to have happened."""
        return self._clocks.known(HOST)

    def unknown_flags(self, version: Version) -> tuple[Access, ...]:
        """Reads of the completion flags that decide a query of the version."""
        known = self.host_clock
        return tuple(
            Access("flag", flag_of(lane, seq).storage, 1, False)
            for lane, seq in enumerate(version.clock)
            if lane != HOST and seq > known[lane]
        )

    def query(self, version: Version) -> None:
        """The host reads the completion flag of a version."""
        is_ordered = covers(self.host_clock[1:], version.clock[1:])
        self.events.append(Queried(self.action[0], version.event, version.number, is_ordered))

    def misowned(
        self, name: str, step: int, buffer: str, row: int, expected: Owner, actual: Owner | None
    ) -> None:
        """A cell was read that carries another owner than the reader meant. name: the reader"""
        self.events.append(Misowned(name, step, buffer, row, expected, actual))


class NullRecorder(Recorder):
    """Records nothing: the bare engine, for measuring what recording costs."""

    is_recording = False

    def issue(self, lane: int, name: str, step: int, accesses: tuple[Access, ...]) -> None:
        """Nothing."""

    def host_access(self, access: Access) -> None:
        """Nothing."""

    def record(self, lane: int, event: str, number: int) -> Version:
        """A version that nothing is known of."""
        return Version(event, number, lane, ())

    def wait(self, lane: int, version: Version, edge: str, *, step: int, is_dropped: bool) -> None:
        """Nothing."""

    def query(self, version: Version) -> None:
        """Nothing."""

    def misowned(
        self, name: str, step: int, buffer: str, row: int, expected: Owner, actual: Owner | None
    ) -> None:
        """Nothing."""
