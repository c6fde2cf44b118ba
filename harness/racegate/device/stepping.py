"""Stepping: every step of a program, of the host and of each stream, taken one at a time by choice.

The processes are the lanes: 0 is the host, the streams follow. A process is deterministic, and its
next step is known before it is taken, footprint included. Searches and samplers are steppers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from racegate.history.trace import Access, Clock


class Step(msgspec.Struct, frozen=True, gc=False):
    """The next step of a process.

    ordinal: its number within the process, from 1
    clock: per process, how many of its steps precede this one by program edges
    issued: place in the order in which the host issued or did things
    """

    process: int
    ordinal: int
    label: str
    accesses: tuple[Access, ...]
    clock: Clock
    issued: int


class Stepper(Protocol):
    """Chooses which process steps next."""

    def choose(self, enabled: Sequence[Step]) -> int:
        """The index of one of the enabled steps; the host's is first unless it is blocked."""
        ...


def conflict(a: Step, b: Step) -> bool:
    """Whether two steps of different processes touch common rows, at least one of them writing."""
    for one in a.accesses:
        for other in b.accesses:
            if (
                one.storage == other.storage
                and (one.is_write or other.is_write)
                and one.rows & other.rows
            ):
                return True
    return False


def flag_of(lane: int, seq: int) -> Access:
    """The completion flag of an operation, written by it and read by queries."""
    return Access("flag", -(lane << 32 | seq), 1, True)
