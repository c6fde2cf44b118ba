"""Memory of both devices: storage with an identity and owners per cell, named buffers on it, and
the recorded ways in which the host reaches pinned memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.masks import prefix_mask
from racegate.device.recorder import Recorder
from racegate.history.trace import Access, Owner
from racegate_kernels.poison import poison_of

Rows = np.ndarray | int | None  # of a buffer: the given ones, the first n, or all


class Storage:
    """Memory with an identity that survives reuse: accesses through an old and a new name can
    conflict.

    array: [rows, ...] the values, or their shape and dtype where the host cannot reach them
    owners: [rows] whose value stands in each row
    content: a number that stands for the values, where a memo keeps such numbers
    """

    __slots__ = ("array", "content", "number", "owners")

    def __init__(self, number: int, array: np.ndarray) -> None:
        self.number = number
        self.array = array
        self.owners: list[Owner | None] = [None] * len(array)
        self.content = 0

    def poison(self) -> None:
        """The content becomes what nobody wrote."""
        self.array.fill(poison_of(self.array.dtype))
        self.disown()

    def disown(self) -> None:
        """Nobody's values from now on."""
        self.owners[:] = [None] * len(self.owners)

    def changed(self, first: int, end: int) -> None:
        """The host has written rows first .. end - 1."""

    # What the host does to memory that it reaches, without a word about who did it.

    def write(
        self, values: np.ndarray | Sequence[object], row_first: int, own: Sequence[Owner] = ()
    ) -> None:
        """Whole rows from `row_first` on. own: whose values they are"""
        end = row_first + len(values)
        self.array[row_first:end] = values
        self.changed(row_first, end)
        if own:
            self.owners[row_first:end] = own

    def write_row(self, row: int, value: object, own: Owner | None) -> None:
        """One row. own: whose value it is"""
        self.array[row] = value
        self.changed(row, row + 1)
        self.owners[row] = own

    def write_columns(self, row: int, first: int, values: np.ndarray | Sequence[object]) -> None:
        """Part of one row, from column `first` on."""
        self.array[row, first : first + len(values)] = values
        self.changed(row, row + 1)

    def move_row(self, source: int, target: int) -> None:
        """A row, and its owner, over another."""
        self.array[target] = self.array[source]
        self.changed(target, target + 1)
        self.owners[target] = self.owners[source]

    def swap_rows(self, first: int, second: int) -> None:
        """Two rows, and their owners, exchanged."""
        array, owners = self.array, self.owners
        array[[first, second]] = array[[second, first]]
        self.changed(first, first + 1)
        self.changed(second, second + 1)
        owners[first], owners[second] = owners[second], owners[first]


StorageT = TypeVar("StorageT", bound=Storage)


