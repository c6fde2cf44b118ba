"""A latch on a stream of CUDA: what stands behind it does not run until somebody opens it. It needs
torch and cuda-bindings alone, and is written into exported tests as it stands here.
"""

import ctypes
import threading
import time

import torch
from cuda.bindings import driver

LIMIT_S = 2.0  # then it opens by itself: a wait of the program covers what it holds


class StreamLatch:
    """Closed when a line is reached for the `close_at`th time, opened when another is for the
    `open_at`th. 0: never closed.
    """

    def __init__(self, close_at: int = 0, open_at: int = 1) -> None:
        self._close_at, self._open_at = close_at, open_at
        self._closings = self._openings = 0
        self._word = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self._value = ctypes.c_int32.from_address(self._word.data_ptr())
        self._guard = threading.Timer(LIMIT_S, self.release)
        self._guard.daemon = True

    def close(self, stream: torch.cuda.Stream) -> None:
        """The line is reached: at the right time the stream waits for `release`."""
        self._closings += 1
        if self._closings != self._close_at:
            return
        reached = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        address = self._word.data_ptr()
        (error,) = driver.cuStreamWaitValue32(stream.cuda_stream, address, 1, reached)
        assert error == driver.CUresult.CUDA_SUCCESS, error
        self._guard.start()

    def open(self, behind: torch.cuda.Stream | None = None) -> None:
        """The line is reached: at the right time the stream goes on, after the work of another that
        does not wait for it.
        """
        self._openings += 1
        if self._openings != self._open_at or not self._closings:
            return
        if behind is not None:
            done, limit_s = behind.record_event(), time.monotonic() + LIMIT_S
            while not done.query() and not self._value.value and time.monotonic() < limit_s:
                pass
        self.release()

    def release(self) -> None:
        """The stream goes on."""
        self._value.value = 1
        self._guard.cancel()

    def check_reached(self) -> None:
        """Raises AssertionError if it never closed: then nothing was late, and nothing is shown."""
        assert self._closings >= self._close_at, "the line that holds an operation was not reached"


def plain(value: object) -> object:
    """An observed value as Python has it."""
    return value.tolist() if isinstance(value, torch.Tensor) else repr(value)


def clear_freed_memory() -> None:
    """What earlier runs left in memory that torch keeps is zero: an operation that comes too early
    must not find the right values there.
    """
    torch.cuda.empty_cache()
    sizes = [1 << 20] * 16 + [20 << 20] * 2
    blocks = [torch.zeros(size, dtype=torch.uint8, device="cuda") for size in sizes]
    torch.cuda.synchronize()
    del blocks


def observed(source: str, latch: StreamLatch) -> list[tuple[str, object]]:
    """What a program observes under a latch."""
    clear_freed_memory()
    seen: list[tuple[str, object]] = []

    def observe(name: str, value: object) -> None:
        seen.append((name, plain(value)))

    scope = {"__name__": "__main__", "latch": latch, "observe": observe}
    exec(compile(source, "program", "exec"), scope)
    latch.release()
    torch.cuda.synchronize()
    latch.check_reached()
    return seen
