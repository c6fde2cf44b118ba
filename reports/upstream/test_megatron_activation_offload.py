"""Whether two accesses are ordered.

first   d2h at fine_grained_activation_offload.py:845
second  h2d at fine_grained_activation_offload.py:858

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
    "megatron.core.pipeline_parallel.fine_grained_activation_offload": [
        (
            "cpu_backup.copy_(src_tensor, non_blocking=pin_memory)",
            False,
            "latch.close(torch.cuda.current_stream())",
        ),
        (
            "gpu_tensor.copy_(cpu_backup, non_blocking=non_blocking)",
            True,
            "latch.open(torch.cuda.current_stream())",
        ),
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
"""megatron-core: activations of a layer offloaded to the host, and reloaded for its backward."""

from __future__ import annotations

import inspect
import tempfile
from types import SimpleNamespace

import megatron.core.extensions.transformer_engine as transformer_engine
import megatron.core.pipeline_parallel.fine_grained_activation_offload as module
import torch


torch.set_num_threads(1)
torch.manual_seed(0)
# A flag of Transformer Engine, which is compiled and not needed.
transformer_engine.cpu_offload = SimpleNamespace(CPUOffloadEnabled=False)
with tempfile.TemporaryDirectory() as folder:
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
    )
    offload = module.FineGrainedActivationOffloadingInterface
    options = {
        "vp_size": 1,
        "vp_stage": None,
        "min_offloaded_tensor_size": 1,
        "delta_offload_bytes_across_pp_ranks": 0,
        "activation_offload_fraction": 1.0,
        "pp_rank": 0,
        "max_inflight_offloads": None,
    }
    known = inspect.signature(offload.init_chunk_handler).parameters
    offload.init_chunk_handler(**{key: options[key] for key in known})
    layers = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(3)]).to("cuda")
    hidden = torch.randn(4, 16, device="cuda", requires_grad=True)
    for layer in layers:
        part = offload(True, hidden, "layer")
        with part as hidden:
            hidden = torch.tanh(layer(hidden))
        if hasattr(offload, "group_commit"):
            hidden = offload.group_commit(hidden, name="layer")
        else:
            hidden = part.group_offload(hidden)
    hidden.pow(2).mean().backward()
    observe("gradients", torch.cat([p.grad.flatten() for p in layers.parameters()]))
    torch.distributed.destroy_process_group()
'''


def test_a_late_operation_changes_nothing() -> None:
    settled = observed(PROGRAM, known(StreamLatch()))
    late = observed(PROGRAM, known(StreamLatch(close_at=4, open_at=1)))
    assert late == settled
