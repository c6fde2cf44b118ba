"""Whether two accesses are ordered.

first   fill_ at sglang_hicache.py:120
second  h2d at sglang_hicache.py:74

Needs torch with CUDA, and cuda-bindings.
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


PROGRAM = '''\
"""sglang: pages that a round still writes are loaded back into (`load`), or written to the host
(`write`); `both` one after the other.

`HiCacheController` and the transfer engine are the release's own. What they import
from the rest of SGLang is named and not used; the pool of the host copies with torch, where the
release has a kernel that does the same on the same stream.
"""

from __future__ import annotations
import sys

sys.argv = ['sglang_hicache.py', 'load']

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch


HOME = Path(next(iter(importlib.util.find_spec("sglang").submodule_search_locations)))
PACKAGES = ("", "srt", "srt.managers", "srt.mem_cache", "srt.layers")
NAMED = (
    "srt.utils", "srt.mem_cache.hicache_storage", "srt.layers.dp_attention",
    "srt.mem_cache.memory_pool", "srt.runtime_context", "srt.environ", "srt.mem_cache.utils",
    "srt.mem_cache.allocator", "srt.mem_cache.pool_host", "srt.mem_cache.pool_host.base",
)  # fmt: skip


class Named(ModuleType):
    """A module of which every name is a class that nobody uses."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for name in PACKAGES:
    package = ModuleType(f"sglang.{name}".rstrip("."))
    # With the spec of a package the script can run again in one process, as in an exported test.
    package.__spec__ = ModuleSpec(package.__name__, None, is_package=True)
    package.__path__ = [str(HOME.joinpath(*filter(None, name.split("."))))]
    package.__spec__.submodule_search_locations = package.__path__
    sys.modules[package.__name__] = package
for name in NAMED:
    sys.modules[f"sglang.{name}"] = Named(f"sglang.{name}")
sys.modules["sglang.srt.utils"].get_device_module = lambda: torch.cuda
sys.modules["sglang.srt.environ"].envs = SimpleNamespace(
    SGLANG_TEST_HICACHE_H2D_DELAY_CYCLES=SimpleNamespace(get=lambda: 0)
)
sys.modules["sglang.srt.mem_cache.pool_host.base"].shared_host_layout_domains = lambda pools: ()

from sglang.srt.managers import cache_controller
from sglang.srt.mem_cache.l2_transfer import L2Transfer, L2TransferEngine

torch.set_num_threads(1)
pages = torch.zeros(8, 64, device="cuda")
host = torch.full((8, 64), 5.0).pin_memory()
forward = torch.cuda.Stream()  # of the overlap scheduler
torch.cuda.synchronize()


class HostPool:
    """The tier of the host, with one layer."""

    layer_num = 1

    def load_to_device_per_layer(
        self, _pool: object, source: torch.Tensor, to: torch.Tensor, *_: object, **__: object
    ) -> None:
        """Copies pages on the current stream."""
        for at, page in zip(source.tolist(), to.tolist(), strict=True):
            pages[page].copy_(host[at], non_blocking=True)
            latch.open(torch.cuda.current_stream())

    def backup_from_device_all_layer(
        self, _pool: object, to: torch.Tensor, source: torch.Tensor, *_: object
    ) -> None:
        """Copies pages on the current stream."""
        for at, page in zip(to.tolist(), source.tolist(), strict=True):
            host[at].copy_(pages[page], non_blocking=True)

    def prepare_transfer_indices(self, *indices: object) -> tuple[object, ...]:
        """Pages of the host and of the device as they are, in 0.5.23."""
        return indices[:2]

    load_to_device_per_layer_physical = load_to_device_per_layer
    backup_from_device_all_layer_physical = backup_from_device_all_layer


Operation = cache_controller.CacheOperation
controller = SimpleNamespace(
    load_queue=[Operation(torch.tensor([0, 1]), torch.tensor([5, 6]), 1)],
    write_queue=[Operation(torch.tensor([2, 3]), torch.tensor([1, 2]), 2)],
    layer_done_counter=cache_controller.LayerDoneCounter(1),
    layer_num=1,
    transfer_layer_id_max=1,
    l2_transfer_engine=L2TransferEngine("kernel"),
    ack_load_queue=[],
    ack_write_queue=[],
    load_fence_stream=forward,
    write_fence_stream=forward,
    mem_pool_device_allocator=SimpleNamespace(set_hicache_transfer_done_event=lambda *_: None),
    _move_op_indices=lambda one: (one.host_indices, one.device_indices, None),
    _move_write_operation=lambda one: (one.host_indices, one.device_indices, None),
    _l2_load_transfers=lambda source, to, _: [L2Transfer(HostPool(), None, source, to)],
    _l2_transfers=lambda to, source, _: [L2Transfer(HostPool(), None, to, source)],
    _num_tokens_by_pool=lambda _: {},
    _transfer_num_bytes=lambda _: 0,
)
half = (*sys.argv[1:], "load")[0]
if half != "load":
    with torch.cuda.stream(forward):
        pages[1:3] = 7.0  # the last tokens of a request that is written back
    cache_controller.HiCacheController.start_writing(controller)
    torch.cuda.synchronize()
    observe("written back", host[2:4])
if half != "write":
    with torch.cuda.stream(forward):
        latch.close(torch.cuda.current_stream())
        pages[5:7] = 9.0  # the round of a request that finished, and whose pages were given on
    cache_controller.HiCacheController.start_loading(controller)
    with torch.cuda.stream(forward):
        forward.wait_event(controller.ack_load_queue[0].finish_event)
        prefix = pages[5:7].sum()
    torch.cuda.synchronize()
    observe("prefix", prefix)
'''


def test_a_late_operation_changes_nothing() -> None:
    settled = observed(PROGRAM, StreamLatch())
    late = observed(PROGRAM, StreamLatch(close_at=1, open_at=1))
    assert late == settled
