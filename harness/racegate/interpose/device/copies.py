"""Copies of bytes, which land as a whole or in two halves."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from racegate.history.schedule import Half
from racegate.order.ranges import Ranges, merged

COPIES = ("h2d@", "d2h@", "d2d@", "h2h@")  # how the labels of copies begin
WORD = 8  # bytes that land at once


def sleep() -> None:
    """The work of an operation that takes long: it has not happened until somebody waits for it."""


class LateWork:
    """Work that is not done when its operation is issued, whatever is held."""

    def __call__(self) -> None:
        """Does it."""
        raise NotImplementedError


class RemadeWork:
    """Work of a captured graph that is another at each launch. remake: makes it"""

    def __init__(self, remake: Callable[[], LateWork]) -> None:
        self.remake = remake

    def __call__(self) -> None:
        """Nothing: what it makes is to be done."""


def is_late(work: object) -> bool:
    """Whether it waits in the queue of the device, whatever is held."""
    return work is sleep or isinstance(work, LateWork)


def whole(operation: str) -> str:
    """The operation of which a hold names a half, or itself."""
    for half in Half:
        operation = operation.removeprefix(half.value)
    return operation


@dataclass(frozen=True, slots=True)
class Copy:
    """Moves `size` bytes when it is called. keep: what owns the source, if nobody else does."""

    to: int
    source: int
    size: int
    keep: object = None

    def __call__(self) -> None:
        ctypes.memmove(self.to, self.source, self.size)

    def tear(self, late: Half) -> Callable[[], object]:
        """Moves the other half now; returns what moves the late one. A word is never torn."""
        middle = self.size // 2 & -WORD
        parts = {Half.START: (0, middle), Half.REST: (middle, self.size - middle)}
        moves = {
            half: partial(ctypes.memmove, self.to + start, self.source + start, size)
            for half, (start, size) in parts.items()
        }
        moves[Half.REST if late is Half.START else Half.START]()
        return lambda: (moves[late](), self.keep)


@dataclass(frozen=True, slots=True)
class CopyBatch:
    """Copies that one call asked for, in one operation: they land together, or half of them."""

    copies: tuple[Copy, ...]

    def __call__(self) -> None:
        for one in self.copies:
            one()

    @property
    def reads(self) -> Ranges:
        """The bytes of their sources."""
        return merged([(one.source, one.source + one.size) for one in self.copies])

    @property
    def writes(self) -> Ranges:
        """The bytes that they write."""
        return merged([(one.to, one.to + one.size) for one in self.copies])

    def through_buffers(self) -> tuple[CopyBatch, CopyBatch]:
        """The same in two parts: sources into buffers of their own, and these to the targets."""
        buffers = [ctypes.create_string_buffer(one.size) for one in self.copies]
        pairs = [
            (one, buffer, ctypes.addressof(buffer))
            for one, buffer in zip(self.copies, buffers, strict=True)
        ]
        return (
            CopyBatch(tuple(Copy(at, one.source, one.size, buffer) for one, buffer, at in pairs)),
            CopyBatch(tuple(Copy(one.to, at, one.size, buffer) for one, buffer, at in pairs)),
        )

    def tear(self, late: Half) -> Callable[[], object]:
        """Makes the other half of the copies now; returns what makes the late one."""
        if len(self.copies) == 1:
            return self.copies[0].tear(late)
        middle = len(self.copies) // 2
        halves = {Half.START: self.copies[:middle], Half.REST: self.copies[middle:]}
        CopyBatch(halves[Half.REST if late is Half.START else Half.START])()
        return CopyBatch(halves[late])


class SourceOrder(IntEnum):
    """When the sources of a batch are read: in the order of the stream, before the call returns, or
    at any time from the call on. The numbers are CUDA's.
    """

    STREAM = 1
    DURING_CALL = 2
    ANY = 3
