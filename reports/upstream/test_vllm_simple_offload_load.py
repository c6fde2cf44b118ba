"""Whether two accesses are ordered.

first   sum at vllm_simple_offload.py:57
second  h2d at cuda_mem_ops.py:258

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


import ast
import builtins
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType

# Of each module: statements, whether a line goes behind or before each, and the line.
LATCHED: dict[str, list[tuple[str, bool, str]]] = {
    "vllm.v1.simple_kv_offload.copy_backend": [
        ("copy_blocks(src_blocks, dst_blocks, params)", True, "latch.open(load_stream)")
    ]
}


def with_lines(text: str, lines: Sequence[tuple[str, bool, str]]) -> str:
    """The text with each line beside the one statement that reads so, however it is laid out."""
    told = text.split("\n")
    for statement, is_behind, line in lines:
        nodes = [
            node for node in ast.walk(ast.parse("\n".join(told))) if isinstance(node, ast.stmt)
        ]
        found = [node for node in nodes if ast.unparse(node) == statement]
        assert len(found) == 1, f"this release has {len(found)} statements {statement!r}"
        at = (found[0].end_lineno or 0) if is_behind else found[0].lineno - 1
        told.insert(at, " " * found[0].col_offset + line)
    return "\n".join(told)


def known(latch: object) -> object:
    """The latch, which the lines in the library know from now on."""
    builtins.latch = latch  # type: ignore[attr-defined]
    return latch


class _LatchedLoader(SourceFileLoader):
    """Compiles a module with its lines."""

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_source(fullname) or ""
        return compile(with_lines(text, LATCHED[fullname]), self.path, "exec", dont_inherit=True)


class _LatchedFinder:
    """Finds the modules that get lines, before Python does."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, _: object = None
    ) -> ModuleSpec | None:
        """As Python's own, with the loader for lines."""
        spec = PathFinder.find_spec(name, path) if name in LATCHED else None
        if spec is not None and spec.origin:
            spec.loader = _LatchedLoader(name, spec.origin)
        return spec


sys.meta_path.insert(0, _LatchedFinder)


PROGRAM = '''\
"""vllm: blocks of the KV cache offloaded by a copy thread, and loaded into blocks used again."""

from __future__ import annotations
import sys

sys.argv = ['vllm_simple_offload.py', 'load']

import sys
import time

import torch
import vllm_release

vllm_release.name_compiled_parts()
from vllm.v1.simple_kv_offload.copy_backend import DmaCopyBackend
from vllm.v1.simple_kv_offload.cuda_mem_ops import pin_tensor
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata
from vllm.v1.simple_kv_offload.worker import SimpleCPUOffloadWorker


torch.set_num_threads(1)
device = {"layer": torch.zeros(8, 64, dtype=torch.int8, device="cuda")}
host = {"layer": torch.zeros(8, 64, dtype=torch.int8)}
pin_tensor(host["layer"])
worker = SimpleCPUOffloadWorker(vllm_config=None, kv_cache_config=None, cpu_capacity_bytes=0)
backend = worker._backend = DmaCopyBackend()
backend.init(device, host, device["layer"].device, torch.cuda.Stream(), torch.cuda.Stream())
torch.cuda.synchronize()
nothing = {
    "load_event": -1,
    "load_gpu_blocks": [],
    "load_cpu_blocks": [],
    "store_event": -1,
    "store_gpu_blocks": [],
    "store_cpu_blocks": [],
}


def step(mark: str, **transfer: object) -> None:
    """What the runner calls around a forward pass, and then until the transfer has come to its end.
    mark: where the worker keeps which one was the last that did
    """
    worker.bind_connector_metadata(SimpleCPUOffloadMetadata(**{**nothing, **transfer}))
    worker.start_load_kv()
    worker.wait_for_save()
    worker.get_finished(set())
    worker.clear_connector_metadata()
    while getattr(worker, mark) < 0:
        time.sleep(0.001)
        worker.get_finished(set())


if sys.argv[1] == "store":
    device["layer"][2:4].fill_(7)  # a forward pass writes two blocks
    step("_store_hwm", store_event=0, store_gpu_blocks=[2, 3], store_cpu_blocks=[0, 1])
    observe("blocks of the host", host["layer"][:2].clone())
else:
    host["layer"][:2].fill_(5)
    latch.close(torch.cuda.current_stream())
    last = device["layer"][5:7].sum()  # the last owner of two blocks still reads them
    step("_load_hwm", load_event=0, load_gpu_blocks=[5, 6], load_cpu_blocks=[0, 1])
    observe("of the last owner", last)
    observe("blocks of the device", device["layer"][5:7])
backend.shutdown()
'''


def test_a_late_operation_changes_nothing() -> None:
    settled = observed(PROGRAM, known(StreamLatch()))
    late = observed(PROGRAM, known(StreamLatch(close_at=1, open_at=1)))
    assert late == settled
