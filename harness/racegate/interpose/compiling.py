"""Regions that the program gives to `torch.compile`: run as they were compiled, or as the Python
that they were compiled from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial, wraps
from importlib import import_module
from math import prod
from types import ModuleType
from typing import Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import bytes_of
from racegate.interpose.outcome import CompileMode
from racegate.interpose.program.imports import AfterImport

EQUAL_TIMES = "times that the compiler asked for to choose by (all are equal)"
PLAIN_PYTHON = "calls of torch.compile whose regions ran as plain Python (--compile eager)"
_COMPILER = (
    "torch._inductor.async_compile",
    "torch._inductor.compile_fx",
    "torch._inductor.runtime.triton_heuristics",
    "triton.runtime.interpreter",
)
# Of the compiler's own work; what it does besides happens while the program runs.
_COMPILING = ("DYNAMO", "LAZY_BACKWARD")
# Whether this torch lets racegate see compiled regions without taking them apart.
_SEES_REGIONS = hasattr(TorchDispatchMode, "ignore_compile_internals")


class _Config(Protocol):
    kwargs: dict[str, object]


class _Tuner(Protocol):
    """An autotuner of Inductor's. configs: those that it may take, in its order"""

    configs: list[_Config]


def import_compiler() -> None:
    """What a compiled region imports at its first call, which costs more than most regions do."""
    for name in _COMPILER:
        import_module(name)


def follow_compiler(
    session: Session, mode: CompileMode | None, refuse: Callable[[str], None]
) -> None:
    """From here on regions run as mode says; None: as compiled, if this torch can.

    refuse: ends the run because compiled regions were asked for and this torch cannot
    """
    if mode is not CompileMode.EAGER and _SEES_REGIONS:
        AfterImport(
            {
                "torch._dynamo.callback": partial(_hide_compiler, session),
                "torch._dynamo.trace_rules": _leave_out_ours,
                "torch._inductor.runtime.benchmarking": partial(_call_all_equal, session),
                "torch._inductor.runtime.triton_heuristics": _take_widest,
                "torch._inductor.async_compile": partial(_see_host_kernels, session),
            }
        ).install()
        return
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    config = sys.modules.get("torch._dynamo.config")
    if config is not None:
        config.disable = True  # type: ignore[attr-defined]
    plain = torch.compile

    @wraps(plain)
    def told(*args: object, **kwargs: object) -> object:
        if mode is CompileMode.INDUCTOR:
            refuse(f"torch.compile (torch {torch.__version__} keeps compiled regions to itself)")
        session.not_seen[PLAIN_PYTHON] += 1
        return plain(*args, **kwargs)

    torch.compile = told


def _hide_compiler(session: Session, callback: ModuleType) -> None:
    """callback: torch._dynamo.callback. What the compiler computes and waits for is no part of the
    program: where its cache is warm, it does nothing of it.
    """
    plain = callback.CompilationCallbackHandler.install_callbacks

    @contextmanager
    def install_callbacks(handler: object, trigger: Enum, compile_id: str) -> Iterator[None]:
        with plain(handler, trigger, compile_id):
            if trigger.name not in _COMPILING:
                yield
                return
            session.drain()
            with session.off_record:
                yield

    callback.CompilationCallbackHandler.install_callbacks = install_callbacks


def _leave_out_ours(rules: ModuleType) -> None:
    """rules: torch._dynamo.trace_rules. Where the program's code calls racegate, the compiler stops
    and goes on behind it.
    """
    rules.add("racegate")


def _see_host_kernels(session: Session, compiler: ModuleType) -> None:
    """compiler: torch._inductor.async_compile. What a region's kernels for the CPU do with pinned
    memory is an access of the host, of their whole arguments.
    """
    plain = compiler.AsyncCompile.cpp_pybinding

    def cpp_pybinding(self: object, argtypes: list[str], source: str) -> Callable[..., object]:
        kernel = plain(self, argtypes, source)
        is_read = [kind.startswith("const ") for kind in argtypes]

        def run(*args: object) -> object:
            if session.spans.pinned:
                reads: list[tuple[int, int]] = []
                writes: list[tuple[int, int]] = []
                for one, only_read in zip(args, is_read, strict=True):
                    if isinstance(one, torch.Tensor) and session.spans.find(one.data_ptr()):
                        (reads if only_read else writes).extend(bytes_of(session, one))
                kind = "host write" if writes else "host read"
                session.host_access(f"{kind} (compiled)", tuple(reads), tuple(writes))
            return kernel(*args)

        return run

    compiler.AsyncCompile.cpp_pybinding = cpp_pybinding


def _take_widest(heuristics: ModuleType) -> None:
    """heuristics: torch._inductor.runtime.triton_heuristics. Of a kernel's configurations the one
    with the widest blocks comes first: an interpreter takes the first, and its time goes with the
    number of programs.
    """
    plain = heuristics.CachingAutotuner.__init__

    @wraps(plain)
    def make(tuner: _Tuner, *args: object, **kwargs: object) -> None:
        plain(tuner, *args, **kwargs)
        tuner.configs = sorted(tuner.configs, key=_width, reverse=True)

    heuristics.CachingAutotuner.__init__ = make


def _width(config: _Config) -> int:
    """How many elements a program of a kernel has under a configuration."""
    sizes = config.kwargs.items()
    return prod(n for name, n in sizes if name.endswith("BLOCK") and isinstance(n, int))


class _EqualTimes:
    """In the place of the compiler's stopwatch. plain: the compiler's own, for what is no time"""

    def __init__(self, session: Session, plain: object) -> None:
        self._session = session
        self._plain = plain

    def benchmark(self, *args: object, **kwargs: object) -> float:
        """Runs nothing: the times of an interpreter say nothing."""
        self._session.not_seen[EQUAL_TIMES] += 1
        return 1.0

    benchmark_cpu = benchmark_gpu = benchmark_gpu_with_cuda_graph = benchmark

    def __getattr__(self, name: str) -> object:
        return getattr(self._plain, name)


def _call_all_equal(session: Session, benchmarking: ModuleType) -> None:
    """benchmarking: torch._inductor.runtime.benchmarking."""
    plain = benchmarking.benchmarker
    benchmarking.benchmarker = _EqualTimes(session, plain)  # type: ignore[attr-defined]


def compiled_regions() -> int:
    """How many graphs torch's compiler has made in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(utils.counters["stats"]["unique_graphs"])
