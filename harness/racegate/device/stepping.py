"""Stepping: each transition of a program, of the host and of each stream, taken one at a time.

The processes are the lanes: 0 is the host, the streams follow. A process is deterministic, and its
next transition is known before it is taken, footprint included. Searches and samplers are steppers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import msgspec

from racegate.history.trace import Access, Clock


class Transition(msgspec.Struct, frozen=True, gc=False):
    """What a process (the host or a stream) does next, as one indivisible part.

    ordinal: its number within the process, from 1
    clock: per process, how many of its transitions precede this one by program edges
    issued: place in the order in which the host issued or did things
    """

    process: int
    ordinal: int
    label: str
    accesses: tuple[Access, ...]
    clock: Clock
    issued: int


class Stepper(Protocol):
    """Chooses which process makes its next transition."""

    def choose(self, enabled: Sequence[Transition]) -> int:
        """The index of one of the enabled; the host's is first unless it is blocked."""
        ...


class PathStepper(ABC):
    """A stepper of a depth-first search: it begins on a path that the one before it has left, and
    none comes back to what was left.
    """

    @abstractmethod
    def choose(self, enabled: Sequence[Transition]) -> int:
        """See Stepper."""

    @property
    @abstractmethod
    def shared(self) -> tuple[PathStepper | None, int]:
        """Another one, and how many of its first transitions this one begins with; (None, 0) if
        none is known.
        """

    @abstractmethod
    def follow(self, count: int) -> None:
        """It has taken so many of those that it shares, without being asked."""


def conflict(a: Transition, b: Transition) -> bool:
    """Whether transitions of two processes touch common rows, at least one of them writing."""
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
