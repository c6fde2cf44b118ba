"""SyncDriver: what CudaDevice asks of CUDA, on CPU tensors, without a GPU.

Work runs at once if nothing in its stream has to wait: a legal schedule, the eager one. With a
random order it runs at any legal time instead, in any order that streams and events allow: what a
device does is then one of all the things that a GPU may do.

A host wait that only the host could end is an error, or, if it may block, left to the watchdog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from threading import Condition
from typing import Any

import numpy as np
import torch

from racegate.device.cuda.driver import Memory
from racegate_kernels.backend import Backend

BLOCKED_S_MAX = 30.0


class SyncEvent:
    """issued, done: how many records there are, and how many have been reached."""

    def __init__(self) -> None:
        self.issued = 0
        self.done = 0


class SyncStream:
    """queue: what has not run; a wait is a question whose answer lets the stream go on."""

    def __init__(self) -> None:
        self.queue: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()


class StuckError(AssertionError):
    """The host waits for what only the host could let happen."""


class KernelError(ValueError):
    """A kernel raised. As on a GPU, nothing runs from then on, and no wait blocks."""


class SyncDriver:
    """See racegate.device.cuda.driver.CudaDriver.

    random: for any legal order; may_block: instead of raising StuckError
    latched: how many waits for words were put on streams
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        random: Random | None = None,
        may_block: bool = False,
    ) -> None:
        self.backend: Any = backend
        self._random = random
        self._may_block = may_block
        self._streams: list[SyncStream] = []
        self._changed = Condition()
        self._has_failed = False
        self.latched = 0

    def begin(self) -> None:
        self.drain()
        self._streams = []
        self._has_failed = False

    def stream(self) -> SyncStream:
        self._streams.append(SyncStream())
        return self._streams[-1]

    def event(self) -> SyncEvent:
        return SyncEvent()

    def record(self, event: SyncEvent, stream: SyncStream) -> None:
        event.issued += 1
        number = event.issued

        def reach() -> None:
            event.done = max(event.done, number)

        self._put(stream, reach)

    def wait(self, stream: SyncStream, event: SyncEvent) -> None:
        number = event.issued
        self._put(stream, _nothing, ready=lambda: event.done >= number)

    def query(self, event: SyncEvent) -> bool:
        self._go_on()
        return event.done >= event.issued

    def synchronize(self, event: SyncEvent) -> None:
        number = event.issued
        self._wait_until(lambda: event.done >= number)

    def drain(self) -> None:
        self._wait_until(lambda: not any(stream.queue for stream in self._streams))

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.empty(shape, dtype)

    def mapped(self, pinned: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(pinned.view(np.int32) if pinned.dtype == np.uint32 else pinned)

    def memory(self, shape: tuple[int, ...], dtype: Any) -> torch.Tensor:
        name = np.dtype(dtype).name
        return torch.empty(shape, dtype=getattr(torch, "int32" if name == "uint32" else name))

    def copy(self, stream: SyncStream, target: Memory, source: Memory) -> None:
        assert isinstance(target, torch.Tensor) or isinstance(source, torch.Tensor)
        to, origin = _bytes(target), _bytes(source)
        assert to.shape == origin.shape

        def move() -> None:
            to[...] = origin

        self._put(stream, move)

    def fill(self, stream: SyncStream, target: torch.Tensor, word: int) -> None:
        to, pattern = _bytes(target), np.array([word], np.uint32).view(np.uint8)
        self._put(stream, lambda: np.copyto(to, np.resize(pattern, to.shape)))

    def run(self, stream: SyncStream, work: Callable[[], None]) -> None:
        self._put(stream, work)

    def wait_word(self, stream: SyncStream, words: np.ndarray, index: int) -> None:
        self.latched += 1
        self._put(stream, _nothing, ready=lambda: bool(words[index] > 0))

    def store(self, words: np.ndarray, index: int, value: int) -> None:
        with self._changed:
            words[index] = value
            self._changed.notify_all()
        self._go_on()

    def capture(self, work: Callable[[], None], *, rehearsal: Callable[[], None]) -> Any:
        rehearsal()
        return work

    def replay(self, stream: SyncStream, graph: Callable[[], None]) -> None:
        self._put(stream, graph)

    def _put(
        self,
        stream: SyncStream,
        work: Callable[[], None],
        *,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        with self._changed:
            if not self._has_failed:
                stream.queue.append((ready, work))
        self._go_on()

    def _go_on(self) -> None:
        """All that can run; at random some of it."""
        with self._changed:
            count = 1 << 30 if self._random is None else self._random.choice((0, 0, 1, 2, 5))
            self._run(count)

    def _run(self, count: int) -> None:
        while count:
            runnable = [s for s in self._streams if s.queue and s.queue[0][0]()]
            if not runnable:
                return
            stream = runnable[0] if self._random is None else self._random.choice(runnable)
            self._run_one(stream.queue.popleft()[1])
            count -= 1

    def _run_one(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (ValueError, RuntimeError, IndexError) as error:
            self._has_failed = True
            for stream in self._streams:
                stream.queue.clear()
            raise KernelError(str(error)) from error

    def _wait_until(self, is_reached: Callable[[], bool]) -> None:
        with self._changed:
            while not self._has_failed and not is_reached():
                before = [len(stream.queue) for stream in self._streams]
                self._run(1)
                if before == [len(stream.queue) for stream in self._streams]:
                    self._block()

    def _block(self) -> None:
        """Nothing can run: only a store from another thread helps."""
        if not self._may_block or not self._changed.wait(BLOCKED_S_MAX):
            raise StuckError("the host waits for what only the host could let happen")


def _bytes(memory: Memory) -> np.ndarray:
    """The memory as bytes."""
    if isinstance(memory, torch.Tensor):
        assert memory.is_contiguous()
        return memory.reshape(-1).view(torch.uint8).numpy()
    assert memory.flags.c_contiguous
    return memory.reshape(-1).view(np.uint8)


def _nothing() -> None:
    """What a wait does once it is over."""
