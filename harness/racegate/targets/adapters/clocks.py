"""Clocks of a foreign history, from the order in which its host issued, recorded and waited.

The same laws as on the devices of racegate (tests compare the two): an operation comes behind all
that its stream did and all that the host knew when it issued it; a wait brings what was known at
the record it binds to, the latest at that time. An engine that tells clocks instead of waits has
them checked for what no program can know.
"""

from __future__ import annotations

from collections.abc import Mapping

from racegate.history.trace import HOST, Clock


class ClockError(Exception):
    """Something that no program can have known: says what."""


class Clocks:
    """What each lane knows. lanes: the host first"""

    def __init__(self, lanes: tuple[str, ...]) -> None:
        self._lanes = lanes
        self._known = [[0] * len(lanes) for _ in lanes]
        self._seqs = [0] * len(lanes)
        self._records: dict[str, tuple[int, Clock]] = {}

    def issued(self, lane: int, told: Mapping[str, int] | None = None) -> tuple[int, Clock]:
        """An operation is put on a stream: its sequence number and clock. told: what it says of
        its clock, if it does. Raises ClockError, as `accessed` does.
        """
        known = self._known[lane]
        self._join(lane, self._known[HOST])
        self._tell(lane, {} if told is None else told)
        clock = tuple(known)
        self._seqs[lane] += 1
        known[lane] = self._seqs[lane]
        self._tick()
        return self._seqs[lane], clock

    def accessed(self, told: Mapping[str, int] | None = None) -> tuple[int, Clock]:
        """The host touches memory: its sequence number and clock."""
        self._tell(HOST, {} if told is None else told)
        return self._seqs[HOST], tuple(self._known[HOST])

    def recorded(self, lane: int, event: str) -> tuple[int, Clock]:
        """An event is recorded: its version, from 1, and what is complete when it is."""
        self._join(lane, self._known[HOST])
        self._tick()
        version = self._records.get(event, (0, ()))[0] + 1
        self._records[event] = version, tuple(self._known[lane])
        return self._records[event]

    def waited(self, lane: int, event: str, *, is_dropped: bool) -> tuple[int, int]:
        """A lane waits for the latest record of an event: its version, and the lane's number.

        A wait for an event that was never recorded does nothing; its version is 0.
        """
        version, clock = self._records.get(event, (0, ()))
        if not is_dropped:
            self._join(lane, clock)
        return version, self._seqs[lane]

    def queried(self, event: str) -> tuple[int, bool]:
        """The version that the host asks about, and whether it knows that it is complete."""
        version, clock = self._records.get(event, (0, ()))
        known = self._known[HOST]
        return version, all(known[lane] >= seq for lane, seq in enumerate(clock) if lane != HOST)

    def _join(self, lane: int, other: Clock | list[int]) -> None:
        known = self._known[lane]
        for index, value in enumerate(other):
            known[index] = max(known[index], value)

    def _tick(self) -> None:
        """What the host does after an issue is not ordered before what was issued."""
        self._seqs[HOST] += 1
        self._known[HOST][HOST] = self._seqs[HOST]

    def _tell(self, lane: int, told: Mapping[str, int]) -> None:
        known = self._known[lane]
        for name, number in told.items():
            other = self._lane(name)
            before = known[other]
            if not before <= number <= self._seqs[other]:
                what = (
                    f"goes back from {before}"
                    if number < before
                    else f"is ahead of the {self._seqs[other]} operations issued"
                )
                raise ClockError(
                    f"the clock of lane {self._lanes[lane]} has {number} operations of {name}, "
                    f"which {what}"
                )
            known[other] = number

    def _lane(self, name: str) -> int:
        """Of a stream: the host's own order is that of the lines."""
        if name not in self._lanes[1:]:
            raise ClockError(f"a clock names the lane {name!r}, which is not among the streams")
        return self._lanes.index(name)