class FreedStorages(Generic[StorageT]):
    """Freed device memory, by owning stream and shape, for that stream to use again."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, tuple[int, ...], str], list[StorageT]] = {}

    def take(self, lane: int, shape: tuple[int, ...], dtype: DTypeLike) -> StorageT | None:
        """Memory that the lane freed last; None if there is none of that shape and dtype."""
        free = self._free.get((lane, shape, np.dtype(dtype).str))
        return free.pop() if free else None

    def give(self, lane: int, storage: StorageT) -> None:
        """The lane may take it again."""
        key = (lane, storage.array.shape, storage.array.dtype.str)
        self._free.setdefault(key, []).append(storage)


class Buffer:
    """A named handle on storage. lane: of the stream that owns it, 0 if none does."""

    __slots__ = ("is_free", "lane", "name", "storage")

    def __init__(self, name: str, storage: Storage, lane: int) -> None:
        self.name = name
        self.storage = storage
        self.lane = lane
        self.is_free = False

    def end(self) -> None:
        """Nobody may use it any more."""
        assert not self.is_free, f"{self.name} is freed twice"
        self.is_free = True

    @property
    def shape(self) -> tuple[int, ...]:
        """[rows, ...]."""
        return tuple(self.storage.array.shape)

    @property
    def dtype(self) -> np.dtype:
        """As NumPy has it."""
        return self.storage.array.dtype

    def access(self, mask: int, *, is_write: bool) -> Access:
        """The access record of some rows."""
        return _access_of(self.name, self.storage.number, mask, is_write)


# Runs of one scenario touch the same rows by the same names, so that they share what says so.
_access_of = lru_cache(maxsize=1 << 14)(Access)


class DeviceBuffer(Buffer):
    """Memory of the device. The engine never looks inside; kernels and copies do."""

    __slots__ = ()


class HostBuffer(Buffer):
    """Pinned host memory: the only way the host reaches it, and every access is recorded, by row.

    reads: (content, rows) of every read; before_access: called before the host touches it
    """

    __slots__ = ("_before_access", "_reads", "_recorder")

    def __init__(
        self,
        name: str,
        storage: Storage,
        recorder: Recorder,
        *,
        reads: list[tuple[int, int]],
        before_access: Callable[[Access], None] | None = None,
    ) -> None:
        super().__init__(name, storage, lane=0)
        self._reads = reads
        self._recorder = recorder
        self._before_access = before_access

    def read(self, rows: int | None = None, *, expect: Sequence[Owner | None] = ()) -> np.ndarray:
        """A copy of the first `rows` rows (all by default). expect: whose value each row should
        hold.
        """
        count = len(self.storage.array) if rows is None else rows
        self._touch(prefix_mask(count), is_write=False)
        self._reads.append((self.storage.content, count))
        for row, owner in enumerate(expect):
            if owner is not None:
                self._check_owner(row, owner)
        return self.storage.array[:count].copy()

    def read_row(self, row: int, *, expect: Owner | None = None) -> Any:
        """A copy of one row: an array, or a number where rows have one. expect: whose value."""
        self._touch(1 << row, is_write=False)
        self._reads.append((self.storage.content, -row))
        if expect is not None:
            self._check_owner(row, expect)
        return self.storage.array[row].copy()

    def peek(self) -> np.ndarray:
        """A copy of everything for an observer; not an access of the program, so not recorded."""
        return self.storage.array.copy()

    def write(
        self,
        values: np.ndarray | Sequence[object],
        *,
        row_first: int = 0,
        own: Sequence[Owner] = (),
    ) -> None:
        """Writes whole rows from `row_first` on. own: whose values they are."""
        self._touch(prefix_mask(len(values)) << row_first, is_write=True)
        self.storage.write(values, row_first, own)

    def write_row(self, row: int, value: object, *, own: Owner | None = None) -> None:
        """Writes one row. own: whose value it is."""
        self._touch(1 << row, is_write=True)
        self.storage.write_row(row, value, own)

    def write_columns(self, row: int, first: int, values: Sequence[object]) -> None:
        """Writes part of one row, from column `first` on."""
        self._touch(1 << row, is_write=True)
        self.storage.write_columns(row, first, values)

    def move_row(self, source: int, target: int) -> None:
        """Copies a row, and its owner, over another."""
        self._touch(1 << source, is_write=False)
        self._touch(1 << target, is_write=True)
        self.storage.move_row(source, target)

    def swap_rows(self, first: int, second: int) -> None:
        """Exchanges two rows, and their owners."""
        mask = 1 << first | 1 << second
        self._touch(mask, is_write=False)
        self._touch(mask, is_write=True)
        self.storage.swap_rows(first, second)

    def _touch(self, mask: int, *, is_write: bool) -> None:
        assert not self.is_free, f"{self.name} is used after it was freed"
        access = self.access(mask, is_write=is_write)
        if self._before_access is not None:
            self._before_access(access)
        self._recorder.host_access(access)

    def _check_owner(self, row: int, expected: Owner) -> None:
        actual = self.storage.owners[row]
        if actual != expected:
            name, step = self._recorder.action
            self._recorder.misowned(name, step, self.name, row, expected, actual)


def require_live(target: Buffer, source: Buffer) -> None:
    """Raises AssertionError if a copy would touch memory that was given back."""
    assert not target.is_free, f"a copy from {source.name} to {target.name}, which is free"
    assert not source.is_free, f"a copy to {target.name} from {source.name}, which is free"
