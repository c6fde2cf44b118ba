"""Buffers of the virtual device: storage with poison, owners per cell, recorded host accesses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from racegate.device.masks import prefix_mask
from racegate.device.memo import OpMemo
from racegate.device.recorder import Recorder
from racegate.history.trace import Access, Owner
from racegate_kernels.poison import poison_of


class Storage:
    """Memory with an identity that survives reuse: accesses through an old and a new name can
    conflict. version: stands for the content, where a memo keeps versions.
    """

    __slots__ = ("array", "memo", "number", "owners", "version")

    def __init__(
        self, number: int, shape: tuple[int, ...], dtype: Any, *, memo: OpMemo | None = None
    ) -> None:
        self.number = number
        self.memo = memo
        self.array = np.empty(shape, dtype)
        self.owners: list[Owner | None] = [None] * shape[0]
        self.version = 0
        self.poison()

    def poison(self) -> None:
        self.array.fill(poison_of(self.array.dtype))
        self.owners[:] = [None] * len(self.owners)
        if self.memo is not None:
            self.version = self.memo.version("poison", self.array.shape, self.array.dtype.str)

    def hold_constant(self, name: str, values: np.ndarray) -> None:
        """The content from now on; the name stands for it."""
        self.array = values
        if self.memo is not None:
            self.version = self.memo.version("constant", name, values.shape)

    def rows(self, rows: np.ndarray | int | None) -> np.ndarray:
        """A copy of all rows, the first `rows`, or the given ones."""
        if rows is None:
            return self.array.copy()
        return self.array[:rows].copy() if isinstance(rows, int) else self.array[rows]

    def changed(self, first: int, end: int) -> None:
        """The host has written rows first .. end - 1."""
        if self.memo is not None:
            content = self.array[first:end].tobytes()
            self.version = self.memo.version("host", self.version, first, content)


class StoragePools:
    """Freed device memory, by owning stream and shape, for that stream to use again."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, tuple[int, ...], str], list[Storage]] = {}

    def take(self, lane: int, shape: tuple[int, ...], dtype: Any) -> Storage | None:
        free = self._free.get((lane, shape, np.dtype(dtype).str))
        return free.pop() if free else None

    def give(self, lane: int, storage: Storage) -> None:
        key = (lane, storage.array.shape, storage.array.dtype.str)
        self._free.setdefault(key, []).append(storage)


class VirtualBuffer:
    """A named handle on device storage."""

    __slots__ = ("_access", "is_free", "lane", "name", "storage")

    def __init__(self, name: str, storage: Storage, lane: int) -> None:
        self.name = name
        self.storage = storage
        self.lane = lane
        self.is_free = False
        self._access: dict[tuple[int, bool], Access] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.storage.array.shape)

    @property
    def dtype(self) -> Any:
        return self.storage.array.dtype

    def access(self, mask: int, *, is_write: bool) -> Access:
        """The (cached) access record of some rows."""
        key = (mask, is_write)
        found = self._access.get(key)
        if found is None:
            found = self._access[key] = Access(self.name, self.storage.number, mask, is_write)
        return found


class VirtualHostBuffer(VirtualBuffer):
    """Pinned host memory: the only way the host reaches it, and every access is recorded."""

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
        count = len(self.storage.array) if rows is None else rows
        self._touch(prefix_mask(count), is_write=False)
        self._reads.append((self.storage.version, count))
        for row, owner in enumerate(expect):
            if owner is not None:
                self._check_owner(row, owner)
        return self.storage.array[:count].copy()

    def read_row(self, row: int, *, expect: Owner | None = None) -> Any:
        self._touch(1 << row, is_write=False)
        self._reads.append((self.storage.version, -row))
        if expect is not None:
            self._check_owner(row, expect)
        return self.storage.array[row].copy()

    def peek(self) -> np.ndarray:
        return self.storage.array.copy()

    def write(self, values: Any, *, row_first: int = 0, own: Sequence[Owner] = ()) -> None:
        count = len(values)
        self._touch(prefix_mask(count) << row_first, is_write=True)
        self.storage.array[row_first : row_first + count] = values
        self.storage.changed(row_first, row_first + count)
        if own:
            self.storage.owners[row_first : row_first + count] = own

    def write_row(self, row: int, value: Any, *, own: Owner | None = None) -> None:
        self._touch(1 << row, is_write=True)
        self.storage.array[row] = value
        self.storage.changed(row, row + 1)
        self.storage.owners[row] = own

    def write_columns(self, row: int, first: int, values: Sequence[Any]) -> None:
        self._touch(1 << row, is_write=True)
        self.storage.array[row, first : first + len(values)] = values
        self.storage.changed(row, row + 1)

    def move_row(self, source: int, target: int) -> None:
        self._touch(1 << source, is_write=False)
        self._touch(1 << target, is_write=True)
        self.storage.array[target] = self.storage.array[source]
        self.storage.changed(target, target + 1)
        self.storage.owners[target] = self.storage.owners[source]

    def swap_rows(self, first: int, second: int) -> None:
        mask = 1 << first | 1 << second
        self._touch(mask, is_write=False)
        self._touch(mask, is_write=True)
        array, owners = self.storage.array, self.storage.owners
        array[[first, second]] = array[[second, first]]
        self.storage.changed(first, first + 1)
        self.storage.changed(second, second + 1)
        owners[first], owners[second] = owners[second], owners[first]

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
