"""Memory of CudaDevice: the buffers of both devices with the real thing inside."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.cuda.driver import Memory, Tensor
from racegate.device.memory import Buffer, Storage


class CudaStorage(Storage):
    """array: pinned memory itself; for device memory a stand-in that has its shape and dtype and
    cannot be written. tensor: device memory, or None.
    """

    __slots__ = ("_parts", "tensor")

    def __init__(self, number: int, array: np.ndarray, tensor: Tensor | None) -> None:
        super().__init__(number, array)
        self.tensor = tensor
        self._parts: dict[tuple[int, int], Memory] = {}

    def mapped(self, tensor: Tensor) -> CudaStorage:
        """The same memory, and the same owners, as kernels have it."""
        seen = CudaStorage(self.number, self.array, tensor)
        seen.owners = self.owners
        return seen

    @property
    def memory(self) -> Memory:
        """What copies and kernels work on."""
        return self.array if self.tensor is None else self.tensor

    def part(self, end: int, *, first: int = 0) -> Memory:
        """Rows first .. end - 1 of it. (The same views are asked for in every step, and a view of a
        tensor takes longer to make than to find.)
        """
        found = self._parts.get((first, end))
        if found is None:
            found = self._parts[first, end] = self.memory[first:end]
        return found


def storage_of(buffer: Buffer) -> CudaStorage:
    """The storage of a buffer of CudaDevice."""
    storage = buffer.storage
    assert isinstance(storage, CudaStorage), f"{buffer.name} belongs to another device"
    return storage


def stand_in(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """A read-only array of this shape and dtype that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


class CudaSnapshot:
    """Copies in pinned memory. arrays() may be asked for once the device has finished, and before
    the next run begins.
    """

    __slots__ = ("_copies", "is_done")

    is_readable = False

    def __init__(self, copies: list[tuple[np.ndarray, np.ndarray | None]]) -> None:
        self._copies = copies
        self.is_done = False

    def arrays(self) -> list[np.ndarray]:
        assert self.is_done, "the stream has not got here"
        return [copy.copy() if rows is None else copy[rows] for copy, rows in self._copies]

    def arrive(self) -> None:
        """The stream got here."""
        self.is_done = True
