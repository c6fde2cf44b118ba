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
from types import ModuleType

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from racegate.interpose.device.session import Session
from racegate.interpose.outcome import CompileMode
from racegate.interpose.program.imports import AfterImport

PLAIN_PYTHON = "calls of torch.compile whose regions ran as plain Python (--compile eager)"
# Of the compiler's own work; what it does besides happens while the program runs.
_COMPILING = ("DYNAMO", "LAZY_BACKWARD")
# Whether this torch lets racegate see compiled regions without taking them apart.
_SEES_REGIONS = hasattr(TorchDispatchMode, "ignore_compile_internals")


def follow_compiler(
    session: Session, mode: CompileMode | None, refuse: Callable[[str], None]
) -> None:
    """From here on regions run as mode says; None: as compiled, if this torch can.

    refuse: ends the run because compiled regions were asked for and this torch cannot
    """
    if mode is not CompileMode.EAGER and _SEES_REGIONS:
        AfterImport({"torch._dynamo.callback": partial(_hide_compiler, session)}).install()
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


def compiled_regions() -> int:
    """How many graphs torch's compiler has made in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(utils.counters["stats"]["unique_graphs"])
