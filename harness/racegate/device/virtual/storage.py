"""Storage of the virtual device: NumPy arrays, and numbers that stand for what is in them."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.memory import Buffer, Rows, Storage
from racegate.device.virtual.memo import OpMemo


class VirtualStorage(Storage):
    """Poisoned memory. memo: gives the numbers that stand for contents."""

    __slots__ = ("memo",)

    def __init__(
        self, number: int, shape: tuple[int, ...], dtype: DTypeLike, *, memo: OpMemo | None = None
    ) -> None:
        super().__init__(number, np.empty(shape, dtype))
        self.memo = memo
        self.poison()

    def poison(self) -> None:
        super().poison()
        if self.memo is not None:
            self.content = self.memo.content(
                self.array, "poison", self.array.shape, self.array.dtype.str
            )

    def hold_constant(self, name: str, values: np.ndarray) -> None:
        """The content from now on; the name stands for it."""
        self.array = values
        if self.memo is not None:
            self.content = self.memo.content(values, "constant", name, values.shape)

    def rows(self, rows: Rows) -> np.ndarray:
        """A copy of some rows."""
        if rows is None:
            return self.array.copy()
        return self.array[:rows].copy() if isinstance(rows, int) else self.array[rows]

    def changed(self, first: int, end: int) -> None:
        if self.memo is not None:
            written = self.array[first:end].tobytes()
            self.content = self.memo.content(self.array, "host", self.content, first, written)


class VirtualSnapshot:
    """Copies of device memory, made when the stream got there."""

    __slots__ = ("_arrays",)

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] | None = None

    @property
    def is_done(self) -> bool:
        """Whether the stream got there."""
        return self._arrays is not None

    @property
    def is_readable(self) -> bool:
        """Nothing has to end first: what is done is readable."""
        return self.is_done

    def arrays(self) -> list[np.ndarray]:
        assert self._arrays is not None, "the stream has not got here"
        return self._arrays

    def fill(self, arrays: list[np.ndarray]) -> None:
        """The stream got there, and this is what stood in the memory. It never changes again, so
        that a checkpoint does not have to keep it.
        """
        for array in arrays:
            array.setflags(write=False)
        self._arrays = arrays


def storage_of(buffer: Buffer) -> VirtualStorage:
    """The storage of a buffer of the virtual device."""
    storage = buffer.storage
    assert isinstance(storage, VirtualStorage), f"{buffer.name} belongs to another device"
    return storage
