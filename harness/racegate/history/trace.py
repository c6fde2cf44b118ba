"""Trace: every operation, host access, record and wait of one run, in the order in which the host
issued them.

Lanes are numbered: 0 is the host, the streams follow. A *clock* is a vector over lanes: what is
known to have happened before, as the last sequence number of each lane. Sequence numbers of the
host are its issue count.
"""

from __future__ import annotations

import re
from itertools import compress

import msgspec

from racegate.scenario.strict import StrictStruct

Owner = tuple[str, int]  # (request, step) of the value in a cell
Clock = tuple[int, ...]  # per lane
HOST = 0
_FEW_ROWS = 16  # are taken off a mask one by one: that costs as much as its length, every time
_RANK = re.compile(r"\.rank\d+(?=[@#]|$)")
_BITS = bytes(code == ord("1") for code in range(256))  # of a binary numeral's digits


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
    """A host read or write of memory the device also uses. name: the host action it is part of
    lane: the host's, which is that of its rank
    """

    name: str
    step: int
    seq: int
    clock: Clock
    access: Access
    lane: int = HOST

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The one access, as an operation has several."""
        return (self.access,)


class Conflict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Two accesses to common rows, at least one a write, that nothing orders. first was issued
    first.
    """

    buffer: str
    rows: int
    first: OpRecord | HostAccess
    first_writes: bool
    second: OpRecord | HostAccess
    second_writes: bool


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


class HoldOutcome(StrictStruct, frozen=True, kw_only=True):
    """Whether a hold did what it says.

    hold: as text; matched: operations that it named; realised: those of them it kept until then
    """

    hold: str
    matched: int
    realised: int


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One run. lanes: names by lane number, the host of rank 0 first, its peers' hosts last
    holds: what became of the schedule's holds
    """

    lanes: tuple[str, ...]
    events: tuple[TraceEvent, ...]
    holds: tuple[HoldOutcome, ...] = ()

    def hosts(self) -> tuple[int, ...]:
        """By lane, that of the host which gives it work; a host's is its own."""
        numbers = dict.fromkeys(map(rank_suffix, self.lanes), 0)
        for number, lane in enumerate(self.lanes):
            if lane.startswith("host"):
                numbers[rank_suffix(lane)] = number
        return tuple(numbers[rank_suffix(lane)] for lane in self.lanes)


def rank_suffix(lane: str) -> str:
    """What a lane's name ends with where there are several ranks: `.rank1`; nothing else."""
    return lane[len(lane.partition(".rank")[0]) :]


def unranked(name: str) -> str:
    """The name of a lane, an operation or a host action as each rank has it."""
    return _RANK.sub("", name)


def rows_of(mask: int) -> list[int]:
    """The rows in a mask, ascending."""
    if mask.bit_count() > _FEW_ROWS:
        bits = f"{mask:b}"[::-1].encode().translate(_BITS)
        return list(compress(range(len(bits)), bits))
    rows = []
    while mask:
        lowest = mask & -mask
        rows.append(lowest.bit_length() - 1)
        mask ^= lowest
    return rows
