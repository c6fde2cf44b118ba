"""TorchDriver: CUDA through torch (memory, streams, events, graphs, Triton) and cuda.bindings
(copies, fills, and the waits for words that make latches).
"""

from __future__ import annotations

import gc
import math
import os
import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from racegate.device.cuda.driver import WORD_BYTES, Memory, NoCudaError, Tensor
from racegate_kernels.backend import Backend, triton_backend

# Large enough that one piece serves most runs: allocating may wait for a device that is latched.
PIECE_BYTES = 64 << 20
ALIGNMENT_BYTES = 256
# Streams that share a hardware queue are ordered by accident, and a latch would hold them both.
# Read when CUDA starts: as many queues as torch makes streams.
CONNECTIONS = "32"

# The name of a NumPy dtype -> torch's of device memory.
_KINDS = {"int32": "int32", "uint32": "int32", "float32": "float32", "bfloat16": "bfloat16"}
HALF_BYTES = 2

GET_ONE = "take --device virtual, or a machine with an NVIDIA GPU and `.[gpu]` installed"


class CudaError(RuntimeError):
    """A call of the CUDA driver that failed: says which and how."""


class _Arena:
    """Memory in large pieces, handed out from their front and taken back all at once."""

    def __init__(self, allocate: Callable[[int], Memory]) -> None:
        self._allocate = allocate
        self._pieces: list[tuple[Memory, int]] = []
        self._piece = 0
        self._used = 0

    def reset(self) -> None:
        self._piece = self._used = 0

    def take(self, size: int) -> Memory:
        """So many bytes."""
        length = -(-max(size, 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        while True:
            if self._piece == len(self._pieces):
                most = max(length, PIECE_BYTES)
                self._pieces.append((self._allocate(most), most))
            piece, most = self._pieces[self._piece]
            if self._used + length <= most:
                first = self._used
                self._used += length
                return piece[first : first + size]
            self._piece, self._used = self._piece + 1, 0


class TorchDriver:
    """See racegate.device.cuda.driver.CudaDriver. Made by `open_cuda`."""

    def __init__(self, torch: Any, cuda: Any, index: int) -> None:
        self._torch = torch
        self._cuda = cuda
        self._success = cuda.CUresult.CUDA_SUCCESS
        self._at_least = int(cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ)
        self._device = torch.device("cuda", index)
        torch.cuda.set_device(self._device)
        self._streams: list[Any] = []
        self._spare: list[Any] = []
        self._pinned = _Arena(self._pin)
        self._memory = _Arena(partial(torch.empty, dtype=torch.uint8, device=self._device))
        self._capture_stream = torch.cuda.Stream(self._device)
        self._usual = self._current = torch.cuda.current_stream(self._device)
        self.backend: Backend = triton_backend()

    def begin(self) -> None:
        self.drain()
        # torch hands its streams out in turn, so streams are kept: of one run no two may be one.
        self._spare, self._streams = self._spare + self._streams, []
        self._pinned.reset()
        self._memory.reset()

    def stream(self) -> Any:
        stream = self._spare.pop() if self._spare else self._torch.cuda.Stream(self._device)
        assert all(stream.cuda_stream != other.cuda_stream for other in self._streams)
        self._streams.append(stream)
        return stream

    def event(self) -> Any:
        return self._torch.cuda.Event()

    def record(self, event: Any, stream: Any) -> None:
        event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def query(self, event: Any) -> bool:
        return bool(event.query())

    def synchronize(self, event: Any) -> None:
        event.synchronize()

    def drain(self) -> None:
        # Kernels of others, between runs, belong on none of these streams.
        self._switch(self._usual)
        for stream in self._streams:
            stream.synchronize()

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        taken = self._pinned.take(math.prod(shape) * np.dtype(dtype).itemsize)
        array: np.ndarray = taken.view(dtype).reshape(shape)
        return array

    def _pin(self, size: int) -> np.ndarray:
        pinned: np.ndarray = self._torch.empty(
            size, dtype=self._torch.uint8, pin_memory=True
        ).numpy()
        return pinned

    def mapped(self, pinned: np.ndarray) -> Tensor:
        # torch asks the driver whose memory it is: page-locked memory has an address on the device.
        words = pinned.view(np.int32) if pinned.dtype == np.uint32 else pinned
        return self._torch.as_tensor(_Mapped(words), device=self._device)

    def memory(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        kind = getattr(self._torch, _KINDS[np.dtype(dtype).name])
        size = math.prod(shape) * np.dtype(dtype).itemsize
        return self._memory.take(size).view(kind).view(shape)

    def copy(self, stream: Any, target: Memory, source: Memory) -> None:
        size = _bytes_in(source)
        assert size == _bytes_in(target), f"{size} bytes to {_bytes_in(target)}"
        if size:
            handle = stream.cuda_stream
            self._call("cuMemcpyAsync", _address(target), _address(source), size, handle)

    def fill(self, stream: Any, target: Tensor, word: int) -> None:
        size, address, handle = _bytes_in(target), _address(target), stream.cuda_stream
        if size % WORD_BYTES:
            half = word & 0xFFFF
            self._call("cuMemsetD16Async", address, half, size // HALF_BYTES, handle)
        elif size:
            self._call("cuMemsetD32Async", address, word, size // WORD_BYTES, handle)

    def run(self, stream: Any, work: Callable[[], None]) -> None:
        self._switch(stream)
        work()

    def _switch(self, stream: Any) -> None:
        """Kernels go to this stream from now on. (A context per kernel takes longer than most.)"""
        if self._current is not stream:
            self._torch.cuda.set_stream(stream)
            self._current = stream

    def wait_word(self, stream: Any, words: np.ndarray, index: int) -> None:
        address = _address(words) + index * WORD_BYTES
        self._call("cuStreamWaitValue32", stream.cuda_stream, address, 1, self._at_least)

    def store(self, words: np.ndarray, index: int, value: int) -> None:
        words[index] = value

    def capture(self, work: Callable[[], None], *, rehearsal: Callable[[], None]) -> Any:
        torch = self._torch
        graph = torch.cuda.CUDAGraph()
        # Not torch.cuda.graph, which waits for the whole device: something may be latched.
        with torch.cuda.stream(self._capture_stream):
            rehearsal()
            self._capture_stream.synchronize()
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        return graph

    def replay(self, stream: Any, graph: Any) -> None:
        self._switch(stream)
        graph.replay()

    def _call(self, name: str, *args: Any) -> None:
        (status, *_) = getattr(self._cuda, name)(*args)
        if status != self._success:
            raise CudaError(f"{name} failed: {status}")


class _Mapped:
    """Page-locked memory, as the protocol for arrays on a GPU has it."""

    def __init__(self, pinned: np.ndarray) -> None:
        told = pinned.__array_interface__
        names = ("shape", "typestr", "data", "strides")
        self.__cuda_array_interface__ = {name: told[name] for name in names} | {"version": 2}
        self._pinned = pinned


def _address(memory: Memory) -> int:
    if isinstance(memory, np.ndarray):
        assert memory.flags.c_contiguous
        return int(memory.__array_interface__["data"][0])
    assert memory.is_contiguous()
    return int(memory.data_ptr())


def _bytes_in(memory: Memory) -> int:
    return int(memory.nbytes)


def open_cuda(index: int = 0) -> TorchDriver:
    """The driver of a GPU. Raises NoCudaError."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", CONNECTIONS)
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise NoCudaError(f"CUDA needs torch ({error}): {GET_ONE}") from error
    if not torch.cuda.is_available():
        raise NoCudaError(
            f"this needs a GPU, and torch {torch.__version__} sees none (a build without "
            f"CUDA, no GPU, or no driver): {GET_ONE}"
        )
    try:
        cuda = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise NoCudaError(
            f"CUDA holds operations through cuda-bindings ({error}): {GET_ONE}"
        ) from error
    torch.cuda.init()
    driver = TorchDriver(torch, cuda, index)
    # With all that torch and Triton imported a full collection takes 100 ms, longer than a held run
    # or forty steps; without it, less than 1 ms.
    gc.collect()
    gc.freeze()
    return driver


def gpu_count() -> int:
    """GPUs of this machine."""
    return int(import_module("torch").cuda.device_count())


def gpu_environment() -> dict[str, str]:
    """What a figure from the current GPU depends on. The GPU is there."""
    torch, triton = import_module("torch"), import_module("triton")
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": _driver_version(),
        "cuda": str(torch.version.cuda),
        "torch": str(torch.__version__),
        "triton": str(triton.__version__),
        "cuda_bindings": version("cuda-bindings"),
    }


def _driver_version() -> str:
    """Of the kernel module: its first line ends in it, or in a date behind it."""
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return "unknown"
    numbers = re.findall(r"\b\d+\.\d+(?:\.\d+)*\b", first)
    return numbers[0] if numbers else "unknown"
