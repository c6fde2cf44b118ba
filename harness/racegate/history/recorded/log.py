"""What a recorder was told, in its order, for whoever draws the whole run: operations on their
streams, accesses and waits of threads, records of events, and ranges that the program named.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import count, takewhile

import msgspec

from racegate.history.finding import Stack, place_name

NOWHERE = -1
Clock = Sequence[int]  # by lane, how much of it is known
Ranges = Sequence[tuple[int, int]]  # of bytes, each [low, high)


class LogKind(StrEnum):
    """What one entry says: an operation of a stream, an access of a thread, an event that is
    recorded, a wait, a lock or the like that a thread hands on, a range that begins or ends; one
    that may end in another order or thread than it began is opened and closed.
    """

    OPERATION = "operation"
    ACCESS = "access"
    RECORD = "record"
    WAIT = "wait"
    HAND_ON = "hand on"
    BEGIN = "begin"
    END = "end"
    OPEN = "open"
    CLOSE = "close"
    MARK = "mark"


class RecordedStep(msgspec.Struct, frozen=True, array_like=True):
    """One entry. lane: the stream or thread that it is of, by number; thread: that asked for it

    name: of an operation its label, of a range as the program calls it; place: as file:line
    source: of a wait, the entry that it waits for, NOWHERE if that is not known; of a range that
        is closed, the entry that opened it
    nbytes: that an operation or access touches
    """

    kind: LogKind
    lane: int
    thread: int
    name: str
    place: str
    source: int = NOWHERE
    nbytes: int = 0


class RecordedRun(msgspec.Struct, frozen=True):
    """A run. lanes: names by number; steps: in their order; rank: of several, whose it is"""

    lanes: tuple[str, ...]
    steps: tuple[RecordedStep, ...]
    rank: int | None = None


class StepRecorder:
    """Takes the steps of a run down. What is asked for later is found by its last entry.

    Threads hand on without a lock: so each step takes a number first, and stands under it.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._steps: dict[int, RecordedStep] = {}
        self._records: dict[int, int] = {}  # event -> its last record
        self._last: dict[int, int] = {}  # stream -> its last operation
        self._handed: dict[int, list[tuple[int, int]]] = {}  # thread -> (number, entry)

    @property
    def steps(self) -> list[RecordedStep]:
        """In their order, up to one that a thread has not taken down yet."""
        known = self._steps.copy()
        return [known[number] for number in takewhile(known.__contains__, count())]

    def operation(
        self, thread: int, stream: int, label: str, stack: Stack, reads: Ranges, writes: Ranges
    ) -> None:
        """A thread gives a stream an operation."""
        nbytes = _nbytes(reads, writes)
        kind = LogKind.OPERATION
        self._last[stream] = self._add(kind, stream, thread, label, stack, nbytes=nbytes)

    def access(self, thread: int, label: str, stack: Stack, reads: Ranges, writes: Ranges) -> None:
        """A thread touches memory that the device can reach."""
        nbytes = _nbytes(reads, writes)
        self._add(LogKind.ACCESS, thread, thread, label, stack, nbytes=nbytes)

    def record(self, thread: int, stream: int, event: int, stack: Stack) -> None:
        """An event is recorded on a stream."""
        self._records[event] = self._add(LogKind.RECORD, stream, thread, "event.record", stack)

    def wait_event(self, thread: int, lane: int, event: int, stack: Stack) -> None:
        """A lane waits for the last record of an event. thread: that asks for it"""
        source = self._records.get(event, NOWHERE)
        self._add(LogKind.WAIT, lane, thread, "event.wait", stack, source=source)

    def wait_stream(self, thread: int, stream: int, stack: Stack, by: str) -> None:
        """A thread waits for all that a stream was given. by: what does, in words"""
        self._add(LogKind.WAIT, thread, thread, by, stack, source=self._last.get(stream, NOWHERE))

    def hand_on(self, thread: int, clock: Clock) -> None:
        """A thread releases a lock, puts into a queue, starts or ends a thread."""
        entry = self._add(LogKind.HAND_ON, thread, thread, "hand over", ())
        self._handed.setdefault(thread, []).append((clock[thread], entry))

    def take(self, thread: int, known: Clock, clock: Clock) -> None:
        """A thread learns what others handed on. known: what it knew before"""
        for other, handed in list(self._handed.items()):
            new = [
                entry
                for number, entry in handed
                if other < len(clock) and _of(known, other) < number <= clock[other]
            ]
            if new and other != thread:
                self._add(LogKind.WAIT, thread, thread, "take over", (), source=new[-1])

    def begin(self, thread: int, name: str) -> None:
        """A thread begins a range of the program."""
        self._add(LogKind.BEGIN, thread, thread, name, ())

    def end(self, thread: int) -> None:
        """It ends its innermost range."""
        self._add(LogKind.END, thread, thread, "", ())

    def open(self, thread: int, name: str) -> int:
        """A thread opens a range that any thread may close, by the number that is returned."""
        return self._add(LogKind.OPEN, thread, thread, name, ())

    def close(self, thread: int, opened: int) -> None:
        """A thread closes a range."""
        self._add(LogKind.CLOSE, thread, thread, "", (), source=opened)

    def mark(self, thread: int, name: str) -> None:
        """A moment that the program names."""
        self._add(LogKind.MARK, thread, thread, name, ())

    def _add(
        self,
        kind: LogKind,
        lane: int,
        thread: int,
        name: str,
        stack: Stack,
        *,
        source: int = NOWHERE,
        nbytes: int = 0,
    ) -> int:
        place, number = place_name(stack) if stack else "", next(self._numbers)
        self._steps[number] = RecordedStep(kind, lane, thread, name, place, source, nbytes)
        return number


def _nbytes(*ranges: Ranges) -> int:
    return sum(high - low for one in ranges for low, high in one)


def _of(clock: Sequence[int], lane: int) -> int:
    return clock[lane] if lane < len(clock) else 0
