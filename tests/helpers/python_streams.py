"""What threads give streams: a lane for each thread and stream, because nothing orders two threads.

A stream does what it was given in the order in which it was given. Two threads may give it work in
either order, unless something of the host orders them. So a stream has a lane for each thread, and
what a thread gives it comes after what others gave it only as far as the thread knows of that. An
operation has the number that its thread has when it was issued: who knows that the thread came so
far knows that the operation was issued before.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from racegate.order.clocks import Clock, Clocks, Known, join

WAITS_MAX = 4096  # of a lane; of more, every second of the older half is forgotten


@dataclass(slots=True)
class _Lane:
    """What one thread gives one stream. stream: the first lane of the same stream; owner: the
    thread, None before the first

    waits: what it knew after each wait, by the number that its thread had then
    """

    stream: int
    owner: int | None
    is_blocking: bool
    numbers: list[int] = field(default_factory=list)
    waits: list[Known] = field(default_factory=list)


class Streams:
    """The lanes of streams, over the clocks of all lanes. legacy: of the legacy default stream"""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._lanes: dict[int, _Lane] = {}
        self._legacy: int | None = None

    def add(self, lane: int, *, is_legacy: bool, is_blocking: bool) -> None:
        """A lane is the first of a stream."""
        self._lanes[lane] = _Lane(lane, None, is_blocking)
        if is_legacy:
            self._legacy = lane

    def lane_of(self, thread: int, stream: int) -> int:
        """Of what a thread gives a stream; a new one for a new pair."""
        first = self._lanes[stream]
        for number, lane in self._lanes.items():
            if lane.stream == stream and lane.owner == thread:
                return number
        if first.owner is None:
            first.owner = thread
            return stream
        new = self._clocks.add()
        self._lanes[new] = _Lane(stream, thread, first.is_blocking)
        return new

    def issue(self, thread: int, number: int) -> None:
        """A thread gives a stream an operation, through the lane that is theirs."""
        has_waited = self._follow(thread, number)
        self._clocks.advance(number, self._clocks.tick(thread))
        if has_waited:
            self._note_wait(number, self._clocks.number(number))

    def make_wait(self, thread: int, lane: int, clock: Clock) -> None:
        """A thread makes a stream wait for what a clock covers, through the lane that is theirs."""
        self._follow(thread, lane)
        self._clocks.learn(lane, clock)
        self._note_wait(lane, self._clocks.tick(thread))

    def given(self, thread: int, stream: int) -> Clock:
        """What comes before whatever the thread gives the stream next: all that it has given it, or
        knows to have been given.
        """
        covered = self._given(thread, stream)
        self._add_legacy(thread, stream, covered)
        return covered

    def waited(self, thread: int, stream: int) -> Clock:
        """What a wait of the thread for the stream covers. A wait for the legacy default stream is
        one for the blocking streams too; one for a blocking stream is none for the legacy one.
        """
        covered = self._given(thread, stream)
        if stream == self._legacy:
            self._add_legacy(thread, stream, covered)
        return covered

    def _follow(self, thread: int, number: int) -> bool:
        """What a thread gives a stream comes after what it knows. Whether another stream was waited
        for.
        """
        stream = self._lanes[number].stream
        covered = self._given(thread, stream)
        has_waited = self._add_legacy(thread, stream, covered)
        join(covered, self._clocks.known(thread))
        self._clocks.learn(number, covered)
        return has_waited

    def _given(self, thread: int, stream: int) -> Clock:
        covered: Clock = []
        known = self._clocks.known(thread)
        for number, lane in self._lanes.items():
            if lane.stream != stream or lane.owner is None:
                continue
            if lane.owner == thread:
                join(covered, self._clocks.known(number))
                continue
            given = known[lane.owner]
            join(covered, [0] * number + [min(given, self._clocks.number(number))])
            at = bisect_right(lane.numbers, given)
            if at:
                join(covered, lane.waits[at - 1])
        return covered

    def _add_legacy(self, thread: int, stream: int, covered: Clock) -> bool:
        """The legacy default stream and the blocking streams wait for each other. Whether there was
        one to wait for.
        """
        if self._legacy is None:
            return False
        if stream != self._legacy:
            waited = [self._legacy] if self._lanes[stream].is_blocking else []
        else:
            waited = [n for n, lane in self._lanes.items() if lane.is_blocking and n == lane.stream]
        for other in waited:
            join(covered, self._given(thread, other))
        return bool(waited)

    def _note_wait(self, number: int, reached: int) -> None:
        lane = self._lanes[number]
        if len(lane.waits) == WAITS_MAX:
            del lane.numbers[: WAITS_MAX // 2 : 2], lane.waits[: WAITS_MAX // 2 : 2]
        lane.numbers.append(reached)
        lane.waits.append(self._clocks.known(number))
