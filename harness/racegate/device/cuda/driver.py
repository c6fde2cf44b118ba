"""CudaDriver: everything that CudaDevice asks of CUDA, and nothing else touches it.

The logic of a device (holds, latches, cones, traces) is tested against another driver, which runs
on CPU tensors. Host memory is handed about as NumPy arrays, device memory as torch tensors of the
same dtype, but for uint32, which is int32 on the device (torch has no full uint32 arithmetic).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from racegate.order.native.errors import BadInput
from racegate_kernels.backend import Backend

WORD_BYTES = 4

Handle = Any  # a stream, an event or a graph of the driver
Tensor = Any
Memory = Any  # a NumPy array (pinned) or a torch tensor (device), contiguous


class NoCudaError(BadInput):
    """There is no GPU to run on: says what is missing and what to do."""


class CudaDriver(Protocol):
    """One device. Streams and events are handles that go back only to the driver.

    What is put on a stream runs in order and never earlier than it was put there; nothing but
    `synchronize` and `drain` makes the host wait.
    """

    @property
    def backend(self) -> Backend:
        """The kernels, for tensors of this driver."""
        ...

    def begin(self) -> None:
        """A new run: all memory that was handed out before is free again."""
        ...

    def stream(self) -> Handle:
        """A stream that no other of this run is ordered with."""
        ...

    def event(self) -> Handle:
        """An event that has not been recorded."""
        ...

    def record(self, event: Handle, stream: Handle) -> None:
        """The event is complete when the stream gets here; an earlier record is forgotten."""
        ...

    def wait(self, stream: Handle, event: Handle) -> None:
        """What is put on the stream from now on runs after the latest record of the event."""
        ...

    def query(self, event: Handle) -> bool:
        """Whether the latest record is complete."""
        ...

    def synchronize(self, event: Handle) -> None:
        """Blocks the host, and no other thread, until the latest record is complete."""
        ...

    def drain(self) -> None:
        """Blocks the host until all streams are empty."""
        ...

    def pinned(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Uninitialised page-locked host memory."""
        ...

    def mapped(self, pinned: np.ndarray) -> Tensor:
        """Page-locked host memory as kernels have it; uint32 as int32."""
        ...

    def memory(self, shape: tuple[int, ...], dtype: DTypeLike) -> Tensor:
        """Uninitialised device memory; uint32 as int32."""
        ...

    def copy(self, stream: Handle, target: Memory, source: Memory) -> None:
        """Asynchronous; both are contiguous and equally long, one of them on the device."""
        ...

    def fill(self, stream: Handle, target: Tensor, word: int) -> None:
        """Asynchronous: these 32 bits over and over; a last element may get half."""
        ...

    def run(self, stream: Handle, work: Callable[[], None]) -> None:
        """Puts the kernels that `work` launches on the stream."""
        ...

    def wait_word(self, stream: Handle, words: np.ndarray, index: int) -> None:
        """What is put on the stream from now on runs once words[index] (pinned int32) is > 0."""
        ...

    def store(self, words: np.ndarray, index: int, value: int) -> None:
        """The host writes a word that streams may wait for; from any thread."""
        ...

    def capture(self, work: Callable[[], None], *, rehearsal: Callable[[], None]) -> Handle:
        """The kernels that `work` launches, as a graph; runs none of them.

        rehearsal: launches the same ones on other memory, and runs first: a capture may not load
            kernels
        """
        ...

    def replay(self, stream: Handle, graph: Handle) -> None:
        """Puts the kernels of a graph on the stream."""
        ...


def bits_of(value: float, dtype: DTypeLike) -> int:
    """32 bits of memory that holds nothing but a value of this dtype."""
    return int(np.full(WORD_BYTES // np.dtype(dtype).itemsize, value, dtype).view(np.uint32)[0])
