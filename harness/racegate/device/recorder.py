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
    rank_suffix,
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

    def begin(self, *, is_done: bool) -> None:
        """The device has taken the record. is_done: its stream was there already"""
        self.is_done = is_done


class Recorder:
    """Vector clocks per lane, and the list of trace events.

    lanes: the names of the streams; those of several ranks end with `.rank0`, `.rank1` and so on
    is_recording: whether it is worth working out what an operation touches
    host: the lane of the host whose turn it is; suffix: of its rank
    met: storages in which ranks meet, as far as an edge orders what they do there
    """

    is_recording = True

    def __init__(self, lanes: tuple[str, ...]) -> None:
        self.suffixes = tuple(dict.fromkeys(map(rank_suffix, lanes)))
        first, *others = (f"host{suffix}" for suffix in self.suffixes)
        self.lanes = (first, *lanes, *others)
        self.events: list[TraceEvent] = []
        self.action = ("host:start", -1)
        self.host = HOST
        self.suffix = self.suffixes[0]
        self.met: set[int] = set()
        self._clocks = Clocks(len(self.lanes))

    def turn(self, rank: int) -> None:
        """What the host does from now on is done by this rank's."""
        self.suffix = self.suffixes[rank]
        self.host = self.lanes.index(f"host{self.suffix}")

    def enter(self, action: tuple[str, int]) -> tuple[str, int]:
        """What the host does is part of another action, (name, step), from now on; returns the one
        before.
        """
        outer, self.action = self.action, action
        return outer

    def issue(self, lane: int, name: str, step: int, accesses: tuple[Access, ...]) -> None:
        """An operation is put on a stream by the host."""
        number, clock = self._clocks.issue(self.host, lane)
        self.events.append(OpRecord(name, step, lane, number, clock, accesses))

    def host_access(self, access: Access) -> None:
        """The host touches memory, as part of the action that goes on."""
        name, step = self.action
        host = self.host
        number, known = self._clocks.number(host), self._clocks.known(host)
        self.events.append(HostAccess(name, step, number, known, access, host))

    def record(self, lane: int, event: str, number: int) -> Version:
        """An event is recorded behind what the lane has. number: of its records, from 1"""
        version = Version(event, number, lane, self._clocks.record(self.host, lane))
        self.events.append(Recorded(event, number, lane, version.clock))
        return version

    def arrive(self, lane: int, arrival: Version) -> None:
        """The record that others may wait for already is made."""
        arrival.clock = self._clocks.record(self.host, lane)
        self.events.append(Recorded(arrival.event, arrival.number, lane, arrival.clock))

    def wait(self, lane: int, version: Version, edge: str, *, step: int, is_dropped: bool) -> None:
        """A stream, or the host, waits for a version; a dropped wait orders nothing."""
        if not is_dropped:
            self._clocks.learn(lane, version.clock)
        seq = self._clocks.number(lane)
        self.events.append(Waited(edge, version.event, version.number, lane, step, seq, is_dropped))

    @property
    def host_clock(self) -> Clock:
        """What the host knows to have happened."""
        return self._clocks.known(self.host)

    def unknown_flags(self, version: Version) -> tuple[Access, ...]:
        """Reads of the completion flags that decide a query of the version."""
        known = self.host_clock
        return tuple(
            Access("flag", flag_of(lane, seq).storage, 1, False)
            for lane, seq in enumerate(version.clock)
            if lane != self.host and seq > known[lane]
        )

    def query(self, version: Version) -> None:
        """The host reads the completion flag of a version."""
        is_ordered = covers(self.host_clock, version.clock)
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

    def arrive(self, lane: int, arrival: Version) -> None:
        """Nothing."""

    def wait(self, lane: int, version: Version, edge: str, *, step: int, is_dropped: bool) -> None:
        """Nothing."""

    def query(self, version: Version) -> None:
        """Nothing."""

    def misowned(
        self, name: str, step: int, buffer: str, row: int, expected: Owner, actual: Owner | None
    ) -> None:
        """Nothing."""
