"""Trace: every operation, host access, record and wait of one run, in the order in which the host
issued them.

Lanes are numbered: 0 is the host, the streams follow. A *clock* is a vector over lanes: what is
known to have happened before, as the last sequence number of each lane. Sequence numbers of the
host are its issue count.
"""

from __future__ import annotations

import msgspec

Owner = tuple[str, int]  # (request, step) of the value in a cell
Clock = tuple[int, ...]  # per lane
HOST = 0


class Access(msgspec.Struct, frozen=True, gc=False):
    """One use of memory. rows: a bit mask over the first dimension of the storage."""

    buffer: str
    storage: int
    rows: int
    is_write: bool


class OpRecord(msgspec.Struct, frozen=True, gc=False):
    """An operation on a stream. clock: what happened before it, by program edges."""

    name: str
    step: int
    lane: int
    seq: int
    clock: Clock
    accesses: tuple[Access, ...]


class HostAccess(msgspec.Struct, frozen=True, gc=False):
    """A host read or write of memory the device also uses. name: the host action it is part of."""

    name: str
    step: int
    seq: int
    clock: Clock
    access: Access

    @property
    def lane(self) -> int:
        """The host's, as an operation has its own."""
        return HOST

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The one access, as an operation has several."""
        return (self.access,)


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event recorded on a stream."""

    event: str
    version: int
    lane: int
    clock: Clock


class Waited(msgspec.Struct, frozen=True, gc=False):
    """A lane waits for an event version. is_dropped: the wait was removed by a fault and orders
    nothing.
    """

    edge: str
    event: str
    version: int
    lane: int
    step: int
    seq: int
    is_dropped: bool


class Queried(msgspec.Struct, frozen=True, gc=False):
    """The host read a completion flag: a branch that the schedule can turn."""

    name: str
    event: str
    version: int
    is_ordered: bool


class Misowned(msgspec.Struct, frozen=True, gc=False):
    """A cell that was read carried another (request, step) than the reader meant."""

    name: str
    step: int
    buffer: str
    row: int
    expected: Owner
    actual: Owner | None


TraceEvent = OpRecord | HostAccess | Recorded | Waited | Queried | Misowned


class HoldOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a hold did what it says.

    hold: as text; matched: operations that it named; realised: those of them it kept until then
    """

    hold: str
    matched: int
    realised: int


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One run. lanes: names by lane number; holds: what became of the schedule's holds."""

    lanes: tuple[str, ...]
    events: tuple[TraceEvent, ...]
    holds: tuple[HoldOutcome, ...] = ()
