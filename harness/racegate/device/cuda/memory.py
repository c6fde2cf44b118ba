"""Memory and handles of CudaDevice: what the virtual device has, with the real thing inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from racegate.device.chooser import Ticket
from racegate.device.cuda.driver import Memory, Tensor
from racegate.device.cuda.latches import Latch
from racegate.device.launches import VirtualGraph
from racegate.device.memory import Storage
from racegate.device.nodes import Op, VirtualEvent, VirtualFlag


class CudaStorage(Storage):
    """array: pinned memory itself; for device memory a stand-in that has its shape and dtype and
    cannot be written. tensor: device memory, or None.
    """

    __slots__ = ("_parts", "tensor")

    def __init__(self, number: int, array: np.ndarray, tensor: Tensor | None) -> None:
        self.number = number
        self.memo = None
        self.version = 0
        self.array = array
        self.tensor = tensor
        self.owners = [None] * len(array)
        self._parts: dict[tuple[int, int], Memory] = {}

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


def stand_in(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A read-only array of this shape and dtype that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


class CudaEvent(VirtualEvent):
    """handle: the driver's."""

    __slots__ = ("handle",)

    def __init__(self, name: str, handle: Any) -> None:
        super().__init__(name)
        self.handle = handle


class CudaFlag(VirtualFlag):
    """latch: the word that streams wait for."""

    __slots__ = ("_open", "latch")

    def __init__(
        self, name: str, on_set: Callable[[], None], latch: Latch, open_latch: Callable[[], None]
    ) -> None:
        super().__init__(name, on_set)
        self.latch = latch
        self._open = open_latch

    def set(self) -> None:
        self._open()
        super().set()


class CudaGraph(VirtualGraph):
    """handle: the driver's, once the capture has ended."""

    __slots__ = ("handle",)

    def __init__(self, name: str, lane: str) -> None:
        super().__init__(name, lane)
        self.handle: Any = None


class CudaOp(Op):
    """An operation that the device has. latch: in front of it; done: recorded behind it."""

    __slots__ = ("done", "latch")

    def __init__(
        self,
        name: str,
        run: Callable[[], None],
        ticket: Ticket | None,
        *,
        latch: Latch | None,
        done: Any,
    ) -> None:
        super().__init__(name, run, ticket)
        self.latch = latch
        self.done = done


class CudaSnapshot:
    """Copies in pinned memory. arrays() may be asked for once the device has finished, and before
    the next run begins.
    """

    __slots__ = ("_copies", "is_done")

    def __init__(self, copies: list[tuple[np.ndarray, np.ndarray | None]]) -> None:
        self._copies = copies
        self.is_done = False

    def arrays(self) -> list[np.ndarray]:
        assert self.is_done, "the stream has not got here"
        return [copy.copy() if rows is None else copy[rows] for copy, rows in self._copies]

    def arrive(self) -> None:
        """The stream got here."""
        self.is_done = True
