"""Use: what an operation declares about one buffer, and what it touches because of that."""

from __future__ import annotations

import msgspec

from racegate.device.memory import Buffer
from racegate.history.trace import Owner

RowMask = int | str


class FootprintError(Exception):
    """An operation wrote rows that it had not declared. operation: its name in the trace"""

    def __init__(self, message: str, *, operation: str = "", buffer: str = "") -> None:
        super().__init__(message)
        self.operation = operation
        self.buffer = buffer


class Use(msgspec.Struct, frozen=True, gc=False):
    """One declared use of a buffer by an operation.

    rows: the first `rows` rows (the kernel gets that view); None: the whole buffer
    mask: only these rows, as a bit mask, of the whole buffer (pools addressed through tables); in a
        captured launch a name, which stands for the mask that the replay gives
    written: those of them that may be written, if not all
    expect: (row, owner) pairs the reader means to find; own: owners of the first written
        rows, ascending
    """

    buffer: Buffer
    is_read: bool
    is_write: bool
    rows: int | None = None
    mask: RowMask | None = None
    expect: tuple[tuple[int, Owner], ...] = ()
    own: tuple[Owner, ...] = ()
    written: RowMask | None = None

    @property
    def known_mask(self) -> int | None:
        """The mask, where a name has been replaced."""
        mask = self.mask
        assert not isinstance(mask, str), self._unnamed(mask)
        return mask

    @property
    def written_mask(self) -> int | None:
        """The rows that may be written, likewise."""
        mask = self.mask if self.written is None else self.written
        assert not isinstance(mask, str), self._unnamed(mask)
        return mask

    def _unnamed(self, mask: str) -> str:
        return f"no rows were given for {mask} of {self.buffer.name}"


def reads(
    buffer: Buffer,
    rows: int | None = None,
    *,
    mask: RowMask | None = None,
    expect: tuple[tuple[int, Owner], ...] = (),
) -> Use:
    """Reads; what stands there is not changed."""
    return Use(buffer, True, False, rows, mask, expect)


def writes(
    buffer: Buffer,
    rows: int | None = None,
    *,
    mask: RowMask | None = None,
    own: tuple[Owner, ...] = (),
) -> Use:
    """Writes; what stood there is not read."""
    return Use(buffer, False, True, rows, mask, (), own)


def updates(
    buffer: Buffer,
    rows: int | None = None,
    *,
    mask: RowMask | None = None,
    expect: tuple[tuple[int, Owner], ...] = (),
    own: tuple[Owner, ...] = (),
    written: RowMask | None = None,
) -> Use:
    """Reads and writes."""
    return Use(buffer, True, True, rows, mask, expect, own, written)
