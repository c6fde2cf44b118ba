"""Vector clocks over lanes that appear while the program runs.

A lane is a stream or a host thread. The clock of a lane holds, per lane, the last number of that
lane which is known to have happened before whatever the lane does next. Stream operations and host
accesses are numbered per lane from 1.
"""

from __future__ import annotations

Clock = list[int]  # per lane; a missing entry is 0


def join(clock: Clock, other: Clock) -> None:
    """Adds to clock what other knows."""
    missing = len(other) - len(clock)
    if missing > 0:
        clock.extend([0] * missing)
    for lane, number in enumerate(other):
        if number > clock[lane]:
            clock[lane] = number


def knows(clock: Clock, lane: int, number: int) -> bool:
    """Whether the operation with this number of the lane is known to the clock."""
    return lane < len(clock) and clock[lane] >= number


def covers(clock: Clock, other: Clock) -> bool:
    """Whether clock knows all that other knows."""
    known = len(clock)
    return all(number <= (clock[lane] if lane < known else 0) for lane, number in enumerate(other))


class Lanes:
    """The clocks of all lanes, and the numbers of what they did.

    names: by lane number
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.clocks: list[Clock] = []
        self.numbers: list[int] = []
        self._host: list[bool] = []

    def add(self, name: str, *, is_host: bool) -> int:
        """A new lane; returns its number."""
        lane = len(self.names)
        self.names.append(name)
        self.clocks.append([0] * (lane + 1))
        self.numbers.append(0)
        self._host.append(is_host)
        if is_host:
            self.tick(lane)
        return lane

    def is_host(self, lane: int) -> bool:
        return self._host[lane]

    def tick(self, lane: int) -> int:
        """The next number of a lane, known to its own clock; returns it."""
        number = self.numbers[lane] + 1
        self.numbers[lane] = number
        clock = self.clocks[lane]
        if len(clock) <= lane:
            clock.extend([0] * (lane + 1 - len(clock)))
        clock[lane] = number
        return number

    def issue(self, thread: int, stream: int) -> int:
        """A host thread puts an operation on a stream; returns its number there.

        What the thread does afterwards is not ordered before the operation.
        """
        clock, known = self.clocks[stream], self.clocks[thread]
        join(clock, known)
        numbers = self.numbers
        number = numbers[stream] = clock[stream] = numbers[stream] + 1
        numbers[thread] = known[thread] = numbers[thread] + 1
        return number

    def snapshot(self, lane: int) -> Clock:
        """A copy of what the lane knows now."""
        return list(self.clocks[lane])

    def release(self, thread: int) -> Clock:
        """What a host thread hands on: all it did until now, nothing of what comes after."""
        clock = self.snapshot(thread)
        self.tick(thread)
        return clock
