"""Clocks of a foreign history, from the order in which its host issued, recorded and waited.

The laws are those of `order.clocks`; a wait binds to the latest record at its time. An engine that
tells clocks instead of waits has them checked for what no program can know.
"""

from __future__ import annotations

from collections.abc import Mapping

from racegate.history.trace import HOST, Clock
from racegate.order.clocks import Clocks, covers


class ClockError(Exception):
    """Something that no program can have known: says what."""


class ForeignClocks:
    """What each lane knows, by the lines of a history. lanes: their names, the host first"""

    def __init__(self, lanes: tuple[str, ...]) -> None:
        self._lanes = lanes
        self._clocks = Clocks(len(lanes))
        self._records: dict[str, tuple[int, Clock]] = {}

    def issued(self, lane: int, told: Mapping[str, int] | None = None) -> tuple[int, Clock]:
        """An operation is put on a stream: its sequence number and clock. told: what it says of
        its clock, if it does. Raises ClockError, as `accessed` does.
        """
        if told:
            self._clocks.learn(lane, self._clocks.known(HOST))
            self._tell(lane, told)
        return self._clocks.issue(HOST, lane)

    def accessed(self, told: Mapping[str, int] | None = None) -> tuple[int, Clock]:
        """The host touches memory: its sequence number and clock."""
        if told:
            self._tell(HOST, told)
        return self._clocks.number(HOST), self._clocks.known(HOST)

    def recorded(self, lane: int, event: str) -> tuple[int, Clock]:
        """An event is recorded: its version, from 1, and what is complete when it is."""
        version = self._records.get(event, (0, ()))[0] + 1
        self._records[event] = version, self._clocks.record(HOST, lane)
        return self._records[event]

    def waited(self, lane: int, event: str, *, is_dropped: bool) -> tuple[int, int]:
        """A lane waits for the latest record of an event: its version, and the lane's number.

        A wait for an event that was never recorded does nothing; its version is 0.
        """
        version, clock = self._records.get(event, (0, ()))
        if not is_dropped:
            self._clocks.learn(lane, clock)
        return version, self._clocks.number(lane)

    def queried(self, event: str) -> tuple[int, bool]:
        """The version that the host asks about, and whether it knows that it is complete."""
        version, clock = self._records.get(event, (0, ()))
        return version, covers(self._clocks.known(HOST)[1:], clock[1:])

    def _tell(self, lane: int, told: Mapping[str, int]) -> None:
        known = list(self._clocks.known(lane))
        for name, number in told.items():
            other = self._lane(name)
            before, last = known[other], self._clocks.number(other)
            if not before <= number <= last:
                what = (
                    f"goes back from {before}"
                    if number < before
                    else f"is ahead of the {last} operations issued"
                )
                raise ClockError(
                    f"the clock of lane {self._lanes[lane]} has {number} operations of {name}, "
                    f"which {what}"
                )
            known[other] = number
        self._clocks.learn(lane, known)

    def _lane(self, name: str) -> int:
        """Of a stream: the host's own order is that of the lines."""
        if name not in self._lanes[1:]:
            raise ClockError(f"a clock names the lane {name!r}, which is not among the streams")
        return self._lanes.index(name)
