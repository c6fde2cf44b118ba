"""Vector clocks: who is before whom, by what a program itself asks for.

A lane is a stream or a host thread. The clock of a lane holds, per lane, the last number of that
lane which is known to have happened before whatever the lane does next. What a lane does is
numbered. The laws, which every recorder follows:

- an operation comes after all that its stream was given before, and after all that the thread knew
  which issues it; what the thread does afterwards is not ordered before the operation;
- a record covers what its stream was given, and what the recording thread knew;
- who waits comes to know what was covered.

`Clocks` is these laws in Python, which needs neither a compiler nor anything of a device;
`native/lanes.c` is its twin for programs of many million events. Tests hold both against
reachability over the edges, and against each other. Where several threads give one stream work,
what one gives comes after what others gave only as far as it knows of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

Clock = list[int]  # per lane; a missing entry is 0
Known = tuple[int, ...]  # a clock that does not change any more


def join(clock: Clock, other: Sequence[int]) -> None:
    """Adds to clock what other knows."""
    missing = len(other) - len(clock)
    if missing > 0:
        clock.extend([0] * missing)
    for lane, number in enumerate(other):
        if number > clock[lane]:
            clock[lane] = number


def knows(clock: Sequence[int], lane: int, number: int) -> bool:
    """Whether the operation with this number of the lane is known to the clock."""
    return lane < len(clock) and clock[lane] >= number


def covers(clock: Sequence[int], other: Sequence[int]) -> bool:
    """Whether clock knows all that other knows."""
    for known, number in zip(clock, other, strict=False):
        if number > known:
            return False
    return not any(other[len(clock) :])


class OpenRecords:
    """Records of events that nobody knows to be complete yet, each event's latest alone.

    What one thread records on one stream covers more and more, so that of these only the oldest has
    to be looked at: a program that never waits for a stream costs no more with each step.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # of the latest record, by event
        self._queues: dict[tuple[int, int], deque[tuple[int, int, Clock]]] = {}

    def add(self, event: int, number: int, clock: Clock, *, by: tuple[int, int]) -> None:
        """The event was recorded. number: of the record; by: the thread, and its stream"""
        self._numbers[event] = number
        queue = self._queues.setdefault(by, deque())
        queue.append((event, number, clock))
        if len(queue) > 64 and len(queue) > 2 * len(self._numbers):
            self._queues[by] = deque(one for one in queue if self._is_open(one))

    def forget(self, event: int) -> None:
        """The event is no more."""
        self._numbers.pop(event, None)

    def take_covered(self, known: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Events with the numbers of their records that such a clock covers: no longer open."""
        for queue in self._queues.values():
            while queue and (not self._is_open(queue[0]) or covers(known, queue[0][2])):
                event, number, _ = one = queue.popleft()
                if self._is_open(one):
                    del self._numbers[event]
                    yield event, number

    def _is_open(self, one: tuple[int, int, Clock]) -> bool:
        return self._numbers.get(one[0]) == one[1]


class Clocks:
    """The clocks of some lanes, and the numbers of what they did. lanes: how many there are from
    the beginning; others may be added.
    """

    __slots__ = ("_clocks", "_known", "_numbers")

    def __init__(self, lanes: int = 0) -> None:
        self._clocks: list[Clock] = [[0] * lanes for _ in range(lanes)]
        self._numbers = [0] * lanes
        self._known: list[Known | None] = [None] * lanes  # of a lane's clock, until it changes

    def add(self) -> int:
        """A new lane that has done nothing; returns its number."""
        lane = len(self._clocks)
        for clock in self._clocks:
            clock.append(0)
        self._clocks.append([0] * (lane + 1))
        self._numbers.append(0)
        self._known = [None] * (lane + 1)
        return lane

    def number(self, lane: int) -> int:
        """Of what the lane did last."""
        return self._numbers[lane]

    def known(self, lane: int) -> Known:
        """What the lane knows now."""
        known = self._known[lane]
        if known is None:
            known = self._known[lane] = tuple(self._clocks[lane])
        return known

    def learn(self, lane: int, clock: Sequence[int]) -> None:
        """The lane comes to know what the clock knows."""
        join(self._clocks[lane], clock)
        self._known[lane] = None

    def tick(self, lane: int) -> int:
        """The lane has done something more: its number."""
        number = self._numbers[lane] = self._numbers[lane] + 1
        self._clocks[lane][lane] = number
        self._known[lane] = None
        return number

    def advance(self, lane: int, number: int) -> None:
        """The lane has done something that has this number, higher than any before."""
        self._numbers[lane] = self._clocks[lane][lane] = number
        self._known[lane] = None

    def issue(self, thread: int, stream: int) -> tuple[int, Known]:
        """A thread puts an operation on a stream: its number there, and what comes before it."""
        clock, numbers = self._clocks[stream], self._numbers
        for lane, known in enumerate(self._clocks[thread]):  # `learn`, here because it is often
            if known > clock[lane]:
                clock[lane] = known
        before = tuple(clock)
        number = clock[stream] = numbers[stream] = numbers[stream] + 1
        self._known[stream] = None
        self.tick(thread)
        return number, before

    def record(self, thread: int, stream: int) -> Known:
        """A thread records an event on a stream: what the event covers."""
        covered = list(self._clocks[stream])
        join(covered, self._clocks[thread])
        self.tick(thread)
        return tuple(covered)
