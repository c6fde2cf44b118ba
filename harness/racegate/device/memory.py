"""Buffers of the virtual device: storage with poison, owners per cell, recorded host accesses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from racegate.device.masks import prefix_mask
from racegate.device.recorder import Recorder
from racegate.trace import Access, Owner
from racegate_kernels.poison import poison_of


class Storage:
    """Memory with an identity that survives reuse: accesses through an old and a new name can
    conflict.
    """

    __slots__ = ("array", "number", "owners")

    def __init__(self, number: int, shape: tuple[int, ...], dtype: Any) -> None:
        self.number = number
        self.array = np.empty(shape, dtype)
        self.array.fill(poison_of(dtype))
        self.owners: list[Owner | None] = [None] * shape[0]

    def poison(self) -> None:
        self.array.fill(poison_of(self.array.dtype))
        self.owners[:] = [None] * len(self.owners)


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

    def access(self, mask: int, *, is_write: bool) -> Access:
        """The (cached) access record of some rows."""
        key = (mask, is_write)
        found = self._access.get(key)
        if found is None:
            found = self._access[key] = Access(self.name, self.storage.number, mask, is_write)
        return found


class VirtualHostBuffer(VirtualBuffer):
    """Pinned host memory: the only way the host reaches it, and every access is recorded."""

    __slots__ = ("_before_access", "_recorder")

    def __init__(
        self,
        name: str,
        storage: Storage,
        recorder: Recorder,
        *,
        before_access: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name, storage, lane=0)
        self._recorder = recorder
        self._before_access = before_access

    def read(self, rows: int | None = None, *, expect: Sequence[Owner | None] = ()) -> np.ndarray:
        count = len(self.storage.array) if rows is None else rows
        self._touch(prefix_mask(count), is_write=False)
        for row, owner in enumerate(expect):
            if owner is not None:
                self._check_owner(row, owner)
        return self.storage.array[:count].copy()

    def read_row(self, row: int, *, expect: Owner | None = None) -> Any:
        self._touch(1 << row, is_write=False)
        if expect is not None:
            self._check_owner(row, expect)
        return self.storage.array[row].copy()

    def peek(self) -> np.ndarray:
        return self.storage.array.copy()

    def write(self, values: Any, *, row_first: int = 0, own: Sequence[Owner] = ()) -> None:
        count = len(values)
        self._touch(prefix_mask(count) << row_first, is_write=True)
        self.storage.array[row_first : row_first + count] = values
        if own:
            self.storage.owners[row_first : row_first + count] = own

    def write_row(self, row: int, value: Any, *, own: Owner | None = None) -> None:
        self._touch(1 << row, is_write=True)
        self.storage.array[row] = value
        self.storage.owners[row] = own

    def write_columns(self, row: int, first: int, values: Sequence[Any]) -> None:
        self._touch(1 << row, is_write=True)
        self.storage.array[row, first : first + len(values)] = values

    def move_row(self, source: int, target: int) -> None:
        self._touch(1 << source, is_write=False)
        self._touch(1 << target, is_write=True)
        self.storage.array[target] = self.storage.array[source]
        self.storage.owners[target] = self.storage.owners[source]

    def swap_rows(self, first: int, second: int) -> None:
        mask = 1 << first | 1 << second
        self._touch(mask, is_write=False)
        self._touch(mask, is_write=True)
        array, owners = self.storage.array, self.storage.owners
        array[[first, second]] = array[[second, first]]
        owners[first], owners[second] = owners[second], owners[first]

    def _touch(self, mask: int, *, is_write: bool) -> None:
        assert not self.is_free, f"{self.name} is used after it was freed"
        if self._before_access is not None:
            self._before_access()
        self._recorder.host_access(self.access(mask, is_write=is_write))

    def _check_owner(self, row: int, expected: Owner) -> None:
        actual = self.storage.owners[row]
        if actual != expected:
            name, step = self._recorder.action
            self._recorder.misowned(name, step, self.name, row, expected, actual)
