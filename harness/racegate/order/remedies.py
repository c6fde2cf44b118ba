"""What would order the pairs of a conflict: waits that were tried, in the order that was recorded.

A wait that comes too late is worth naming only if it would help before the second access: what it
waits for has to be recorded there already, and to cover the first. Put in there, it points forward
in the recorded order, so that no circle arises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from racegate.history.finding import Stack
from racegate.order.clocks import Clock, knows
from racegate.order.memory import Access

PAIRS_OPEN_MAX = 64  # a wait for more than these pairs at once is seen by the first of them
Source = tuple[int, Stack]  # the lane of an event's record, and the frames that asked for it


@dataclass(slots=True)
class Version:
    """One record of an event."""

    lane: int
    clock: Clock
    stack: Stack

    @property
    def source(self) -> Source:
        """What it has in common with the records of other turns of a loop."""
        return self.lane, self.stack


@dataclass(slots=True)
class LateWait:
    """A wait that covers the first access of a conflict, behind the second.

    by: what waits in words, if it is not a wait for an event; source: of the event
    """

    stack: Stack
    by: str
    source: Source


@dataclass(slots=True)
class TriedEdges:
    """The waits that order every pair of a conflict so far.

    sources: where events are recorded that order each pair, if they are waited for before its
        second access; None before the first pair
    late: the first wait that covers a pair, behind it
    """

    sources: set[Source] | None = None
    late: LateWait | None = None
    _open: list[tuple[Access, list[Version]]] = field(default_factory=list)

    def try_pair(self, first: Access, events: Iterable[Version]) -> None:
        """The second access has come. events: the latest record of each"""
        tried = self.sources
        fitting = [
            version
            for version in (events if tried is None or tried else ())
            if (tried is None or version.source in tried) and _covers(version.clock, first)
        ]
        self.sources = {version.source for version in fitting}
        if len(self._open) < PAIRS_OPEN_MAX:
            self._open.append((first, fitting))

    def waited(self, known: Sequence[int], version: Version, stack: Stack, by: str) -> None:
        """The second access's lane has waited, and knows this now. A wait for a later record than
        was there cannot be moved: it would lose what it is for.
        """
        left = []
        for first, fitting in self._open:
            if not _covers(known, first):
                left.append((first, fitting))
                continue
            if self.late is None:
                self.late = LateWait(stack, by, version.source)
            if self.sources and all(version is not one for one in fitting):
                self.sources.discard(version.source)
        self._open = left

    @property
    def moved(self) -> LateWait | None:
        """The wait that orders all pairs if it is moved before the second access, if one does."""
        late = self.late
        is_tried = late is not None and not late.by and late.source in (self.sources or ())
        return late if is_tried else None


def _covers(clock: Sequence[int], access: Access) -> bool:
    return knows(clock, access.lane, access.number)
